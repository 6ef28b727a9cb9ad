//! A blocking HTTP/1.1 client on one persistent connection.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::net::{RecvFlags, recv};

/// Read and write timeout. A server that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const BUFFER_BYTES: usize = 256 * 1024;
/// Maximum size of a read that expects a head: enough for the head, but small enough that most of a long body stays
/// in the socket, where it is dropped without a copy.
const HEAD_READ_BYTES: usize = 4 * 1024;
/// Maximum size of a response that is read into memory, in bytes.
const MAX_WHOLE_BYTES: usize = 512 * 1024 * 1024;

/// One connection. It cannot be used after an error.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// Range of `buffer` that was received and not yet consumed: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Whether the server closes the connection after the last response.
    is_closing: bool,
}

/// Framing of a body.
#[derive(Debug, Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked,
}

/// Returns a GET request. `target` is the path with its query.
#[must_use]
pub fn get(target: &str) -> Vec<u8> {
    get_with(target, "")
}

/// Returns a GET request with additional header lines, each with its line break.
#[must_use]
pub fn get_with(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n").into_bytes()
}

/// Returns a GET request for `length` bytes from `start`.
#[must_use]
pub fn get_range(target: &str, start: u64, length: u64) -> Vec<u8> {
    let last = start + length - 1;
    get_with(target, &format!("Range: bytes={start}-{last}\r\n"))
}

/// Returns the head of a POST request. `headers` are additional lines, each with its line break.
#[must_use]
pub fn post(target: &str, content_type: &str, headers: &str, length: u64) -> Vec<u8> {
    format!(
        "POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         {headers}\r\n"
    )
    .into_bytes()
}

impl Client {
    /// Opens a connection.
    ///
    /// # Errors
    /// Returns an error if the connection cannot be opened.
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, end: 0, is_closing: false })
    }

    /// Sends a request, or a part of one.
    ///
    /// # Errors
    /// Returns an error if the server does not accept the bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the request could not be sent")
    }

    /// Sends the next `length` bytes of `file`, without copying them through this process if the system supports
    /// that.
    ///
    /// # Errors
    /// Returns an error if the file is shorter or the server does not accept the bytes.
    pub fn send_file(&mut self, file: &mut File, length: u64) -> Result<()> {
        let sent = io::copy(&mut file.take(length), &mut self.stream).context("the file could not be sent")?;
        ensure!(sent == length, "the file has {sent} bytes, but {length} were to be sent");
        Ok(())
    }

    /// Waits until a part of the response has arrived.
    ///
    /// # Errors
    /// Returns an error if the connection ends.
    pub fn await_first_byte(&mut self) -> Result<()> {
        self.fill(HEAD_READ_BYTES)
    }

    /// Reads a response, drops its body, and returns the length of the body in bytes.
    ///
    /// # Errors
    /// Returns an error if the status is not `status` or the response is truncated.
    pub fn discard(&mut self, status: u16) -> Result<u64> {
        match self.head(status)? {
            Framing::Length(length) => {
                self.skip(length)?;
                Ok(length)
            }
            Framing::Chunked => {
                let mut total = 0;
                while let Some(length) = self.chunk_length()? {
                    self.skip(length)?;
                    self.line()?;
                    total += length;
                }
                Ok(total)
            }
        }
    }

    /// Sends `request` and drops the body of the response, which must be `length` bytes long.
    ///
    /// # Errors
    /// Returns an error if the status is not `status`, the length is not `length`, or the response is truncated.
    pub fn exchange(&mut self, request: &[u8], status: u16, length: u64) -> Result<()> {
        self.send(request)?;
        let received = self.discard(status)?;
        ensure!(received == length, "the response has {received} bytes, but {length} were expected");
        Ok(())
    }

    /// Does the same as [`Self::exchange`] with the status 200, and returns the time until the first byte of the body.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub fn time_first_byte(&mut self, request: &[u8], length: u64) -> Result<Duration> {
        let start = Instant::now();
        self.send(request)?;
        let framing = self.head(200)?;
        let Framing::Length(received) = framing else { bail!("the response has no length") };
        ensure!(received == length, "the response has {received} bytes, but {length} were expected");
        if self.start == self.end {
            self.fill(HEAD_READ_BYTES)?;
        }
        let first = start.elapsed();
        self.skip(length)?;
        Ok(first)
    }

    /// Reads a complete response.
    ///
    /// # Errors
    /// Returns an error if the status is not `status`, or the response is truncated or larger than 512 MiB.
    pub fn read(&mut self, status: u16) -> Result<Vec<u8>> {
        let framing = self.head(status)?;
        self.whole(framing)
    }

    /// Reads a complete response with any status, which is returned with the body.
    ///
    /// # Errors
    /// Returns an error if the response is truncated or larger than 512 MiB.
    pub fn read_any(&mut self) -> Result<(u16, Vec<u8>)> {
        let (status, framing) = self.any_head()?;
        Ok((status, self.whole(framing)?))
    }

    /// Reads a response and passes its body to `sink` in pieces, as they arrive.
    ///
    /// # Errors
    /// Returns an error if the status is not `status` or the response is truncated, or the first error of `sink`.
    pub fn stream(&mut self, status: u16, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let framing = self.head(status)?;
        self.body(framing, sink)
    }

    /// Whether the server closes the connection after the last response. Then another request needs a new one.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Reads a complete response with the status 200 while `send` sends the request.
    ///
    /// # Errors
    /// As [`Self::read`], and if the request cannot be sent.
    pub fn read_while(&mut self, send: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) -> Result<Vec<u8>> {
        let mut stream = BufWriter::with_capacity(BUFFER_BYTES, self.stream.try_clone()?);
        thread::scope(|scope| {
            let sending = scope.spawn(move || send(&mut stream).and_then(|()| stream.flush()));
            let response = self.read(200)?;
            let sent = sending.join().map_err(|_| anyhow!("the thread that sends has failed"))?;
            sent.context("the request could not be sent")?;
            Ok(response)
        })
    }

    /// Reads a response whose body must be equal to all bytes of `expected`.
    ///
    /// # Errors
    /// Returns an error if the status is not `status`, the response is truncated, or its body differs.
    pub fn compare(&mut self, status: u16, mut expected: impl Read) -> Result<()> {
        let framing = self.head(status)?;
        let mut reference = vec![0; BUFFER_BYTES];
        let mut compared = 0;
        self.body(framing, &mut |piece| {
            let reference = &mut reference[..piece.len()];
            expected.read_exact(reference).context("the response is longer than expected")?;
            ensure!(*reference == *piece, "the response differs after {compared} bytes");
            compared += piece.len();
            Ok(())
        })?;
        ensure!(expected.read(&mut [0])? == 0, "the response ends early, after {compared} bytes");
        Ok(())
    }

    fn whole(&mut self, framing: Framing) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        self.body(framing, &mut |piece| {
            ensure!(body.len() + piece.len() <= MAX_WHOLE_BYTES, "the response is over {MAX_WHOLE_BYTES} bytes");
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(body)
    }

    /// Passes the body to `sink` in pieces of at most `BUFFER_BYTES`.
    fn body(&mut self, framing: Framing, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match framing {
            Framing::Length(length) => self.pieces(length, sink),
            Framing::Chunked => {
                while let Some(length) = self.chunk_length()? {
                    self.pieces(length, sink)?;
                    self.line()?;
                }
                Ok(())
            }
        }
    }

    fn pieces(&mut self, mut left: u64, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while left > 0 {
            if self.start == self.end {
                self.fill(BUFFER_BYTES)?;
            }
            let piece = bounded(left, self.end - self.start);
            sink(&self.buffer[self.start..self.start + piece])?;
            self.start += piece;
            left -= piece as u64;
        }
        Ok(())
    }

    /// Reads a head. A response with a status other than `status` is an error that shows its body.
    fn head(&mut self, status: u16) -> Result<Framing> {
        let (answered, framing) = self.any_head()?;
        if answered != status {
            let mut text = Vec::new();
            self.body(framing, &mut |piece| {
                text.extend_from_slice(&piece[..piece.len().min(1_024 - text.len().min(1_024))]);
                Ok(())
            })?;
            bail!("the response has status {answered} instead of {status}: {}", String::from_utf8_lossy(&text));
        }
        Ok(framing)
    }

    /// Reads a head with any status.
    fn any_head(&mut self) -> Result<(u16, Framing)> {
        let end = loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some(at) = buffered.windows(4).position(|window| window == b"\r\n\r\n") {
                break at;
            }
            self.fill(HEAD_READ_BYTES)?;
        };
        let head = std::str::from_utf8(&self.buffer[self.start..self.start + end]).context("the head is not text")?;
        let (answered, length) = parse_head(head)?;
        self.is_closing = closes(head);
        self.start += end + 4;
        Ok((answered, length.map_or(Framing::Chunked, Framing::Length)))
    }

    /// Reads the length of the next chunk. Returns `None` after the last chunk and its trailers.
    fn chunk_length(&mut self) -> Result<Option<u64>> {
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).with_context(|| format!("{line:?} is not a chunk length"))?;
        if length > 0 {
            return Ok(Some(length));
        }
        while !self.line()?.is_empty() {}
        Ok(None)
    }

    /// Reads a line and returns it without its line break.
    fn line(&mut self) -> Result<String> {
        loop {
            let buffered = &self.buffer[self.start..self.end];
            if let Some(length) = buffered.windows(2).position(|window| window == b"\r\n") {
                let line = String::from_utf8_lossy(&buffered[..length]).into_owned();
                self.start += length + 2;
                return Ok(line);
            }
            self.fill(BUFFER_BYTES)?;
        }
    }

    /// Receives at most `max_bytes` further bytes.
    fn fill(&mut self, max_bytes: usize) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let free = &mut self.buffer[self.end..];
        ensure!(!free.is_empty(), "a head or a line is over {BUFFER_BYTES} bytes");
        let max_bytes = max_bytes.min(free.len());
        let received = self.stream.read(&mut free[..max_bytes]).context("no response")?;
        ensure!(received > 0, "the server closed the connection in the middle of a response");
        self.end += received;
        Ok(())
    }

    /// Drops the next `left` bytes. The kernel drops bytes that have not been received yet (`MSG_TRUNC` on a TCP
    /// socket).
    fn skip(&mut self, mut left: u64) -> Result<()> {
        let buffered = bounded(left, self.end - self.start);
        self.start += buffered;
        left -= buffered as u64;
        while left > 0 {
            let max_bytes = bounded(left, self.buffer.len());
            let (_, dropped) =
                recv(&self.stream, &mut self.buffer[..max_bytes], RecvFlags::TRUNC).context("no response")?;
            ensure!(dropped > 0, "the server closed the connection in the middle of a response");
            left -= dropped as u64;
        }
        Ok(())
    }
}

fn bounded(left: u64, max_bytes: usize) -> usize {
    usize::try_from(left).map_or(max_bytes, |left| left.min(max_bytes))
}

/// Returns the status and the length of the body, or `None` for the length if the body is chunked.
pub(crate) fn parse_head(head: &str) -> Result<(u16, Option<u64>)> {
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
    let status = status.with_context(|| format!("{first:?} is not a status line of HTTP/1.1"))?;
    let (mut length, mut is_chunked) = (None, false);
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse().with_context(|| format!("Content-Length is {value:?}"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.trim().eq_ignore_ascii_case("chunked");
        }
    }
    ensure!(is_chunked || length.is_some(), "the response has neither a length nor chunks");
    Ok((status, length.filter(|_| !is_chunked)))
}

/// Whether a head says that the server closes the connection after the response.
fn closes(head: &str) -> bool {
    let mut fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    let is_close = |value: &str| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close"));
    fields.any(|(name, value)| name.eq_ignore_ascii_case("connection") && is_close(value))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Connects a client to a server that sends `answer` byte for byte and closes the connection.
    fn client_of(answer: &'static [u8]) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || listener.accept().unwrap().0.write_all(answer).unwrap());
        Client::connect(address).unwrap()
    }

    #[test]
    fn client_reads_sized_and_chunked_bodies_in_sequence() {
        let responses = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhelloHTTP/1.1 206 Partial\r\nTransfer-Encoding: \
            chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: \
            0\r\n\r\n";
        let mut client = client_of(responses);
        assert_eq!(client.read(200).unwrap(), b"hello");
        assert_eq!(client.discard(206).unwrap(), 13);
        client.compare(200, io::empty()).unwrap();
        assert!(client.discard(200).unwrap_err().to_string().contains("closed"));
    }

    #[test]
    fn client_reads_any_status_and_knows_that_the_server_closes() {
        let responses = b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\ngoneHTTP/1.1 200 OK\r\nConnection: Close\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let mut client = client_of(responses);
        assert_eq!(client.read_any().unwrap(), (500, b"gone".to_vec()));
        assert!(!client.is_closing());
        let mut received = Vec::new();
        client
            .stream(200, &mut |piece| {
                received.extend_from_slice(piece);
                Ok(())
            })
            .unwrap();
        assert_eq!(received, b"abcde");
        assert!(client.is_closing());
    }

    #[test]
    fn a_wrong_status_body_or_length_is_an_error() {
        let mut client = client_of(b"HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\ngone");
        assert!(client.discard(200).unwrap_err().to_string().ends_with("instead of 200: gone"));
        const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for other in ["hellO", "hell", "hello!"] {
            assert!(client_of(HELLO).compare(200, BufReader::new(other.as_bytes())).is_err(), "{other}");
        }
        assert!(client_of(HELLO).exchange(b"", 200, 6).is_err());
        assert!(client_of(&HELLO[..HELLO.len() - 1]).discard(200).is_err());
    }
}

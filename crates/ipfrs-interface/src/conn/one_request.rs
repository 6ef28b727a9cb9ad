//! The bytes of one HTTP/1.1 request, for hyper to read. Later bytes stay in the socket, and the next head is checked
//! before hyper receives it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use ipfrs_stream::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conn::departure::Check;
use crate::conn::request_head::{BodyLength, Extent};

/// Line that a request lacks; see [`Extent::takes_trailers_at`].
pub(super) const TAKES_TRAILERS: &[u8] = b"TE: trailers\r\n";

/// A socket that yields the bytes of one request, and then stays pending.
#[derive(Debug)]
pub(crate) struct OneRequest {
    socket: Socket,
    left: Remaining,
    /// Number of bytes before the additional line.
    before_line: usize,
    /// The unread rest of the additional line; empty without one.
    line: &'static [u8],
    state: Arc<RequestState>,
    /// Whether the request may open a WebSocket.
    is_of_websocket: bool,
}

/// State of a request, which the connection task checks.
#[derive(Debug, Default)]
pub(crate) struct RequestState {
    is_over: AtomicBool,
    /// Whether the whole request was read.
    is_read: AtomicBool,
    is_flushed: AtomicBool,
    is_shut: AtomicBool,
    /// Whether a byte was written, of the response or of `100 Continue`.
    has_begun: AtomicBool,
    may_half_close: AtomicBool,
    /// Whether the client is still there.
    pub(crate) presence: Check,
}

impl RequestState {
    /// Whether the reader has read the whole request and tries to read the next one.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether the writer has nothing left in its buffer: hyper flushes the socket only then.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_flushed.load(Ordering::Relaxed)
    }

    /// Whether the client only waits: it has sent its request, and all that there is of the response was written.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_read.load(Ordering::Relaxed) && (!self.has_begun.load(Ordering::Relaxed) || self.is_flushed())
    }

    /// Whether a client that waits may have closed its sending side: it gets the rest of a response, but events have no
    /// end.
    pub(crate) fn may_half_close(&self) -> bool {
        self.may_half_close.load(Ordering::Relaxed)
    }

    /// Notes that there is a response, and that it is no stream of events.
    pub(crate) fn allow_half_close(&self) {
        self.may_half_close.store(true, Ordering::Relaxed);
    }

    /// Whether the connection is being shut down, after the last byte of the response.
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }
}

/// The unread rest of the request.
#[derive(Debug)]
enum Remaining {
    /// A known number of bytes, optionally followed by chunks.
    Bytes(u64, Option<Chunks>),
    Chunks(Chunks),
    /// Malformed chunks: the end of the request is unknown, so the reader gets an error.
    Unknown,
}

impl OneRequest {
    pub(crate) fn new(socket: Socket, extent: Extent) -> Self {
        let head = extent.head as u64;
        let left = match extent.body {
            BodyLength::Bytes(bytes) => Remaining::Bytes(head.saturating_add(bytes), None),
            BodyLength::Chunked => Remaining::Bytes(head, Some(Chunks::default())),
        };
        let line = if extent.takes_trailers_at.is_some() { TAKES_TRAILERS } else { &[] };
        let before_line = extent.takes_trailers_at.unwrap_or(0);
        Self { socket, left, before_line, line, state: Arc::default(), is_of_websocket: false }
    }

    /// Writes the names of headers as RFC 6455 does. They are the same in lower case, as hyper writes them, but some
    /// clients of WebSockets look for these only.
    pub(crate) fn of_websocket(self) -> Self {
        Self { is_of_websocket: true, ..self }
    }

    pub(crate) fn state(&self) -> Arc<RequestState> {
        Arc::clone(&self.state)
    }

    /// Returns the socket. If the request was not read to its end, the client may still be sending it.
    pub(crate) fn into_socket(mut self) -> Socket {
        if !matches!(self.left, Remaining::Bytes(0, None)) {
            self.socket.expect_more();
        }
        self.socket
    }

    /// Processes bytes that were read, and returns how many of them belong to the request.
    fn take(&mut self, read: &[u8]) -> usize {
        let mut consumed = 0;
        while consumed < read.len() {
            match &mut self.left {
                Remaining::Bytes(0, None) => break,
                Remaining::Bytes(left, chunks) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len() - consumed);
                    consumed += count;
                    *left -= count as u64;
                    if *left == 0
                        && let Some(chunks) = chunks.take()
                    {
                        self.left = Remaining::Chunks(chunks);
                    }
                }
                Remaining::Chunks(chunks) => match chunks.take(&read[consumed..]) {
                    Some(count) => {
                        consumed += count;
                        if chunks.is_ended() {
                            self.left = Remaining::Bytes(0, None);
                        }
                    }
                    None => self.left = Remaining::Unknown,
                },
                Remaining::Unknown => break,
            }
        }
        consumed
    }
}

impl AsyncRead for OneRequest {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let max_bytes = match this.left {
            // Relaxed suffices, because the task that reads here also checks the flag.
            Remaining::Bytes(0, None) => {
                this.state.is_over.store(true, Ordering::Relaxed);
                return Poll::Pending;
            }
            Remaining::Bytes(left, None) => usize::try_from(left).unwrap_or(usize::MAX),
            Remaining::Unknown => return Poll::Ready(Err(malformed())),
            _ => usize::MAX,
        };
        let max_bytes = match (this.line, this.before_line) {
            ([], _) => max_bytes,
            (_, 1..) => max_bytes.min(this.before_line),
            (line, 0) => {
                let (now, later) = line.split_at(line.len().min(buf.remaining()));
                buf.put_slice(now);
                this.line = later;
                return Poll::Ready(Ok(()));
            }
        };
        let before = buf.filled().len();
        ready!(this.socket.poll_read_at_most(cx, buf, max_bytes))?;
        let consumed = this.take(&buf.filled()[before..]);
        this.before_line = this.before_line.saturating_sub(consumed);
        if matches!(this.left, Remaining::Unknown) {
            // The head, if it came with the chunks. The next read fails.
            buf.set_filled(before + consumed);
            return Poll::Ready(if consumed == 0 { Err(malformed()) } else { Ok(()) });
        }
        this.state.is_read.store(matches!(this.left, Remaining::Bytes(0, None)), Ordering::Relaxed);
        let surplus = &buf.filled()[before + consumed..];
        if !surplus.is_empty() {
            this.socket.unread(surplus.to_vec().into());
            buf.set_filled(before + consumed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for OneRequest {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.state.is_flushed.store(false, Ordering::Relaxed);
        self.state.has_begun.store(true, Ordering::Relaxed);
        if self.is_of_websocket {
            let bytes = with_names_of_websockets(buf);
            return Pin::new(&mut self.socket).poll_write(cx, &bytes);
        }
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_of_websocket {
            let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
            return self.poll_write(cx, first);
        }
        self.state.is_flushed.store(false, Ordering::Relaxed);
        self.state.has_begun.store(true, Ordering::Relaxed);
        Pin::new(&mut self.socket).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.state.presence.make(|| this.socket.presence());
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.state.is_flushed.store(flushed.is_ready(), Ordering::Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.left, Remaining::Bytes(0, None)) {
            self.socket.expect_more();
        }
        self.state.is_shut.store(true, Ordering::Relaxed);
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Returns the error for malformed chunks. Responses put what it is about in front of its text.
fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a size, an end or a trailer is wrong")
}

/// Returns a head with the names of headers as in RFC 6455.
fn with_names_of_websockets(head: &[u8]) -> Vec<u8> {
    const NAMES: [&str; 4] = ["Connection", "Upgrade", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol"];
    let mut head = head.to_vec();
    let lines: Vec<_> = memchr::memchr_iter(b'\n', &head).map(|end| end + 1).collect();
    for (start, name) in lines.into_iter().flat_map(|start| NAMES.map(|name| (start, name))) {
        let end = start + name.len();
        let is_named = head.get(end) == Some(&b':') && head[start..end].eq_ignore_ascii_case(name.as_bytes());
        if is_named {
            head[start..end].copy_from_slice(name.as_bytes());
        }
    }
    head
}

/// Position in a chunked body (RFC 9112, 7.1), to find its end. For every body that both accept, this finds the same
/// end as hyper. If either refuses a body, the connection ends. hyper accepts a bare LF in the lines behind the last
/// chunk and reads on to the next CRLF: it would take a request for a part of the body, if a proxy in front thinks that
/// the body ended with the LF.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    position: ChunkPosition,
    /// Remaining bytes of the current chunk; 0 for the last one.
    size: u64,
    has_digits: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkPosition {
    #[default]
    Size,
    /// After the digits: white space and extensions.
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk.
    Line,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Chunks {
    pub(super) fn is_ended(&self) -> bool {
        self.position == ChunkPosition::End
    }

    /// Processes `bytes`, and returns how many of them belong to the body, or `None` if they are malformed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && !self.is_ended() {
            if self.position == ChunkPosition::Data {
                let count = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += count;
                self.size -= count as u64;
                if self.size == 0 {
                    self.position = ChunkPosition::DataCr;
                }
                continue;
            }
            self.position = self.step(bytes[at])?;
            at += 1;
        }
        Some(at)
    }

    fn step(&mut self, byte: u8) -> Option<ChunkPosition> {
        Some(match (self.position, byte) {
            (ChunkPosition::Size, byte) if byte.is_ascii_hexdigit() => {
                self.has_digits = true;
                let digit = char::from(byte).to_digit(16)?;
                self.size = self.size.checked_mul(16)?.checked_add(digit.into())?;
                ChunkPosition::Size
            }
            (ChunkPosition::Size, b'\r') if self.has_digits => ChunkPosition::SizeLf,
            (ChunkPosition::Size, b' ' | b'\t' | b';') if self.has_digits => ChunkPosition::Extension,
            (ChunkPosition::Extension, b'\r') => ChunkPosition::SizeLf,
            (ChunkPosition::Extension, byte) if byte != b'\n' => ChunkPosition::Extension,
            (ChunkPosition::SizeLf, b'\n') => {
                self.has_digits = false;
                if self.size == 0 { ChunkPosition::Line } else { ChunkPosition::Data }
            }
            (ChunkPosition::DataCr, b'\r') => ChunkPosition::DataLf,
            (ChunkPosition::DataLf, b'\n') => ChunkPosition::Size,
            (ChunkPosition::Line, b'\r') => ChunkPosition::EndLf,
            (ChunkPosition::Trailer, b'\r') => ChunkPosition::TrailerLf,
            (ChunkPosition::Line | ChunkPosition::Trailer, byte) if byte != b'\n' => ChunkPosition::Trailer,
            (ChunkPosition::TrailerLf, b'\n') => ChunkPosition::Line,
            (ChunkPosition::EndLf, b'\n') => ChunkPosition::End,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns the length of the chunked body at the start of `body`, read in pieces of `step` bytes. Returns `None`
    /// if it is malformed, and `usize::MAX` if it is incomplete.
    fn extent(body: &[u8], step: usize) -> Option<usize> {
        let mut chunks = Chunks::default();
        let mut consumed = 0;
        for piece in body.chunks(step) {
            consumed += chunks.take(piece)?;
            if chunks.is_ended() {
                return Some(consumed);
            }
        }
        Some(usize::MAX)
    }

    #[test]
    fn names_of_websockets_are_those_of_the_specification() {
        let head =
            b"HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: y\r\nsec-websocket-accept: z\r\nupgraded: a\r\n\r\n";
        let expected =
            "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: y\r\nSec-WebSocket-Accept: z\r\nupgraded: a\r\n\r\n";
        assert_eq!(with_names_of_websockets(head), expected.as_bytes());
    }

    #[test]
    fn chunked_body_ends_where_its_last_chunk_does() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "00005;a=\"b\"\r\nhello\r\nA\r\n0123456789\r\n0 ;x\r\nTrailer: y\r\nOther: z\r\n\r\n",
            "1\r\n\n\r\n00000000000000000000\r\n\r\n",
        ] {
            let bytes = format!("{body}GET / HTTP/1.1\r\n\r\n");
            for step in 1..bytes.len() {
                assert_eq!(extent(bytes.as_bytes(), step), Some(body.len()), "{body:?} by {step}");
            }
            assert_eq!(extent(&body.as_bytes()[..body.len() - 1], 7), Some(usize::MAX), "{body:?}");
        }
    }

    #[test]
    fn malformed_chunked_body_has_no_extent() {
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "5\nhello\r\n",
            "5\r\nhelloo\r\n",
            "5\r\nhello\n0\r\n",
            "0\r\nA: b\rC: d\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\n",
            "0\r\nA: b\r\n\n",
            "0\r\nA: b\nC: d\r\n\r\n",
            "10000000000000000\r\n",
            "5;\nhello\r\n",
        ] {
            assert_eq!(extent(body.as_bytes(), 64), None, "{body:?}");
        }
    }

    #[tokio::test]
    async fn malformed_chunks_end_in_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for body in ["0\r\nA: b\n\n", "5\r\nhello0\r\n\r\n"] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let socket = Socket::new(listener.accept().await.unwrap().0, None, ipfrs_stream::Bandwidth::default());
            client.write_all(format!("HEAD{body}GET /next HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
            let mut one = OneRequest::new(socket, Extent::new(4, BodyLength::Chunked));
            let mut read = Vec::new();
            let error = one.read_to_end(&mut read).await.unwrap_err();
            assert_eq!((&*read, error.kind()), (&b"HEAD"[..], io::ErrorKind::InvalidData));
            assert!(!one.state().is_over(), "the next request is not looked for");
        }
    }

    #[tokio::test]
    async fn reader_gets_one_request_and_the_socket_keeps_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (request, body) in [("HEAD", BodyLength::Bytes(0)), ("HEAD5", BodyLength::Bytes(1))]
            .into_iter()
            .chain([("HEAD3\r\nabc\r\n0\r\n\r\n", BodyLength::Chunked)])
        {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let stream = listener.accept().await.unwrap().0;
            let socket = Socket::new(stream, None, ipfrs_stream::Bandwidth::default());
            client.write_all(format!("{request}GET /next").as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut one = OneRequest::new(socket, Extent::new(4, body));
            let state = one.state();
            let mut read = vec![0; request.len()];
            one.read_exact(&mut read).await.unwrap();
            assert_eq!(read, request.as_bytes());
            assert!(!state.is_over());
            let mut more = [0; 16];
            let mut buf = ReadBuf::new(&mut more);
            let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut one).poll_read(cx, &mut buf))).await;
            assert!(polled.is_pending() && state.is_over());
            let mut next = String::new();
            one.into_socket().read_to_string(&mut next).await.unwrap();
            assert_eq!(next, "GET /next");
        }
    }
}

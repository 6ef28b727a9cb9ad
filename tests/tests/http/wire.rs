//! HTTP/1.1 by hand, for requests that no client library sends and answers that none shows.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::TestGateway;

/// Far longer than anything takes: a test that would hang fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer as it came over the wire.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Headers after a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether the body was as long as its head said, or ended with its last chunk.
    pub(crate) is_complete: bool,
}

impl Answer {
    /// A header; empty when it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        find(&self.headers, name)
    }

    /// A trailer; empty when it is not there.
    pub(crate) fn trailer(&self, name: &str) -> &str {
        find(&self.trailers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

/// A connection.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) async fn connect(gateway: &TestGateway) -> Self {
        Self(BufReader::new(TcpStream::connect(gateway.address()).await.unwrap()))
    }

    /// Connects with a receive buffer of a few kilobytes and small segments, so that the server soon has to wait for the
    /// client: its kernel takes some 70 KB.
    pub(crate) async fn connect_with_small_window(gateway: &TestGateway) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.set_tcp_mss(536).unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = TcpSocket::from_std_stream(socket.into());
        Self(BufReader::new(socket.connect(gateway.address()).await.unwrap()))
    }

    /// A connection on which requests are sent in pieces like `request` until the server takes no more of them, whatever is read.
    pub(crate) async fn connect_and_ask_for_ever(gateway: &TestGateway, request: String) -> (Self, JoinHandle<()>) {
        let stream = TcpStream::connect(gateway.address()).await.unwrap().into_std().unwrap();
        let mut asking = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
        let asking = tokio::spawn(async move { while asking.write_all(request.as_bytes()).await.is_ok() {} });
        (Self(BufReader::new(TcpStream::from_std(stream).unwrap())), asking)
    }

    /// Sends bytes as they are. The server may have closed its side already: then its answer is what counts.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _closed_by_server = timeout(PATIENCE, self.0.get_mut().write_all(bytes.as_ref())).await.unwrap();
    }

    /// Says that nothing more will be sent; answers can still be read.
    pub(crate) async fn finish(&mut self) {
        let _closed_by_server = self.0.get_mut().shutdown().await;
    }

    /// Reads the answer to a request that was not HEAD.
    pub(crate) async fn answer(&mut self) -> Answer {
        timeout(PATIENCE, self.read(true)).await.expect("an answer within a minute")
    }

    /// Reads an answer without a body.
    pub(crate) async fn head(&mut self) -> Answer {
        timeout(PATIENCE, self.read(false)).await.expect("an answer within a minute")
    }

    /// Reads until the server closes, and gives what it sent.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server closes within a minute");
        match read {
            Ok(_) => rest,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => rest,
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits for the end of what the server sends, which must be next: no answer, and no reset.
    pub(crate) async fn end(&mut self) {
        let read = timeout(PATIENCE, self.0.read(&mut [0])).await.expect("the server closes within a minute");
        assert_eq!(read.unwrap(), 0);
    }

    /// Reads `len` bytes of whatever comes.
    pub(crate) async fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        timeout(PATIENCE, self.0.read_exact(&mut bytes)).await.unwrap().unwrap();
        bytes
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await {
            Ok(_) => line.strip_suffix("\r\n").map(str::to_owned),
            Err(_) => None,
        }
    }

    async fn fields(&mut self) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Some(fields);
            }
            let (name, value) = line.split_once(':').unwrap();
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    async fn read(&mut self, has_body: bool) -> Answer {
        let mut answer = Answer::default();
        let Some(status_line) = self.line().await else { return answer };
        answer.status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let Some(headers) = self.fields().await else { return answer };
        answer.headers = headers;
        if !has_body || matches!(answer.status, 204 | 304) {
            answer.is_complete = true;
        } else if answer.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
            self.chunks(&mut answer).await;
        } else if let Ok(length) = answer.header("content-length").parse() {
            answer.is_complete = self.piece(length, &mut answer.body).await;
        } else {
            answer.body = self.rest().await;
            answer.is_complete = true;
        }
        answer
    }

    async fn chunks(&mut self, answer: &mut Answer) {
        loop {
            let Some(size) = self.line().await.and_then(|line| u64::from_str_radix(&line, 16).ok()) else { return };
            if size == 0 {
                let trailers = self.fields().await;
                answer.is_complete = trailers.is_some();
                answer.trailers = trailers.unwrap_or_default();
                return;
            }
            if !self.piece(size, &mut answer.body).await || self.line().await.is_none() {
                return;
            }
        }
    }

    /// Reads `len` bytes; false when they do not all come.
    async fn piece(&mut self, len: u64, body: &mut Vec<u8>) -> bool {
        let before = body.len() as u64;
        let read = (&mut self.0).take(len).read_to_end(body).await;
        read.is_ok() && body.len() as u64 - before == len
    }
}

/// One request on a connection of its own, and its answer. `request` is a request line with the header lines that
/// belong to it, without their end.
pub(crate) async fn exchange(gateway: &TestGateway, request: impl AsRef<[u8]>) -> Answer {
    let mut wire = Wire::connect(gateway).await;
    wire.send([request.as_ref(), b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"].concat()).await;
    if request.as_ref().starts_with(b"HEAD ") { wire.head().await } else { wire.answer().await }
}

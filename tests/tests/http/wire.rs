//! Hand-written HTTP/1.1, for requests that client libraries do not send and responses that they do not expose.

use std::io;
use std::time::Duration;

use futures::FutureExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::TestGateway;

/// Timeout far longer than any operation, so that a hanging test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A response as received on the wire.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Headers after a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
    /// Whether the body had the length in its head or ended with its last chunk.
    pub(crate) is_complete: bool,
}

impl Answer {
    /// Returns a header, or an empty string if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        find(&self.headers, name)
    }

    /// Returns a trailer, or an empty string if it is missing.
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

/// A connection to the gateway.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) async fn connect(gateway: &TestGateway) -> Self {
        Self(BufReader::new(TcpStream::connect(gateway.address()).await.unwrap()))
    }

    /// Connects with a receive buffer of a few kilobytes and small segments, so that the server soon has to wait for
    /// the client: its kernel takes some 70 KB.
    pub(crate) async fn connect_with_small_window(gateway: &TestGateway) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.set_tcp_mss(536).unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = TcpSocket::from_std_stream(socket.into());
        Self(BufReader::new(socket.connect(gateway.address()).await.unwrap()))
    }

    /// Opens a connection on which a task sends `request` repeatedly, independently of reading, until the server
    /// stops receiving.
    pub(crate) async fn connect_and_ask_for_ever(gateway: &TestGateway, request: String) -> (Self, JoinHandle<()>) {
        let stream = TcpStream::connect(gateway.address()).await.unwrap().into_std().unwrap();
        let mut asking = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
        let asking = tokio::spawn(async move { while asking.write_all(request.as_bytes()).await.is_ok() {} });
        (Self(BufReader::new(TcpStream::from_std(stream).unwrap())), asking)
    }

    /// Sends bytes unchanged. If the server has already closed its side, the error is ignored and the test checks its
    /// response.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _closed_by_server = timeout(PATIENCE, self.0.get_mut().write_all(bytes.as_ref())).await.unwrap();
    }

    /// Closes the sending side. Responses can still be read.
    pub(crate) async fn finish(&mut self) {
        let _closed_by_server = self.0.get_mut().shutdown().await;
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(self.0.get_ref()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Reads the response to a request other than HEAD.
    pub(crate) async fn answer(&mut self) -> Answer {
        timeout(PATIENCE, self.read(true)).await.expect("an answer within a minute")
    }

    /// Reads a response without a body.
    pub(crate) async fn head(&mut self) -> Answer {
        timeout(PATIENCE, self.read(false)).await.expect("an answer within a minute")
    }

    /// Reads until the server closes the connection, and returns the bytes.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.0.read_to_end(&mut rest)).await.expect("the server closes within a minute");
        match read {
            Ok(_) => rest,
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => rest,
            Err(e) => panic!("{e}"),
        }
    }

    /// Waits for the server to close the connection, without another response and without a reset.
    pub(crate) async fn end(&mut self) {
        let read = timeout(PATIENCE, self.0.read(&mut [0])).await.expect("the server closes within a minute");
        assert_eq!(read.unwrap(), 0);
    }

    /// Whether bytes have arrived that are not yet read, or the server has closed the connection.
    pub(crate) fn has_received(&mut self) -> bool {
        self.0.fill_buf().now_or_never().is_some()
    }

    /// Reads `len` bytes.
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

    /// Reads `len` bytes. Returns `false` if fewer arrive.
    async fn piece(&mut self, len: u64, body: &mut Vec<u8>) -> bool {
        let before = body.len() as u64;
        let read = (&mut self.0).take(len).read_to_end(body).await;
        read.is_ok() && body.len() as u64 - before == len
    }
}

/// Sends one request on a new connection and returns the response. `request` is a request line with its header lines,
/// without the final line break.
pub(crate) async fn exchange(gateway: &TestGateway, request: impl AsRef<[u8]>) -> Answer {
    let mut wire = Wire::connect(gateway).await;
    wire.send([request.as_ref(), b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"].concat()).await;
    if request.as_ref().starts_with(b"HEAD ") { wire.head().await } else { wire.answer().await }
}

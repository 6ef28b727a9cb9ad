//! An HTTP server that tests use as a source of blocks, with any behaviour.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Handles one request: reads its target, and writes the whole response to the connection, which ends afterwards.
pub(crate) type Handler = Arc<dyn Fn(String, TcpStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// A server. Dropping it closes the listener.
pub(crate) struct SourceServer {
    pub(crate) address: SocketAddr,
    requests: watch::Receiver<Vec<String>>,
    task: JoinHandle<()>,
}

impl SourceServer {
    pub(crate) async fn start(handler: Handler) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, requests) = watch::channel(Vec::new());
        let heads = Arc::new(heads);
        let task = tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let (handler, heads) = (Arc::clone(&handler), Arc::clone(&heads));
                tokio::spawn(async move {
                    let Some(head) = read_head(&mut connection).await else { return };
                    let target = head.split_whitespace().nth(1).unwrap().to_owned();
                    heads.send_modify(|heads| heads.push(head));
                    handler(target, connection).await;
                });
            }
        });
        Self { address, requests, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the heads of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.borrow().clone()
    }

    /// Waits until there were at least `count` requests.
    pub(crate) async fn until_requests(&self, count: usize) {
        self.requests.clone().wait_for(|heads| heads.len() >= count).await.unwrap();
    }
}

impl Drop for SourceServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_head(connection: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Writes the head of a response whose body ends with the connection.
pub(crate) async fn write_head(connection: &mut TcpStream, status: &str, headers: &str) {
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n");
    let _gone = connection.write_all(head.as_bytes()).await;
}

/// Returns a handler that responds to every request alike.
pub(crate) fn always(status: &'static str, headers: &'static str, body: impl Into<Bytes>) -> Handler {
    let body = body.into();
    Arc::new(move |_, mut connection| {
        let body = body.clone();
        Box::pin(async move {
            write_head(&mut connection, status, headers).await;
            let _gone = connection.write_all(&body).await;
        })
    })
}

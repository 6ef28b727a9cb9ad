//! A WebSocket server that returns each message, for conformance suites such as Autobahn:
//! `cargo run --package ipfrs-middleware --example websocket_echo -- 127.0.0.1:9001`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use http::Request;
use ipfrs_middleware::websocket::{Disconnected, Incoming, Takeover, WebSocket, WebSocketConfig, WebSockets};
use ipfrs_middleware::{Client, Lifecycle};
use ipfrs_node::{MemoryStore, Node, Registry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longest message of the suite, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let repo = tempfile::tempdir().unwrap();
    let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
    let config = WebSocketConfig { max_message_bytes: MAX_MESSAGE_BYTES, ..WebSocketConfig::default() };
    let websockets = WebSockets::register(&node, &config, Lifecycle::new(), &Registry::new()).unwrap();
    let listener = TcpListener::bind(&address).await.unwrap();
    println!("ws://{}", listener.local_addr().unwrap());
    while let Ok((socket, peer)) = listener.accept().await {
        tokio::spawn(serve(websockets.clone(), socket, Client::of(peer.ip())));
    }
}

/// Reads a handshake, responds, and echoes.
async fn serve(websockets: WebSockets, mut socket: TcpStream, client: Client) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let mut request = Request::builder().uri("/");
    for line in str::from_utf8(&head).ok()?.lines().skip(1) {
        if let Some((name, value)) = line.split_once(':') {
            request = request.header(name, value.trim());
        }
    }
    let takeover = Takeover::default();
    let request = request.extension(takeover.clone()).extension(client).body(()).ok()?;
    let response = websockets.accept(&request, &[], |socket, _| echo(socket)).ok()?;
    let mut text = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in response.headers() {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().ok()?));
    }
    socket.write_all(format!("{text}\r\n").as_bytes()).await.ok()?;
    takeover.take()?(Box::new(socket)).await;
    Some(())
}

async fn echo(mut socket: WebSocket) {
    while let Some(incoming) = socket.receive().await {
        let sent: Result<(), Disconnected> = match incoming {
            Incoming::Text(text) => socket.send(text).await,
            Incoming::Binary(bytes) => socket.send_binary(bytes).await,
        };
        if sent.is_err() {
            return;
        }
    }
    socket.finish().await;
}

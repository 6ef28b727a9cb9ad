//! A WebSocket client for tests.

use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Timeout far longer than any operation, so that a hanging test fails.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Client(WebSocketStream<TcpStream>);

impl Client {
    /// Opens a WebSocket.
    ///
    /// # Errors
    /// The status of a refused handshake.
    pub(crate) async fn open(address: SocketAddr, path: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match client_async(request, TcpStream::connect(address).await.unwrap()).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(e) => panic!("{e}"),
        }
    }

    /// Opens a connection for GraphQL and initialises it.
    pub(crate) async fn graphql(address: SocketAddr) -> Self {
        let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
        let mut client = Self::open(address, "/graphql/ws", &protocol).await.unwrap();
        client.send(r#"{"type":"connection_init"}"#).await;
        assert_eq!(client.receive().await["type"], "connection_ack");
        client
    }

    pub(crate) async fn send(&mut self, text: impl Into<String>) {
        self.message(Message::text(text.into())).await;
    }

    pub(crate) async fn message(&mut self, message: Message) {
        self.0.send(message).await.unwrap();
    }

    /// Returns the next message, which is JSON.
    pub(crate) async fn receive(&mut self) -> Value {
        match self.next().await {
            Some(Message::Text(text)) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next message; `None` if the connection ended without a close frame.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        timeout(LONG, self.0.next()).await.unwrap()?.ok()
    }

    /// Returns the code with which the server closes the connection.
    pub(crate) async fn close_code(&mut self) -> u16 {
        let mut code = 0;
        // The library responds to the close frame while it waits for the end.
        while let Some(message) = self.next().await {
            if let Message::Close(Some(frame)) = message {
                code = frame.code.into();
            }
        }
        code
    }

    /// Returns the connection below the WebSocket.
    pub(crate) fn into_inner(self) -> TcpStream {
        self.0.into_inner()
    }
}

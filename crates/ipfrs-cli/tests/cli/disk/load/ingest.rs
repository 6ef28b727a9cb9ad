//! Objects that are ingested over WebSockets.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use super::{Key, Running};

/// Time within which the daemon notices that a client is gone.
const LIMIT: Duration = Duration::from_secs(30);

impl Running<'_, '_> {
    /// Sends messages over a WebSocket, each after the last was acknowledged.
    pub(super) async fn ingest(&mut self) {
        if let Err(error) = self.try_ingest().await {
            assert!(self.load.may_fail, "{error}");
        }
    }

    async fn try_ingest(&mut self) -> Result<(), tungstenite::Error> {
        let name = format!("{}-{}", self.name, self.count);
        let (query, key) = match self.count.is_multiple_of(2) {
            true => (format!("store=filesystem&name={name}"), Key::Ingested(name)),
            // A mutable file is the default.
            false => (format!("name={name}"), Key::Object(name)),
        };
        let mut socket = connect(&self.load.url, &query).await?;
        socket.next().await.transpose()?;
        let mut end = 0;
        for _ in 0..3 {
            let begin = end;
            end += self.bytes(2_000).len();
            socket.send(Message::Binary((begin..end).map(ingested).collect())).await?;
            match socket.next().await.transpose()? {
                Some(Message::Text(text)) if text.contains(r#""ack""#) => {}
                other => {
                    assert!(self.load.may_fail, "{other:?}");
                    return Ok(());
                }
            }
            let value = Some(end.to_string().into_bytes());
            self.load.note(|expected| drop(expected.there.insert(key.clone(), value)));
        }
        // Objects that are not ended stay too.
        if self.count.is_multiple_of(3) {
            socket.send(Message::text(r#"{"type":"end"}"#)).await?;
        } else {
            socket.close(None).await?;
        }
        // The daemon closes the connection when no client writes the object any more.
        while let Some(Ok(_)) = socket.next().await {}
        Ok(())
    }
}

/// Opens an object.
pub(crate) async fn connect(url: &str, query: &str) -> Result<WebSocketStream<TcpStream>, tungstenite::Error> {
    let address = url.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await?;
    let url = format!("ws://{address}/ws/ingest?{query}");
    Ok(tokio_tungstenite::client_async(url, stream).await?.0)
}

/// Continues an object among the mutable files, which has all its bytes then. The error is that of the daemon.
pub(crate) async fn continued(url: &str, name: &str) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match try_continue(url, name).await {
            // The daemon is still ending the connection of a client that is gone.
            Err(error) if error.contains("another client is writing") && begun.elapsed() < LIMIT => {}
            outcome => return outcome,
        }
    }
}

async fn try_continue(url: &str, name: &str) -> Result<(), String> {
    let mut socket = connect(url, &format!("append=true&name={name}")).await.map_err(|error| error.to_string())?;
    let ready = socket.next().await.transpose().map_err(|error| error.to_string())?;
    let is_ready = matches!(&ready, Some(Message::Text(text)) if text.contains(r#""ready""#));
    if is_ready {
        socket.send(Message::text(r#"{"type":"end"}"#)).await.map_err(|error| error.to_string())?;
    }
    while let Some(Ok(_)) = socket.next().await {}
    if is_ready { Ok(()) } else { Err(format!("{ready:?}")) }
}

/// Returns the byte at `position` of every ingested object.
pub(crate) fn ingested(position: usize) -> u8 {
    (position % 251) as u8
}

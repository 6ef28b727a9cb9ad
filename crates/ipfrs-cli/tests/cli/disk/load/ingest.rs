//! Objects that are ingested over WebSockets.

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::{self, Message};

use super::{Key, Running};

impl Running<'_, '_> {
    /// Sends messages over a WebSocket, each after the last was acknowledged.
    pub(super) async fn ingest(&mut self) {
        if let Err(error) = self.try_ingest().await {
            assert!(self.load.may_fail, "{error}");
        }
    }

    async fn try_ingest(&mut self) -> Result<(), tungstenite::Error> {
        let name = format!("{}-{}", self.name, self.count);
        let address = self.load.url.strip_prefix("http://").unwrap();
        let stream = tokio::net::TcpStream::connect(address).await?;
        let url = format!("ws://{address}/ws/ingest?store=filesystem&name={name}");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
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
            self.load.note(|expected| drop(expected.there.insert(Key::Ingested(name.clone()), value)));
        }
        socket.close(None).await
    }
}

/// Returns the byte at `position` of every ingested object.
pub(crate) fn ingested(position: usize) -> u8 {
    (position % 251) as u8
}

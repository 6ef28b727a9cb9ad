//! A WebSocket connection that sends bursts of messages.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use axum::http::HeaderValue;
use axum::http::header::AUTHORIZATION;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use ipfrs_rpc::client::Request;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::written_files::WrittenFiles;
use super::{Samples, store_name};
use crate::api::Api;
use crate::args::IngestStore;
use crate::load::Base;

/// Environment variable with the password.
const PASSWORD: &str = "IPFRS_INGEST_PASSWORD";
/// Maximum wait for the daemon.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of frames that are gathered before they are written to the socket.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// Distance of the bytes of a message that differ from those of all others, so that no two blocks are equal.
const MARK_DISTANCE: usize = 4 * 1024;

/// Messages that a connection sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) store: IngestStore,
    /// Size of a message.
    pub(super) bytes: u64,
    /// Messages in a burst.
    pub(super) messages: u64,
    pub(super) in_flight: u64,
    pub(super) duration: Duration,
}

/// User and password as a header.
#[derive(Debug)]
pub(super) struct Credentials(HeaderValue);

impl Credentials {
    pub(super) fn of_environment(user: &str) -> Result<Self> {
        let password = std::env::var(PASSWORD).with_context(|| format!("--user needs a password in {PASSWORD}"))?;
        let mut value: HeaderValue = format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))).parse()?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

/// A message of the daemon.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Reply {
    Ready { path: Option<String> },
    Ack { messages: u64 },
    Stored {},
    Error { message: String },
}

/// An open connection.
pub(super) struct Connection {
    socket: WebSocketStream<TcpStream>,
    load: Load,
    /// Path of the object, if it has to be removed.
    path: Option<String>,
    sent: u64,
    acknowledged: u64,
    content: Vec<u8>,
    /// Number that makes messages differ.
    next: u64,
}

impl Connection {
    pub(super) async fn open(base: &Base, credentials: Option<&Credentials>, load: Load) -> Result<Self> {
        let address = base.address();
        let store = store_name(load.store);
        let url = format!("ws://{}{}?store={store}", base.host(), base.below("/ws/ingest"));
        let mut request = url.into_client_request()?;
        if let Some(Credentials(value)) = credentials {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let stream = TcpStream::connect(&address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let config = WebSocketConfig::default().write_buffer_size(WRITE_BUFFER_BYTES);
        let (socket, _) = client_async_with_config(request, stream, Some(config)).await.map_err(refused)?;
        let content = vec![0x5a; usize::try_from(load.bytes)?];
        let next = std::collections::hash_map::RandomState::new();
        let next = std::hash::BuildHasher::hash_one(&next, 0_u8);
        let mut connection = Self { socket, load, path: None, sent: 0, acknowledged: 0, content, next };
        match connection.reply().await? {
            Reply::Ready { path } => connection.path = path,
            other => bail!("the daemon sent {other:?} first"),
        }
        Ok(connection)
    }

    /// Sends bursts until the duration is over, at most `most`.
    pub(super) async fn send_bursts(&mut self, most: u64, samples: &mut Samples) -> Result<()> {
        let Load { messages, in_flight, duration, .. } = self.load;
        let (begun, left) = (Instant::now(), duration.saturating_sub(samples.elapsed()));
        samples.begin();
        for burst in 0..most {
            for _ in 0..messages {
                let message = self.message();
                self.socket.feed(Message::Binary(message)).await?;
            }
            self.socket.flush().await?;
            self.sent += messages;
            while self.sent - self.acknowledged >= in_flight * messages {
                let before = self.acknowledged / messages;
                self.receive_ack().await?;
                samples.ended(self.acknowledged / messages - before);
            }
            if burst > 0 && begun.elapsed() >= left {
                break;
            }
        }
        while self.acknowledged < self.sent {
            let before = self.acknowledged / messages;
            self.receive_ack().await?;
            samples.ended(self.acknowledged / messages - before);
        }
        Ok(())
    }

    /// Returns a message whose blocks no other message has.
    fn message(&mut self) -> Bytes {
        for part in self.content.chunks_mut(MARK_DISTANCE) {
            self.next = self.next.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mark = self.next.to_le_bytes();
            let len = part.len().min(mark.len());
            part[..len].copy_from_slice(&mark[..len]);
        }
        Bytes::copy_from_slice(&self.content)
    }

    async fn receive_ack(&mut self) -> Result<()> {
        match self.reply().await? {
            Reply::Ack { messages } => self.acknowledged = messages,
            other => bail!("the daemon sent {other:?} in place of an acknowledgment"),
        }
        Ok(())
    }

    async fn reply(&mut self) -> Result<Reply> {
        loop {
            let next = timeout(TIMEOUT, self.socket.next()).await.context("the daemon did not respond in time")?;
            match next.context("the daemon ended the connection")?? {
                Message::Text(text) => match serde_json::from_str(&text)? {
                    Reply::Error { message } => bail!("the daemon refused: {message}"),
                    reply => return Ok(reply),
                },
                Message::Close(Some(frame)) => bail!("the daemon closed the connection: {}", frame.reason),
                _ => {}
            }
        }
    }

    /// Ends the object. Removes a mutable file, whose blocks stay, and adds a file to `files`.
    pub(super) async fn end(mut self, api: &Api, files: &WrittenFiles) -> Result<()> {
        self.socket.send(Message::text(r#"{"type":"end"}"#)).await?;
        while !matches!(self.reply().await?, Reply::Stored {}) {}
        let Some(path) = self.path else { return Ok(()) };
        match self.load.store {
            IngestStore::Memory => {}
            IngestStore::Filesystem => files.add(path.into(), self.load.bytes.saturating_mul(self.sent)),
            IngestStore::Ipfs => {
                drop(api.call(Request::command("files/rm").with_arg(path)).await?.bytes(1 << 20).await?)
            }
        }
        Ok(())
    }
}

fn refused(error: tungstenite::Error) -> anyhow::Error {
    match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let problem: Option<serde_json::Value> = serde_json::from_slice(body).ok();
            let detail = problem.and_then(|problem| Some(problem.get("detail")?.as_str()?.to_owned()));
            anyhow!("the daemon responds {}: {}", response.status(), detail.unwrap_or_default())
        }
        error => anyhow!(error),
    }
}

//! WebSockets (RFC 6455) for all front-ends: the handshake, permits, heartbeats and the limits of a connection.
//!
//! A session also ends when the credentials of its caller expire or are revoked.
//!
//! A handler calls [`WebSockets::accept`]. The connection finds the session in the request's [`Takeover`] once the
//! response is sent, and passes it the socket.

mod config;
mod framed_text;
mod frames;
mod handshake;
mod takeover;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Limit, Node};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::auth::{Caller, credentials_ended};
use crate::client::Client;
use crate::lifecycle::Lifecycle;
use crate::metrics::registered;
use crate::overhead::{CountedSocket, FLOODED};
use crate::rate_limit::RateLimiter;
use crate::request_permits::{RequestPermit, RequestPermits, Requests};

pub use config::WebSocketConfig;
use framed_text::MAX_FRAME_HEAD_BYTES;
pub use framed_text::text_frame;
use frames::Frames;
pub use handshake::{HandshakeError, is_websocket};
pub use takeover::{Session, Takeover, Transport};
pub use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode as WebSocketCloseCode;

/// Size of the buffer for arriving messages, in bytes: connections are many and their messages short. It grows for a
/// longer message.
const READ_BUFFER_BYTES: usize = 1_024;

/// Configuration key of the maximum length of a message.
const MESSAGE_KEY: &str = "websocket.max_message_bytes";

/// Maximum time that a client gets to read the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of the reason in a close frame, in bytes (RFC 6455, 5.5).
const MAX_REASON_BYTES: usize = 123;

/// The WebSocket connections of all front-ends. Clones share permits and metrics.
#[derive(Debug, Clone)]
pub struct WebSockets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: WebSocketConfig,
    node: Node,
    lifecycle: Lifecycle,
    permits: RequestPermits,
    sent: IntCounterVec,
    received: IntCounter,
}

impl WebSockets {
    /// Creates the permits and registers the metrics.
    ///
    /// # Errors
    /// If the metrics are already registered.
    pub fn register(node: &Node, config: &WebSocketConfig, lifecycle: Lifecycle, registry: &Registry) -> Result<Self> {
        let active = IntGauge::new("ipfrs_websocket_connections_active", "Open WebSocket connections");
        let active = registered(registry, active)?;
        let sent = Opts::new("ipfrs_websocket_messages_sent_total", "WebSocket messages sent, by topic");
        let sent = registered(registry, IntCounterVec::new(sent, &["topic"]))?;
        let received = IntCounter::new("ipfrs_websocket_messages_received_total", "WebSocket messages received");
        let received = registered(registry, received)?;
        let (most, per_client) = (config.max_connections, config.max_connections_per_client);
        let permits = RequestPermits::new(node, Requests::WebSocket, active, most, per_client);
        let (node, config) = (node.clone(), config.clone());
        Ok(Self(Arc::new(Shared { config, node, lifecycle, permits, sent, received })))
    }

    /// Changes the limits on connections. Open ones stay.
    pub fn resize(&self, max_connections: usize, max_connections_per_client: usize) {
        self.0.permits.resize(max_connections, max_connections_per_client);
    }

    /// Returns the counter of messages sent for a topic, which must come from a bounded set.
    #[must_use]
    pub fn sent(&self, topic: &str) -> IntCounter {
        self.0.sent.with_label_values(&[topic])
    }

    /// Returns the state of the daemon.
    #[must_use]
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.0.lifecycle
    }

    /// Accepts a handshake. `protocols` are the supported subprotocols; the first that the client names too is used.
    /// `session` runs on the connection once the response is sent, with the subprotocol. A message has at most
    /// `websocket.max_message_bytes`.
    ///
    /// # Errors
    /// [`HandshakeError`] for a request that is not a valid handshake, for a client with too many connections, and
    /// while the daemon drains.
    pub fn accept<B, F>(
        &self,
        request: &Request<B>,
        protocols: &[&'static str],
        session: impl FnOnce(WebSocket, Option<&'static str>) -> F + Send + 'static,
    ) -> std::result::Result<Response<()>, HandshakeError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let max_message_bytes = self.0.config.max_message_bytes;
        let messages = MessageLimits { max_message_bytes, read_buffer_bytes: READ_BUFFER_BYTES, key: MESSAGE_KEY };
        self.accept_with(request, protocols, messages, session)
    }

    /// Accepts a handshake like [`accept`](Self::accept), with other limits of messages.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn accept_with<B, F>(
        &self,
        request: &Request<B>,
        protocols: &[&'static str],
        messages: MessageLimits,
        session: impl FnOnce(WebSocket, Option<&'static str>) -> F + Send + 'static,
    ) -> std::result::Result<Response<()>, HandshakeError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (response, protocol) = handshake::check(request, protocols)?;
        let takeover = request.extensions().get::<Takeover>().ok_or(HandshakeError::NoConnection)?;
        if self.0.lifecycle.is_draining() {
            return Err(HandshakeError::Draining);
        }
        let client = request.extensions().get::<Client>().copied().unwrap_or_default();
        let taken = self.0.permits.take(client);
        let permit = taken.map_err(|refused| HandshakeError::Refused(self.0.permits.refusal(refused)))?;
        let shared = Arc::clone(&self.0);
        let caller = Caller::of(request.extensions());
        takeover.set(Box::new(move |transport| {
            Box::pin(async move {
                let socket = WebSocket::open(transport, shared, messages, permit, client, caller.clone()).await;
                // The memory that the session reserves counts for its client.
                let session = client.scope(session(socket, protocol));
                tokio::select! {
                    () = session => {}
                    // The session has the time to close the connection.
                    () = async { caller.ended().await; sleep(CLOSE_TIMEOUT).await } => {}
                }
            })
        }));
        Ok(response)
    }
}

/// Limits of arriving messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageLimits {
    /// Maximum length of a message, in bytes.
    pub max_message_bytes: usize,
    /// Size of the buffer for arriving messages, in bytes. It grows for a longer message.
    pub read_buffer_bytes: usize,
    /// Configuration key of the maximum, for the client.
    pub key: &'static str,
}

/// A message of the client.
#[derive(Debug)]
pub enum Incoming {
    /// Text, which is valid UTF-8.
    Text(Utf8Bytes),
    /// Bytes.
    Binary(Bytes),
}

impl Incoming {
    /// Returns the number of bytes.
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

/// The connection has ended, or must end because the client does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disconnected;

/// An open WebSocket connection. Dropping it closes the socket.
#[derive(Debug)]
pub struct WebSocket {
    inner: WebSocketStream<CountedSocket<Box<dyn Transport>, Frames>>,
    shared: Arc<Shared>,
    /// Time at which something last arrived.
    heard: Instant,
    /// Time of the ping that was sent since.
    pinged: Option<Instant>,
    /// Whether a close frame was sent or received, after which nothing else may follow.
    is_closing: bool,
    /// Configuration key of the maximum length of a message.
    message_key: &'static str,
    /// How the connection has to be closed, because the client violated the protocol or its credentials have ended.
    violation: Option<(CloseCode, String)>,
    client: Client,
    /// Sender of the handshake.
    caller: Caller,
    rate_limits: RateLimiter,
    /// Time from which the rate limits permit another message of the client, if it had to wait.
    permitted_from: Option<Instant>,
    /// Message that has arrived before that time. Until it is passed on, nothing more is read.
    held: Option<Incoming>,
    _permit: RequestPermit,
}

impl WebSocket {
    async fn open(
        transport: Box<dyn Transport>,
        shared: Arc<Shared>,
        messages: MessageLimits,
        permit: RequestPermit,
        client: Client,
        caller: Caller,
    ) -> Self {
        let most = messages.max_message_bytes;
        let config = tungstenite::protocol::WebSocketConfig::default()
            .read_buffer_size(messages.read_buffer_bytes)
            .write_buffer_size(0)
            .max_message_size(Some(most))
            .max_frame_size(Some(most));
        let socket = CountedSocket::new(transport, Frames::default(), Instant::now());
        let inner = WebSocketStream::from_raw_socket(socket, Role::Server, Some(config)).await;
        Self {
            inner,
            shared,
            heard: Instant::now(),
            pinged: None,
            is_closing: false,
            message_key: messages.key,
            violation: None,
            client,
            caller,
            rate_limits: RateLimiter::off(),
            permitted_from: None,
            held: None,
            _permit: permit,
        }
    }

    /// Makes the client pay for messages from now on. Without this, only the handshake counts.
    pub fn limit_rate(&mut self, rate_limits: RateLimiter) {
        self.rate_limits = rate_limits;
    }

    /// Makes the next message of the client wait, for a session that pays for each message by itself.
    pub fn delay_next(&mut self, wait: Duration) {
        self.permitted_from = (!wait.is_zero()).then(|| Instant::now() + wait);
    }

    /// Pays for bytes that are sent. Returns how long the session must not send more.
    #[must_use]
    pub fn pay_sent(&self, bytes: usize) -> Duration {
        self.rate_limits.pay_sent(self.client, Some(&self.caller), bytes)
    }

    /// Pays for a message that is passed on.
    fn pay_arrived(&mut self, message: &Incoming) {
        self.shared.received.inc();
        let wait = self.rate_limits.pay_arrived(self.client, Some(&self.caller), message.len());
        self.delay_next(wait);
    }

    /// Returns the time from which the [rate limits](Self::limit_rate) permit another message of the client; `None` if
    /// it need not wait.
    #[must_use]
    pub fn permitted_from(&self) -> Option<Instant> {
        self.permitted_from
    }

    /// Waits for the next message. Responds to pings, and sends one to a client that is silent for
    /// `websocket.heartbeat_seconds`; if it stays silent for as long again, the connection ends. A message that the
    /// [rate limits](Self::limit_rate) do not permit yet is held, and nothing after it is read, so that the client
    /// waits. Returns `None` at the end; the session must call [`finish`](Self::finish) then. Dropping the future loses
    /// nothing.
    pub async fn receive(&mut self) -> Option<Incoming> {
        let heartbeat = self.shared.config.heartbeat();
        loop {
            let since = self.pinged.unwrap_or(self.heard);
            let wait = self.permitted_from.filter(|time| *time > Instant::now());
            let next = tokio::select! {
                biased;
                () = self.caller.ended() => {
                    self.violation = Some((CloseCode::Policy, credentials_ended().message().to_owned()));
                    return None;
                }
                () = until(wait), if self.held.is_some() => {
                    // A client that is not read is not silent.
                    self.heard = Instant::now();
                    let message = self.held.take()?;
                    self.pay_arrived(&message);
                    return Some(message);
                }
                next = timeout_at(since + heartbeat, self.inner.next()), if self.held.is_none() => next,
            };
            let Ok(next) = next else {
                if self.pinged.is_some() {
                    self.shared.node.count_refusal(Limit::WebSocketIdle);
                    return None;
                }
                self.pinged = Some(Instant::now());
                self.send_message(Message::Ping(Bytes::new())).await.ok()?;
                continue;
            };
            (self.heard, self.pinged) = (Instant::now(), None);
            let message = match next? {
                Ok(Message::Text(text)) => Incoming::Text(text),
                Ok(Message::Binary(bytes)) => Incoming::Binary(bytes),
                Ok(control) => {
                    // The library responds to pings and close frames.
                    self.is_closing |= matches!(control, Message::Close(_));
                    self.flush().await.ok()?;
                    continue;
                }
                Err(error) => {
                    self.violation = match self.inner.get_ref().is_flooded() {
                        true => Some((CloseCode::Policy, FLOODED.to_owned())),
                        false => close_of(&error, self.message_key),
                    };
                    return None;
                }
            };
            if self.permitted_from.is_some_and(|time| time > Instant::now()) {
                self.held = Some(message);
                continue;
            }
            self.pay_arrived(&message);
            return Some(message);
        }
    }

    /// Sends a text message.
    ///
    /// # Errors
    /// [`Disconnected`] if the client is gone, or does not read for `websocket.send_timeout_seconds`.
    pub async fn send(&mut self, text: impl Into<Utf8Bytes>) -> std::result::Result<(), Disconnected> {
        let text = text.into();
        let mut frame = Vec::with_capacity(text.len() + MAX_FRAME_HEAD_BYTES);
        text_frame(&mut frame, text.as_bytes());
        // A client may take long to read the frame.
        drop(text);
        self.send_frames(Bytes::from(frame)).await
    }

    /// Sends a binary message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_binary(&mut self, bytes: Bytes) -> std::result::Result<(), Disconnected> {
        self.send_message(Message::Binary(bytes)).await
    }

    async fn send_message(&mut self, message: Message) -> std::result::Result<(), Disconnected> {
        let limit = self.shared.config.send_timeout();
        let sent = timeout(limit, self.inner.send(message)).await;
        self.in_time(sent.map(|sent| sent.is_ok()).ok())
    }

    async fn flush(&mut self) -> std::result::Result<(), Disconnected> {
        let limit = self.shared.config.send_timeout();
        let flushed = timeout(limit, self.inner.flush()).await;
        self.in_time(flushed.map(|flushed| flushed.is_ok()).ok())
    }

    fn in_time(&self, outcome: Option<bool>) -> std::result::Result<(), Disconnected> {
        match outcome {
            Some(true) => Ok(()),
            Some(false) => Err(Disconnected),
            None => {
                self.shared.node.count_refusal(Limit::WriteTimeout);
                Err(Disconnected)
            }
        }
    }

    /// Sends messages that are already [framed](text_frame), without a copy. Several connections can share them.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_frames(&mut self, mut frames: impl Buf + Send) -> std::result::Result<(), Disconnected> {
        if self.is_closing {
            return Err(Disconnected);
        }
        // A part of another frame may be in the buffer of the library.
        self.flush().await?;
        let limit = self.shared.config.send_timeout();
        let socket = self.inner.get_mut();
        let sending = async {
            while frames.has_remaining() {
                // The limit is on a pause, not on a long batch to a slow client.
                match timeout(limit, socket.write_buf(&mut frames)).await {
                    Ok(Ok(written)) if written > 0 => {}
                    Ok(_) => return Some(false),
                    Err(_) => return None,
                }
            }
            timeout(limit, socket.flush()).await.map(|flushed| flushed.is_ok()).ok()
        };
        let outcome = sending.await;
        self.in_time(outcome)
    }

    /// Closes the connection with a code and a reason, which is shortened if necessary.
    pub async fn close(&mut self, code: CloseCode, reason: &str) {
        self.is_closing = true;
        let mut end = reason.len().min(MAX_REASON_BYTES);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let frame = CloseFrame { code, reason: reason[..end].into() };
        let closing = async {
            // A client that is gone needs no close frame.
            if self.inner.close(Some(frame)).await.is_ok() && !self.inner.get_ref().is_flooded() {
                while let Some(Ok(_)) = self.inner.next().await {}
                self.end().await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }

    /// Ends the connection after [`receive`](Self::receive) has returned `None`: with a close code if the client
    /// violated the protocol.
    pub async fn finish(&mut self) {
        match self.violation.take() {
            Some((code, reason)) => self.close(code, &reason).await,
            None => drop(timeout(CLOSE_TIMEOUT, self.end()).await),
        }
    }

    /// Returns the error if the client has sent a message that is too long, which a handler may report before it closes
    /// the connection.
    pub fn take_too_long(&mut self) -> Option<Error> {
        let (_, reason) = self.violation.take_if(|(code, _)| *code == CloseCode::Size)?;
        Some(Error::too_large(reason))
    }

    /// Shuts the socket down and waits until the client ends the connection: what it sends meanwhile must not lead to a
    /// reset, which could destroy in transit what was sent to it.
    async fn end(&mut self) {
        let socket = self.inner.get_mut();
        if socket.shutdown().await.is_ok() {
            let mut rest = [0; 512];
            while socket.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
        }
    }
}

/// Waits until a time, if there is one.
async fn until(time: Option<Instant>) {
    if let Some(time) = time {
        sleep_until(time).await;
    }
}

/// Returns the close code and the reason for an error of the client (RFC 6455, 7.4.1); `None` if the socket failed.
fn close_of(error: &tungstenite::Error, message_key: &str) -> Option<(CloseCode, String)> {
    match error {
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
        tungstenite::Error::Protocol(e) => Some((CloseCode::Protocol, e.to_string())),
        tungstenite::Error::Utf8(_) => Some((CloseCode::Invalid, "a text message is not UTF-8".to_owned())),
        tungstenite::Error::Capacity(CapacityError::MessageTooLong { max_size, .. }) => {
            let reason = format!("the message is longer than {max_size} bytes ({message_key})");
            Some((CloseCode::Size, reason))
        }
        _ => None,
    }
}

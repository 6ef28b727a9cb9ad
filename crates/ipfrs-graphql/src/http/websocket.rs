//! Operations over WebSockets: graphql-transport-ws
//! (<https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md>).
//!
//! async-graphql has this protocol too, but with other close codes, with errors as results, and without a limit on the
//! operations of a connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use async_graphql::Request;
use async_graphql::parser::types::OperationType;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::stream::{BoxStream, Peekable};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::Client;
use ipfrs_middleware::auth::Caller;
use ipfrs_middleware::json_object::{self, Object};
use ipfrs_middleware::websocket::{Disconnected, HandshakeError, Incoming, WebSocket};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};

use super::GraphQl;
use crate::error::request_error;
use crate::json;
use crate::operation::{Answer, Executor};

/// Subprotocol of the connection.
const PROTOCOL: &str = "graphql-transport-ws";

/// Time for the first message.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of the ID of an operation, in bytes.
const MAX_ID_BYTES: usize = 128;

/// A message of the client.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Message {
    ConnectionInit {
        /// May have the token as `Authorization`, because browsers send no headers of scripts.
        #[serde(default)]
        payload: Option<Map<String, Value>>,
    },
    Ping {
        #[serde(default)]
        payload: Option<Map<String, Value>>,
    },
    Pong {
        #[serde(default, rename = "payload")]
        _payload: Option<Map<String, Value>>,
    },
    Subscribe {
        id: String,
        payload: Object<Box<Request>>,
    },
    Complete {
        id: String,
    },
}

/// A message to the client.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Reply<'a> {
    ConnectionAck,
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<Map<String, Value>>,
    },
    Next {
        id: &'a str,
        payload: &'a Answer,
    },
    Error {
        id: &'a str,
        payload: &'a [async_graphql::ServerError],
    },
    Complete {
        id: &'a str,
    },
}

/// A running operation.
struct Running {
    id: String,
    answers: Peekable<BoxStream<'static, Answer>>,
    is_subscription: bool,
    has_begun: bool,
}

/// End of a connection: a close code and a reason.
struct Close(u16, String);

/// Accepts a client. The close code explains a missing subprotocol.
pub(super) async fn connect(State(graphql): State<GraphQl>, request: axum::extract::Request) -> Response {
    let shared = graphql.clone();
    let caller = Caller::of(request.extensions());
    let client = request.extensions().get::<Client>().copied().unwrap_or_default();
    let request_id = super::id_of(request.headers());
    let accepted = graphql.0.websockets.accept(&request, &[PROTOCOL], move |mut socket, protocol| async move {
        if protocol.is_none() {
            return socket.close(4406.into(), "Subprotocol not acceptable").await;
        }
        let draining = shared.0.websockets.lifecycle().clone();
        let mut session = Session {
            graphql: shared,
            caller,
            client,
            request_id,
            is_acknowledged: false,
            running: Vec::new(),
            is_paid_at: Instant::now(),
        };
        match session.run(&mut socket, draining.drain_begun()).await {
            Some(Close(code, reason)) => socket.close(code.into(), &reason).await,
            None => socket.finish().await,
        }
    });
    match accepted {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => refused(&error),
    }
}

fn refused(error: &HandshakeError) -> Response {
    (error.status(), error.headers(), format!("{}\n", error.text())).into_response()
}

/// The state of a connection.
struct Session {
    graphql: GraphQl,
    caller: Caller,
    client: Client,
    /// ID of the handshake.
    request_id: String,
    is_acknowledged: bool,
    /// The operation that was served last is at the end, so that a busy one does not starve the others.
    running: Vec<Running>,
    /// Time from which the rate limits permit another result.
    is_paid_at: Instant,
}

impl Session {
    /// Serves a client until it disconnects. Returns how to close the connection if it is still open.
    async fn run(&mut self, socket: &mut WebSocket, draining: impl Future<Output = ()>) -> Option<Close> {
        let mut draining = pin!(draining);
        let init_deadline = Instant::now() + INIT_TIMEOUT;
        loop {
            let caller = self.caller.clone();
            let must_wait = self.is_paid_at > Instant::now();
            let outcome = tokio::select! {
                incoming = socket.receive() => self.handle(socket, incoming?).await,
                (id, answer) = next(&mut self.running, must_wait) => self.send(socket, id, answer).await,
                () = sleep_until(self.is_paid_at), if must_wait => Ok(()),
                () = sleep_until(init_deadline), if !self.is_acknowledged => {
                    return Some(Close(4408, "Connection initialisation timeout".to_owned()));
                }
                () = caller.ended() => return Some(Close(4403, "Forbidden: the credentials have ended".to_owned())),
                () = &mut draining => return Some(Close(1001, "the daemon is shutting down".to_owned())),
            };
            match outcome {
                Ok(()) => {}
                Err(Some(close)) => return Some(close),
                Err(None) => return None,
            }
        }
    }

    /// Processes a message. An error ends the connection.
    async fn handle(&mut self, socket: &mut WebSocket, incoming: Incoming) -> Result<(), Option<Close>> {
        let Incoming::Text(text) = incoming else {
            return Err(Some(Close(4400, "messages are JSON text".to_owned())));
        };
        let message =
            json_object::parse(text.as_bytes()).map_err(|why| Some(Close(4400, format!("Invalid message: {why}"))))?;
        // An operation costs as much as a request.
        if !matches!(message, Message::Subscribe { .. }) {
            self.pay_control(socket, text.len());
        }
        match message {
            Message::ConnectionInit { .. } if self.is_acknowledged => {
                Err(Some(Close(4429, "Too many initialisation requests".to_owned())))
            }
            Message::ConnectionInit { payload } => {
                self.identify(payload.as_ref()).await?;
                self.is_acknowledged = true;
                self.reply(socket, &Reply::ConnectionAck).await
            }
            Message::Ping { payload } => self.reply(socket, &Reply::Pong { payload }).await,
            Message::Pong { .. } => Ok(()),
            Message::Complete { id } => {
                self.running.retain(|running| running.id != id);
                Ok(())
            }
            Message::Subscribe { .. } if !self.is_acknowledged => Err(Some(Close(4401, "Unauthorized".to_owned()))),
            Message::Subscribe { id, .. } if id.is_empty() || id.len() > MAX_ID_BYTES => {
                Err(Some(Close(4400, format!("Invalid message: an id has 1 to {MAX_ID_BYTES} bytes"))))
            }
            Message::Subscribe { id, .. } if self.running.iter().any(|running| running.id == id) => {
                Err(Some(Close(4409, format!("Subscriber for {id} already exists"))))
            }
            Message::Subscribe { id, payload } => self.subscribe(socket, id, *payload.0, text.len()).await,
        }
    }

    /// Reads the token in the first message, unless the handshake had credentials.
    async fn identify(&mut self, payload: Option<&Map<String, Value>>) -> Result<(), Option<Close>> {
        if self.caller.require_any().is_ok() {
            return Ok(());
        }
        let forbidden = |error: Error| Some(Close(4403, format!("Forbidden: {}", error.public_message())));
        let token = payload.and_then(|payload| payload.get("Authorization").or_else(|| payload.get("authorization")));
        let token = token.and_then(Value::as_str);
        match token {
            Some(token) => {
                self.caller = self.graphql.0.rules.auth.identify_token(token, self.client).await.map_err(forbidden)?;
                Ok(())
            }
            None => self.caller.require_any().map_err(forbidden),
        }
    }

    /// Pays for a message that begins no operation. Beyond the rate limits, the next message of the client waits.
    fn pay_control(&self, socket: &mut WebSocket, bytes: usize) {
        socket.delay_next(self.graphql.0.rules.rate_limits.pay_control(self.client, Some(&self.caller), bytes));
    }

    /// Begins an operation, for which the rate limits take a token as for a request. Its message has `bytes`.
    async fn subscribe(
        &mut self,
        socket: &mut WebSocket,
        id: String,
        request: Request,
        bytes: usize,
    ) -> Result<(), Option<Close>> {
        if let Err(error) = self.graphql.0.rules.rate_limits.take(self.client, Some(&self.caller)) {
            self.pay_control(socket, bytes);
            return self.reply(socket, &Reply::Error { id: &id, payload: &[request_error(&error)] }).await;
        }
        let executor: &Executor = &self.graphql.0.executor;
        let most = executor.config().max_operations_per_connection;
        let parsed = if self.running.len() >= most {
            Err(request_error(&Error::new(
                ErrorKind::RateLimited,
                format!(
                    "the connection has {most} operations (graphql.max_operations_per_connection): complete one, or open \
                     another connection"
                ),
            )))
        } else {
            executor.parse(request, &self.caller).and_then(|operation| match operation.check(&self.caller) {
                Ok(()) => Ok(operation.with_request_id(&self.request_id)),
                Err(error) => Err(request_error(&error)),
            })
        };
        match parsed {
            Ok(operation) => {
                let is_subscription = operation.kind == OperationType::Subscription;
                let mut answers = executor.stream(operation).peekable();
                // Events from now on belong to the subscription, whatever the client does next.
                let _begun = futures::poll!(Pin::new(&mut answers).peek());
                self.running.push(Running { id, answers, is_subscription, has_begun: false });
                Ok(())
            }
            Err(error) => self.reply(socket, &Reply::Error { id: &id, payload: &[error] }).await,
        }
    }

    /// Sends a result, or the end of an operation.
    async fn send(&mut self, socket: &mut WebSocket, id: String, answer: Option<Answer>) -> Result<(), Option<Close>> {
        let Some(answer) = answer else {
            self.running.retain(|running| running.id != id);
            return self.reply(socket, &Reply::Complete { id: &id }).await;
        };
        let Some(running) = self.running.iter_mut().find(|running| running.id == id) else { return Ok(()) };
        let is_first = !std::mem::replace(&mut running.has_begun, true);
        // The operation was refused before it was executed, or the source of its events could not be created.
        let has_no_source = running.is_subscription && answer.has_no_data() && !answer.is_lagged();
        let is_refused = is_first && (!answer.is_executed() || has_no_source);
        if is_refused {
            self.running.retain(|running| running.id != id);
            return self.reply(socket, &Reply::Error { id: &id, payload: &answer.errors }).await;
        }
        let next = Reply::Next { id: &id, payload: &answer };
        let text = match json::limited(&next, "", "", answer.budget.as_deref()) {
            // The response holds its memory until it is sent.
            Ok(json) => String::from_utf8(json).unwrap_or_default(),
            Err(error) => json::to_string(&Reply::Next { id: &id, payload: &Answer::failed(&error) }),
        };
        let wait = self.graphql.0.rules.rate_limits.pay_sent(self.client, Some(&self.caller), text.len());
        self.is_paid_at = Instant::now() + wait;
        self.send_text(socket, text).await
    }

    async fn reply(&mut self, socket: &mut WebSocket, reply: &Reply<'_>) -> Result<(), Option<Close>> {
        self.send_text(socket, json::to_string(reply)).await
    }

    async fn send_text(&mut self, socket: &mut WebSocket, text: String) -> Result<(), Option<Close>> {
        self.graphql.0.sent.inc();
        socket.send(text).await.map_err(|Disconnected| None)
    }
}

/// Waits for a result of any operation, or for the end of one. While results `must_wait`, operations run, because their
/// time is limited, but none ends the wait.
async fn next(running: &mut Vec<Running>, must_wait: bool) -> (String, Option<Answer>) {
    poll_fn(|cx| {
        if must_wait {
            for running in running.iter_mut() {
                let _answer = Pin::new(&mut running.answers).poll_peek(cx);
            }
            return Poll::Pending;
        }
        let ready =
            running.iter_mut().enumerate().find_map(|(index, running)| match running.answers.poll_next_unpin(cx) {
                Poll::Ready(answer) => Some((index, answer)),
                Poll::Pending => None,
            });
        let Some((index, answer)) = ready else { return Poll::Pending };
        let served = running.remove(index);
        let id = served.id.clone();
        running.push(served);
        Poll::Ready((id, answer))
    })
    .await
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn operations_run_while_results_wait() {
        let (ends, ended) = oneshot::channel();
        let answer = async {
            yield_now().await;
            ends.send(()).unwrap();
            Answer::failed(&Error::invalid("refused"))
        };
        let answers = stream::once(answer).boxed().peekable();
        let id = "1".to_owned();
        let mut running = vec![Running { id, answers, is_subscription: false, has_begun: true }];
        tokio::select! {
            _ = next(&mut running, true) => panic!("the result did not wait"),
            ended = ended => ended.unwrap(),
        }
        let (id, answer) = next(&mut running, false).now_or_never().unwrap();
        assert!(id == "1" && answer.is_some());
    }
}

//! One connection, which sends one object.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::Client;
use ipfrs_middleware::json_object;
use ipfrs_middleware::websocket::{Disconnected, Incoming, WebSocket, WebSocketCloseCode};
use ipfrs_node::IngestStore;
use tokio::time::{Instant, sleep_until};

use super::memory::{GATHERED_BYTES, HeldMemory, MESSAGE_BYTES};
use super::messages::{Request, Response};
use super::writer::{Batch, Sink, Stored, Writer};
use super::{Place, Target};
use crate::access::SessionAudit;
use crate::state::AppState;

/// Reason why the reading of messages ended.
enum End {
    /// The client ended the object.
    Ended,
    /// The client closed the connection, or it broke.
    Closed,
    /// The client sent nothing for too long.
    Idle,
    Draining,
    /// The client sent something else than binary messages and `end`, or a message that is too long.
    Invalid(Error),
    /// The writer has failed.
    Failed,
}

/// Serves a client until its object ends, and writes its line of the audit log.
pub(super) async fn run(state: AppState, mut socket: WebSocket, client: Client, target: Target, audit: SessionAudit) {
    let (store, name) = (target.place.name(), target.name.as_str());
    let sink = match Sink::open(&state.node, &state.memory, &target).await {
        Ok(sink) => sink,
        Err(error) => {
            audit.end(name, Some(&error));
            return fail(&mut socket, &error).await;
        }
    };
    let ready = Response::Ready { store, name, path: path(&state, &target), bytes: sink.bytes() };
    if socket.send(ready.text()).await == Err(Disconnected) {
        return;
    }
    let mut writer = Writer::start(sink);
    let end = read(&state, &mut socket, client, &mut writer).await;
    let Writer { queue, stored: progress, task, .. } = writer;
    drop(queue);
    // Messages that have arrived are stored even if the client is gone.
    let outcome =
        task.await.unwrap_or_else(|e| Err(Error::internal("a task that stores messages failed").with_source(e)));
    let stored = match outcome {
        Ok(stored) => stored,
        Err(error) => {
            // Messages before one that does not fit are stored.
            let stored = *progress.borrow();
            if stored.messages > 0 && matches!(end, End::Ended) {
                let _ = socket.send(ack(stored)).await;
            }
            audit.end(name, Some(&error));
            return fail(&mut socket, &error).await;
        }
    };
    let object = stored.cid.map_or_else(|| name.to_owned(), |cid| format!("{name} {cid}"));
    let invalid = if let End::Invalid(error) = &end { Some(error) } else { None };
    audit.end(&object, invalid);
    if !matches!(end, End::Ended | End::Closed) {
        // The client learns what it must send again.
        let _ = socket.send(ack(stored)).await;
    }
    match end {
        End::Ended => {
            let Stored { messages, bytes, cid } = stored;
            let (path, cid) = (path(&state, &target), cid.map(|cid| cid.to_string()));
            let response = Response::Stored { store, name, path, cid, messages, bytes };
            if socket.send(response.text()).await.is_ok() {
                socket.close(WebSocketCloseCode::Normal, "").await;
            }
        }
        End::Closed => socket.finish().await,
        End::Idle => {
            let seconds = state.node.config().ingest.idle_seconds;
            let reason = format!("no message arrived for {seconds} s (ingest.idle_seconds)");
            socket.close(WebSocketCloseCode::Policy, &reason).await;
        }
        End::Draining => socket.close(WebSocketCloseCode::Away, "the daemon is shutting down").await,
        End::Invalid(error) => fail(&mut socket, &error).await,
        End::Failed => {}
    }
}

/// Passes messages to the writer, and sends what it has stored.
async fn read(state: &AppState, socket: &mut WebSocket, client: Client, writer: &mut Writer) -> End {
    let memory = state.ingest_memory.of_connection(client);
    let idle = Duration::from_secs(state.node.config().ingest.idle_seconds);
    let mut last_message = Instant::now();
    let mut waiting: Option<(Vec<Bytes>, usize)> = None;
    // Memory of those, which then wait for the queue.
    let mut held: Option<HeldMemory> = None;
    let mut end: Option<End> = None;
    loop {
        if waiting.is_none()
            && let Some(end) = end.take()
        {
            return end;
        }
        let size = waiting.as_ref().map_or(0, |(_, size)| *size);
        // A client that the rate limits make wait is not idle.
        let idle_since = socket.permitted_from().map_or(last_message, |time| time.max(last_message));
        tokio::select! {
            biased;
            changed = writer.stored.changed() => {
                if changed.is_err() {
                    return End::Failed;
                }
                let stored = *writer.stored.borrow_and_update();
                if socket.send(ack(stored)).await == Err(Disconnected) {
                    return End::Closed;
                }
            }
            taken = memory.take(size), if waiting.is_some() && held.is_none() => {
                held = Some(taken);
                writer.is_batch_waiting.store(true, Ordering::Release);
            }
            permit = memory.queue(size), if held.is_some() => {
                let (Some(permit), Some(held), Some((messages, _))) = (permit, held.take(), waiting.take()) else {
                    return End::Failed;
                };
                // First: a writer that takes this batch before would not commit, but wait for another one.
                writer.is_batch_waiting.store(false, Ordering::Release);
                if writer.queue.send(Batch { messages, memory: held.queued(permit) }).is_err() {
                    return End::Failed;
                }
            }
            incoming = socket.receive(), if waiting.is_none() => {
                last_message = Instant::now();
                let (messages, size, ended) = gather(socket, incoming);
                end = ended;
                if !messages.is_empty() {
                    waiting = Some((messages, size));
                }
            }
            () = sleep_until(idle_since + idle), if waiting.is_none() => return End::Idle,
            () = state.lifecycle.drain_begun(), if waiting.is_none() => return End::Draining,
        }
    }
}

/// Returns a message with those that have arrived after it, their size, and the end if they are the last ones.
fn gather(socket: &mut WebSocket, first: Option<Incoming>) -> (Vec<Bytes>, usize, Option<End>) {
    let (mut messages, mut size) = (Vec::new(), 0);
    let mut next = first;
    loop {
        match next {
            None => {
                let end = socket.take_too_long().map_or(End::Closed, End::Invalid);
                return (messages, size, Some(end));
            }
            Some(Incoming::Binary(bytes)) => {
                size += bytes.len() + MESSAGE_BYTES;
                messages.push(bytes);
            }
            Some(Incoming::Text(text)) => {
                let end = json_object::parse::<Request>(text.as_bytes()).map_or_else(
                    |e| {
                        let form = r#"send binary messages, and {"type":"end"} as text"#;
                        End::Invalid(Error::invalid(format!("{e}: {form}")))
                    },
                    |Request::End {}| End::Ended,
                );
                return (messages, size, Some(end));
            }
        }
        if size >= GATHERED_BYTES {
            return (messages, size, None);
        }
        match socket.receive().now_or_never() {
            Some(incoming) => next = incoming,
            None => return (messages, size, None),
        }
    }
}

fn ack(stored: Stored) -> String {
    Response::Ack { messages: stored.messages, bytes: stored.bytes }.text()
}

/// Returns the path of the object: of a mutable file, or of a file on the disk.
fn path(state: &AppState, target: &Target) -> Option<String> {
    match target.place {
        Place::Memory => None,
        Place::Durable(IngestStore::Ipfs) => Some(format!("/ingest/{}", target.name)),
        Place::Durable(IngestStore::FileSystem) => {
            Some(state.node.repo().join("ingest").join(target.name.as_str()).to_string_lossy().into_owned())
        }
    }
}

/// Reports an error and closes the connection.
async fn fail(socket: &mut WebSocket, error: &Error) {
    let code = match error.kind() {
        ErrorKind::TooLarge => WebSocketCloseCode::Size,
        ErrorKind::InvalidInput => WebSocketCloseCode::Unsupported,
        ErrorKind::Conflict | ErrorKind::Forbidden => WebSocketCloseCode::Policy,
        ErrorKind::RateLimited | ErrorKind::NoSpace | ErrorKind::Unavailable => WebSocketCloseCode::Again,
        _ => WebSocketCloseCode::Error,
    };
    if socket.send(Response::error(error).text()).await.is_ok() {
        socket.close(code, &error.public_message()).await;
    }
}

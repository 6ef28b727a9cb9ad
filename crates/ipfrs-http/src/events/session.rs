//! One client of `/ws`, with its subscriptions.

use std::future::pending;

use bytes::Bytes;
use futures::future::select_all;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::websocket::{Disconnected, Incoming, WebSocket, WebSocketCloseCode};
use ipfrs_node::{Delivered, EventWatch, Topic};
use tokio::time::{Instant, sleep_until};

use super::filter::Filter;
use super::json;
use super::protocol::{self, Id, Request, Response};
use crate::state::AppState;

/// A subscription to a topic.
struct Subscription {
    watch: EventWatch,
    filter: Filter,
}

/// The subscriptions of a client, at most one to each topic. The one that was served last is at the end, so that a busy
/// topic does not starve the others.
type Subscriptions = Vec<(Topic, Subscription)>;

/// Serves a client until it disconnects or the daemon drains.
pub(super) async fn run(state: AppState, mut socket: WebSocket) {
    let mut subscriptions = Subscriptions::new();
    // Time from which the rate limits permit further events.
    let mut is_paid_at = Instant::now();
    loop {
        let must_wait = is_paid_at > Instant::now();
        let sent = tokio::select! {
            // First, so that nothing is delivered once the credentials of the client have ended.
            biased;
            incoming = socket.receive() => match incoming {
                Some(incoming) => respond(&state, &mut socket, &mut subscriptions, incoming).await,
                None => return socket.finish().await,
            },
            (topic, delivered) = next(&mut subscriptions), if !must_wait => {
                let Some(served) = subscriptions.iter().position(|(known, _)| *known == topic) else { continue };
                let served = subscriptions.remove(served);
                let sent = deliver(&state, &mut socket, topic, &served.1.filter, delivered).await;
                subscriptions.push(served);
                sent.map(|bytes| is_paid_at = Instant::now() + socket.pay_sent(bytes))
            }
            () = sleep_until(is_paid_at), if must_wait => continue,
            () = state.lifecycle.drain_begun() => {
                return socket.close(WebSocketCloseCode::Away, "the daemon is shutting down").await;
            }
        };
        if sent == Err(Disconnected) {
            return;
        }
    }
}

/// Waits for events of any subscription.
async fn next(subscriptions: &mut Subscriptions) -> (Topic, Delivered) {
    if subscriptions.is_empty() {
        return pending().await;
    }
    let waiting = subscriptions
        .iter_mut()
        .map(|(topic, subscription)| Box::pin(async move { (*topic, subscription.watch.next().await) }));
    select_all(waiting).await.0
}

/// Sends events, or the number of events that are lost. Returns the number of bytes of the events.
async fn deliver(
    state: &AppState,
    socket: &mut WebSocket,
    topic: Topic,
    filter: &Filter,
    delivered: Delivered,
) -> Result<usize, Disconnected> {
    let (batch, first) = match delivered {
        Delivered::Events(batch, first) => (batch, first),
        Delivered::Lagged(missed) => {
            let lagged = Response::Lagged { topic: topic.name(), missed: Some(missed) };
            return socket.send(lagged.text()).await.map(|()| 0);
        }
    };
    let frames = batch.encoded(|events| json::frames(topic, events));
    let start = |index: usize| index.checked_sub(1).map_or(0, |before| frames.ends[before]);
    let (bytes, count) = if filter.is_empty() {
        (frames.bytes.slice(start(first)..), batch.events.len() - first)
    } else {
        let passing = (first..batch.events.len()).filter(|index| filter.passes(&batch.events[*index].data));
        let mut bytes = Vec::new();
        let count =
            passing.map(|index| bytes.extend_from_slice(&frames.bytes[start(index)..frames.ends[index]])).count();
        (Bytes::from(bytes), count)
    };
    let sent = bytes.len();
    if count > 0 {
        socket.send_frames(bytes).await?;
        state.sent_messages.of(topic).inc_by(count as u64);
    }
    Ok(sent)
}

/// Processes a message of the client.
async fn respond(
    state: &AppState,
    socket: &mut WebSocket,
    subscriptions: &mut Subscriptions,
    incoming: Incoming,
) -> Result<(), Disconnected> {
    let request = match &incoming {
        Incoming::Text(text) => protocol::parse(text),
        Incoming::Binary(_) => Err(Error::invalid("the message is binary: send JSON as text")),
    };
    match request {
        Ok(Request::Subscribe { topic, filter, after, instance, id }) => {
            let own = state.node.events_instance();
            // Numbers of another process mean nothing here: how many events were missed is unknown.
            let is_foreign = instance.is_some_and(|instance| instance != own);
            let subscribed = subscribe(state, &topic, &filter.unwrap_or_default(), after.filter(|_| !is_foreign));
            let (topic, subscription) = match subscribed {
                Ok(subscribed) => subscribed,
                Err(e) => return refuse(socket, &e, id).await,
            };
            let seq = subscription.watch.seen();
            subscriptions.retain(|(known, _)| *known != topic);
            subscriptions.push((topic, subscription));
            socket.send(Response::Subscribed { topic: topic.name(), seq, instance: &own, id }.text()).await?;
            if is_foreign {
                socket.send(Response::Lagged { topic: topic.name(), missed: None }.text()).await?;
            }
            Ok(())
        }
        Ok(Request::Unsubscribe { topic, id }) => match topic.parse::<Topic>() {
            Ok(topic) => {
                subscriptions.retain(|(known, _)| *known != topic);
                socket.send(Response::Unsubscribed { topic: topic.name(), id }.text()).await
            }
            Err(e) => refuse(socket, &e, id).await,
        },
        Ok(Request::Ping { id }) => socket.send(Response::Pong { id }.text()).await,
        Ok(Request::Pong { .. }) => Ok(()),
        Err(e) => {
            let id = match &incoming {
                Incoming::Text(text) => protocol::id_of(text),
                Incoming::Binary(_) => None,
            };
            refuse(socket, &e, id).await
        }
    }
}

fn subscribe(
    state: &AppState,
    topic: &str,
    filter: &serde_json::Map<String, serde_json::Value>,
    after: Option<u64>,
) -> Result<(Topic, Subscription)> {
    let topic: Topic = topic.parse()?;
    let filter = Filter::read(topic, filter)?;
    Ok((topic, Subscription { watch: state.node.watch_events(topic, after)?, filter }))
}

async fn refuse(socket: &mut WebSocket, error: &Error, id: Option<Id>) -> Result<(), Disconnected> {
    socket.send(Response::error(error, id).text()).await
}

//! Limits of requests: how many at the same time, how long one may take, how large content may be.
//!
//! How long a block is waited for is the Node's to limit, and how long a client may leave an answer lying the connection's.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::header::RANGE;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{Held, Limit, NoPermit, Node};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::body::broken_off;
use crate::error::{GatewayError, Problem, RpcError};
use crate::gateway;
use crate::request_id::RequestId;
use crate::router::AppState;

/// Routes by which an operator looks at a daemon that is busy, and stops it.
const ALWAYS_ANSWERED: [&str; 5] = ["/health", "/health/live", "/health/ready", "/metrics", "/api/v0/shutdown"];

/// Whether requests of a route take a [slot](ipfrs_node::RequestSlot). Answers that are ready take none: they hold nothing,
/// and cost no more than refusing them.
pub(crate) fn is_counted(endpoint: &str) -> bool {
    !ALWAYS_ANSWERED.contains(&endpoint)
}

/// 429 in the words of the front-end that `endpoint` belongs to.
pub(crate) fn too_many(state: &AppState, refused: NoPermit, endpoint: &str, id: &HeaderValue) -> Response {
    let error = state.slots.refusal(refused);
    if endpoint.starts_with("/api/v0") {
        RpcError::Command(error).into_response()
    } else if endpoint.starts_with("/v1") {
        Problem::new(error, &RequestId(id.clone())).into_response()
    } else {
        let mut response = GatewayError(error).into_response();
        if [gateway::ROUTE, gateway::IPNS_ROUTE].contains(&endpoint) {
            gateway::cors::add(response.headers_mut());
        }
        response
    }
}

/// What `answer` gives, all of it within `gateway.max_request_seconds`: 504, which `refuse` renders, when its head does not
/// come in time, broken off when its end does not. An answer that is given at once costs no timer.
pub(crate) async fn in_time(
    state: &AppState,
    answer: impl Future<Output = Response>,
    refuse: impl FnOnce(Error) -> Response,
) -> Response {
    let longest = Duration::from_secs(state.config.max_request_seconds);
    let end = Instant::now() + longest;
    let Ok(response) = timeout_at(end, answer).await else { return refuse(over_time(&state.node, longest)) };
    if response.body().is_end_stream() {
        return response;
    }
    let node = state.node.clone();
    response.map(|inner| Body::new(Timed { inner, node, longest, end, timer: None }))
}

fn over_time(node: &Node, longest: Duration) -> Error {
    node.count_refusal(Limit::RequestTime);
    let seconds = longest.as_secs();
    let what = format!("the request took longer than {seconds} s (gateway.max_request_seconds = {seconds})");
    Error::new(ErrorKind::Timeout, format!("{what}: ask for less at a time, with Range or entity-bytes"))
}

/// A body that is broken off when its time is over. A client that takes nothing is the connection's to give up: nobody
/// asks for more of its body.
struct Timed {
    inner: Body,
    node: Node,
    longest: Duration,
    end: Instant,
    /// Once the body has had to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let mut is_over = Instant::now() >= this.end;
        if !is_over {
            if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            let end = this.end;
            is_over = this.timer.get_or_insert_with(|| Box::pin(sleep_until(end))).as_mut().poll(cx).is_ready();
        }
        if !is_over {
            return Poll::Pending;
        }
        Poll::Ready(Some(Err(axum::Error::new(broken_off(over_time(&this.node, this.longest))))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response that has a permit. It breaks off where the permit was needed for others, because the client
/// took nothing.
pub(crate) struct Permitted {
    held: Held<Body>,
    /// Whether the client was told that the response was given up.
    has_failed: bool,
}

impl Permitted {
    pub(crate) fn new(held: Held<Body>) -> Self {
        Self { held, has_failed: false }
    }
}

impl HttpBody for Permitted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(polled) = self.held.poll(|body| Pin::new(body).poll_frame(cx)) {
            return polled;
        }
        if std::mem::replace(&mut self.has_failed, true) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err(axum::Error::new(broken_off(self.held.given_up())))))
    }

    fn is_end_stream(&self) -> bool {
        self.held.look(HttpBody::is_end_stream).unwrap_or(false)
    }

    fn size_hint(&self) -> SizeHint {
        self.held.look(HttpBody::size_hint).unwrap_or_default()
    }
}

/// Whether a path, as it is in a URL, has more names than are followed.
pub(crate) fn is_long(path: &str) -> bool {
    gateway::path::parts(path).count() > MAX_PATH_SEGMENTS
}

/// Refuses what is too large to be served as a file or an archive, whatever part of it is asked for: a client could ask for
/// part after part.
///
/// # Errors
/// [`ErrorKind::Gone`] over `gateway.max_deserialized_bytes`.
pub(crate) fn check_size(state: &AppState, size: u64) -> Result<()> {
    let most = state.config.max_deserialized_bytes;
    if most == 0 || size <= most {
        return Ok(());
    }
    Err(too_large_to_deserialise(&state.node, most))
}

/// Refuses ranges of files that are too large for these.
///
/// # Errors
/// [`ErrorKind::Unsupported`] over `gateway.max_range_request_bytes`.
pub(crate) fn check_range(state: &AppState, headers: &HeaderMap, size: u64) -> Result<()> {
    let most = state.config.max_range_request_bytes;
    if most == 0 || size <= most || !headers.contains_key(RANGE) {
        return Ok(());
    }
    state.node.count_refusal(Limit::RangeRequestBytes);
    let what = format!("ranges of files larger than {most} bytes are not served");
    let limit = format!("gateway.max_range_request_bytes = {most}");
    let remedy = "ask for the whole file, or for the blocks of the range with ?format=car&entity-bytes=FROM:TO";
    Err(Error::unsupported(format!("{what} ({limit}): {remedy}")))
}

fn too_large_to_deserialise(node: &Node, most: u64) -> Error {
    node.count_refusal(Limit::DeserializedBytes);
    let what = format!("content larger than {most} bytes is served in forms that can be verified only");
    let limit = format!("gateway.max_deserialized_bytes = {most}");
    Error::new(
        ErrorKind::Gone,
        format!("{what} ({limit}): ask for it with ?format=car, or block by block with ?format=raw"),
    )
}

/// An archive whose length is not known before its end, broken off when it is too large to be served as one.
pub(crate) fn bounded(
    state: &AppState,
    pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let (node, most) = (state.node.clone(), state.config.max_deserialized_bytes);
    let is_over = move |sent: u64| most > 0 && sent > most;
    pieces.scan(0_u64, move |sent, piece| {
        let was_over = is_over(*sent);
        *sent = sent.saturating_add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        std::future::ready(match (was_over, is_over(*sent)) {
            // Whoever gathers pieces asks for more of them behind the error, which is told, and counted, once.
            (true, _) => None,
            (false, true) => Some(Err(too_large_to_deserialise(&node, most))),
            (false, false) => Some(piece),
        })
    })
}

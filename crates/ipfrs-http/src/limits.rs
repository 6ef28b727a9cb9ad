//! Limits of requests: how many at the same time, how long one may take, how large content may be.
//!
//! How long a block is waited for is the Node's to limit. How long a response may take behind its head, and how long a
//! client may take nothing of it, are the connection's.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::HeaderValue;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{Held, Limit, NoPermit, Node, RequestDeadline};

use crate::body::broken_off;
use crate::error::{GatewayError, OverLimit, Problem, RpcError};
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

/// Counts a response to a request that struck a limit of its body, or found shared work full. A DAG over a bound
/// was counted where it was read, too many requests are counted where permits are given, and bodies that get no
/// memory where that is taken.
pub(crate) fn count(state: &AppState, response: &mut Response, has_body: bool) {
    match response.extensions_mut().remove() {
        Some(OverLimit(ErrorKind::RateLimited)) => state.node.count_refusal(Limit::Capacity),
        Some(OverLimit(ErrorKind::TooLarge)) if has_body => state.node.count_refusal(Limit::BodyBytes),
        _ => {}
    }
}

/// Returns the response if its head comes before the `deadline`, else 504, which `refuse` renders. The connection cuts
/// a response that takes longer behind its head. A response that is there at once costs no timer, and one without a
/// connection has no deadline.
pub(crate) async fn in_time(
    deadline: Option<RequestDeadline>,
    answer: impl Future<Output = Response>,
    refuse: impl FnOnce(Error) -> Response,
) -> Response {
    let Some(deadline) = deadline else { return answer.await };
    let (mut answer, mut timer) = (pin!(answer), None);
    let response = poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => deadline.poll_over(&mut timer, Duration::ZERO, cx).map(|()| None),
    });
    match response.await {
        Some(response) => response,
        None => refuse(deadline.strike()),
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

/// Advice to a client that asks for content which is too large: it depends on the route.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Remedy {
    /// On the gateway.
    Gateway,
    /// Under `/v1/stream/download`.
    Download,
    /// Under `/v1/tensor`.
    Tensor,
    /// In the RPC.
    Rpc,
}

impl Remedy {
    fn of_content(self) -> &'static str {
        match self {
            Self::Gateway => "ask for it with ?format=car, or block by block with ?format=raw",
            Self::Download => "ask for /ipfs/{cid}?format=car, or block by block with ?format=raw",
            Self::Tensor => "ask for parts of it with slice=, or for /ipfs/{cid}?format=car",
            Self::Rpc => "use dag/export for a CAR of it, or block/get for its blocks",
        }
    }

    fn of_range(self) -> &'static str {
        match self {
            Self::Gateway => {
                "ask for the whole file, or for the blocks of the range with ?format=car&entity-bytes=FROM:TO"
            }
            Self::Download => {
                "ask for the whole file, or for the blocks of the range with /ipfs/{cid}?format=car&entity-bytes=FROM:TO"
            }
            Self::Tensor => "ask for the whole tensor, or for parts of it with slice=",
            Self::Rpc => "ask for the whole file, or for its blocks with block/get",
        }
    }
}

/// Refuses what is too large to be served as a file or an archive, whatever part of it is asked for: a client could ask for
/// part after part.
///
/// # Errors
/// [`ErrorKind::Gone`] over `gateway.max_deserialized_bytes`.
pub(crate) fn check_size(state: &AppState, size: u64, remedy: Remedy) -> Result<()> {
    let most = state.config.max_deserialized_bytes;
    if most == 0 || size <= most {
        return Ok(());
    }
    Err(too_large_to_deserialise(&state.node, most, remedy))
}

/// Refuses ranges of files that are too large for these.
///
/// # Errors
/// [`ErrorKind::Unsupported`] over `gateway.max_range_request_bytes`.
pub(crate) fn check_range(state: &AppState, is_range: bool, size: u64, remedy: Remedy) -> Result<()> {
    let most = state.config.max_range_request_bytes;
    if most == 0 || size <= most || !is_range {
        return Ok(());
    }
    state.node.count_refusal(Limit::RangeRequestBytes);
    let what = format!("ranges of files larger than {most} bytes are not served");
    let limit = format!("gateway.max_range_request_bytes = {most}");
    Err(Error::unsupported(format!("{what} ({limit}): {}", remedy.of_range())))
}

fn too_large_to_deserialise(node: &Node, most: u64, remedy: Remedy) -> Error {
    node.count_refusal(Limit::DeserializedBytes);
    let what = format!("content larger than {most} bytes is served in forms that can be verified only");
    let limit = format!("gateway.max_deserialized_bytes = {most}");
    Error::new(ErrorKind::Gone, format!("{what} ({limit}): {}", remedy.of_content()))
}

/// An archive whose length is not known before its end, broken off when it is too large to be served as one.
pub(crate) fn bounded(
    state: &AppState,
    pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
    remedy: Remedy,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let (node, most) = (state.node.clone(), state.config.max_deserialized_bytes);
    let is_over = move |sent: u64| most > 0 && sent > most;
    pieces.scan(0_u64, move |sent, piece| {
        let was_over = is_over(*sent);
        *sent = sent.saturating_add(piece.as_ref().map_or(0, |piece| piece.len() as u64));
        std::future::ready(match (was_over, is_over(*sent)) {
            // Whoever gathers pieces asks for more of them behind the error, which is told, and counted, once.
            (true, _) => None,
            (false, true) => Some(Err(too_large_to_deserialise(&node, most, remedy))),
            (false, false) => Some(piece),
        })
    })
}

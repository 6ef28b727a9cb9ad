//! Limits of requests: their number, their duration, and the size of content.
//!
//! The Node limits how long a request waits for a block. The connection limits how long a response may take after its
//! head, and how long a client may stop reading it.

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

/// Routes that an operator needs to inspect and stop a busy daemon.
const ALWAYS_ANSWERED: [&str; 5] = ["/health", "/health/live", "/health/ready", "/metrics", "/api/v0/shutdown"];

/// Whether requests of a route take a [slot](ipfrs_node::RequestSlot). Cached responses take none: they hold no
/// resources, and sending them costs no more than refusing the request.
pub(crate) fn is_counted(endpoint: &str) -> bool {
    !ALWAYS_ANSWERED.contains(&endpoint)
}

/// Returns a 429 response in the format of the API that `endpoint` belongs to.
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

/// Counts a response to a request whose body exceeded a limit, or that found shared work at capacity. Other limits
/// are counted elsewhere: DAG limits where the DAG is read, too many requests where permits are granted, and body
/// memory where it is reserved.
pub(crate) fn count(state: &AppState, response: &mut Response, has_body: bool) {
    match response.extensions_mut().remove() {
        Some(OverLimit(ErrorKind::RateLimited)) => state.node.count_refusal(Limit::Capacity),
        Some(OverLimit(ErrorKind::TooLarge)) if has_body => state.node.count_refusal(Limit::BodyBytes),
        _ => {}
    }
}

/// Returns the response if its head is available before the `deadline`, else 504, rendered by `refuse`. The
/// connection cuts off a response that takes longer after its head. A response that is available immediately needs no
/// timer, and a request without a connection has no deadline.
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

/// Body of a response that holds a permit. It fails if the permit is revoked for another request because the client
/// stopped reading.
pub(crate) struct Permitted {
    held: Held<Body>,
    /// Whether the body has already failed.
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

/// Whether a path, as written in a URL, has more segments than the gateway follows.
pub(crate) fn is_long(path: &str) -> bool {
    gateway::path::parts(path).count() > MAX_PATH_SEGMENTS
}

/// Advice for a client that requests content that is too large, by route.
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

/// Refuses content that is too large to be served as a file or an archive, even if the client requests only a part of
/// it: a client could otherwise fetch all of it in parts.
///
/// # Errors
/// [`ErrorKind::Gone`] above `gateway.max_deserialized_bytes`.
pub(crate) fn check_size(state: &AppState, size: u64, remedy: Remedy) -> Result<()> {
    let most = state.config.max_deserialized_bytes;
    if most == 0 || size <= most {
        return Ok(());
    }
    Err(too_large_to_deserialise(&state.node, most, remedy))
}

/// Refuses range requests for files above the size limit for ranges.
///
/// # Errors
/// [`ErrorKind::Unsupported`] above `gateway.max_range_request_bytes`.
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

/// Limits an archive of unknown length: the stream fails once it is too large to be served.
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
            // The caller that combines pieces polls again after the error. It must be returned and counted only once.
            (true, _) => None,
            (false, true) => Some(Err(too_large_to_deserialise(&node, most, remedy))),
            (false, false) => Some(piece),
        })
    })
}

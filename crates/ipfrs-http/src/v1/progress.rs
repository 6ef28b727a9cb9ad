//! `GET /v1/progress`: the running operations. `GET /v1/progress/{id}`: the progress of one operation as server-sent
//! events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{OperationId, OperationState, Progress};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::ToSchema;

use super::parameters::{self, InPath};
use crate::Lifecycle;
use crate::error::{self, Problem};
use crate::request_id::RequestId;
use crate::state::AppState;

/// Minimum time between two events.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time without an event after which a comment is sent, so that proxies do not consider the connection dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Default and maximum time to wait for an unknown operation, in seconds.
const WAIT_SECONDS: u64 = 3;
const MAX_WAIT_SECONDS: u64 = 60;

/// Reconnection delay of clients, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Header that asks proxies, such as nginx, to forward each event immediately.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Progress of an operation, as sent to clients.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProgressReport {
    operation_id: String,
    kind: &'static str,
    state: &'static str,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
    blocks: u64,
    rate_bytes_per_second: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    eta_seconds: Option<u64>,
    /// Content ID of the result, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    cid: Option<String>,
    /// Size of the result in bytes, once it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Code of the error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// The error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ProgressReport {
    pub(crate) fn of(progress: &Progress) -> Self {
        let mut report = Self {
            operation_id: progress.id.to_string(),
            kind: progress.kind.name(),
            state: progress.state.name(),
            bytes: progress.bytes,
            total: progress.total,
            blocks: progress.blocks,
            rate_bytes_per_second: progress.rate_bytes_per_second(),
            eta_seconds: progress.eta_seconds(),
            cid: None,
            size: None,
            code: None,
            error: None,
        };
        match &progress.state {
            OperationState::Running | OperationState::Paused => {}
            OperationState::Done { cid, size } => {
                (report.cid, report.size) = (Some(cid.to_string()), Some(*size));
            }
            OperationState::Failed { kind, message } => {
                let error = error::text(&Error::new(*kind, message.clone()));
                (report.code, report.error) = (Some(kind.code()), Some(error));
            }
        }
        report
    }
}

/// Response of `/v1/progress`.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunningOperations {
    operations: Vec<ProgressReport>,
}

/// Lists the operations that have not ended.
pub(super) async fn list(State(state): State<AppState>) -> Response {
    let operations = state.node.operations().iter().map(ProgressReport::of).collect();
    ([(CACHE_CONTROL, "no-store")], Json(RunningOperations { operations })).into_response()
}

/// `DELETE /v1/progress/{id}`: cancels an operation, and responds once it has ended.
pub(super) async fn cancel(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    InPath(operation): InPath,
) -> Result<StatusCode, Problem> {
    let cancelled = async { state.node.cancel_operation(&operation.parse()?).await };
    cancelled.await.map_err(|e| Problem::new(e, &id))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Streams the progress of one operation from its current state to its end. The stream ends after the last event. A
/// client that then reconnects, as `EventSource` does, gets 204: there are no more events.
pub(super) async fn follow(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    InPath(operation): InPath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let response = async {
        let wait = wait(&uri)?;
        let operation: OperationId = operation.parse()?;
        let progress = tokio::select! {
            progress = state.node.watch_operation(&operation, wait) => progress?,
            () = state.lifecycle.shutdown_requested() => {
                return Err(Error::new(ErrorKind::Unavailable, "the daemon is shutting down"));
            }
        };
        Ok(response(progress, &headers, state.lifecycle.clone()))
    };
    response.await.map_err(|e| Problem::new(e, &id))
}

/// Returns the time to wait for an unknown operation.
fn wait(uri: &Uri) -> Result<Duration> {
    let Some(text) = parameters::only(uri, "wait")? else { return Ok(Duration::from_secs(WAIT_SECONDS)) };
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_WAIT_SECONDS);
    let why = || Error::invalid(format!("invalid wait {text:?}: use a number of seconds from 0 to {MAX_WAIT_SECONDS}"));
    seconds.map(Duration::from_secs).ok_or_else(why)
}

fn response(progress: watch::Receiver<Progress>, headers: &HeaderMap, lifecycle: Lifecycle) -> Response {
    let seen = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let has_seen_end = {
        let now = progress.borrow();
        now.is_over() && seen.is_some_and(|seen| seen >= now.changes)
    };
    let headers = [(CACHE_CONTROL, "no-store"), (X_ACCEL_BUFFERING, "no"), (CONTENT_TYPE, "text/event-stream")];
    if has_seen_end {
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    let feed = Feed { progress, lifecycle, next: None, is_over: false };
    let events = stream::unfold(feed, |mut feed| async move {
        let piece = feed.piece().await?;
        Some((Ok::<_, Error>(piece), feed))
    });
    (headers, Body::from_stream(events)).into_response()
}

/// Source of the progress events of an operation.
struct Feed {
    progress: watch::Receiver<Progress>,
    lifecycle: Lifecycle,
    /// Earliest time of the next event; `None` before the first.
    next: Option<Instant>,
    is_over: bool,
}

impl Feed {
    /// Returns the next events, or a comment after a long time without events; `None` after the last.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut piece = Vec::with_capacity(512);
        if let Some(next) = self.next {
            let is_paused = self.progress.borrow().state == OperationState::Paused;
            tokio::select! {
                changed = self.progress.changed() => changed.ok()?,
                // A running operation may still end while the daemon drains, but one that waits for its client will
                // not.
                () = self.lifecycle.shutdown_requested(), if is_paused => return None,
                () = sleep(HEARTBEAT) => return Some(Bytes::from_static(b": still here\n\n")),
            }
            // The final state is sent without delay.
            drop(timeout_at(next, self.progress.wait_for(Progress::is_over)).await);
        } else {
            piece.extend_from_slice(RETRY);
        }
        let now = self.progress.borrow_and_update().clone();
        self.is_over = now.is_over();
        if self.next.is_none() || !self.is_over {
            // At the end, the number of the last change is reserved for the final event.
            event(&mut piece, "progress", now.changes - u64::from(self.is_over), &now);
        }
        if self.is_over {
            let name = if matches!(now.state, OperationState::Done { .. }) { "done" } else { "error" };
            event(&mut piece, name, now.changes, &now);
        }
        self.next = Some(Instant::now() + INTERVAL);
        Some(piece.into())
    }
}

fn event(out: &mut Vec<u8>, name: &str, id: u64, progress: &Progress) {
    // Strings and numbers always serialize, and the JSON has no line breaks.
    let data = serde_json::to_string(&ProgressReport::of(progress)).unwrap_or_default();
    out.extend_from_slice(format!("id: {id}\nevent: {name}\ndata: {data}\n\n").as_bytes());
}

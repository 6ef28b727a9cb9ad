//! Health and metrics endpoints.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_middleware::auth::{Caller, Scope};
use prometheus::{Encoder, TextEncoder};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{self, GatewayError};
use crate::gateway::hosted::PublicHost;
use crate::openmetrics;
use crate::origin;
use crate::state::AppState;

const NO_STORE: (http::HeaderName, HeaderValue) = (CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// Response of `/health`. A public host, and a caller who may not read, gets the status only.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok` or `not ready`.
    status: &'static str,
    #[serde(flatten)]
    #[schema(value_type = Details)]
    details: Option<Details>,
}

/// State of the daemon, for its operator.
#[derive(Serialize, ToSchema)]
struct Details {
    /// Why requests should be sent to another daemon.
    reason: Option<String>,
    #[schema(required = false)]
    version: &'static str,
    #[schema(required = false)]
    blocks: u64,
    #[schema(required = false)]
    payload_bytes: u64,
    #[schema(required = false)]
    disk_bytes: u64,
    /// Problems of the repo that its operator must end, such as lost pins or blocks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    problems: Vec<String>,
    /// Addresses of the gRPC listeners.
    grpc: Option<Vec<String>>,
    /// Addresses of the API listeners.
    api: Option<Vec<String>>,
}

/// Response of `/health/live` and `/health/ready`.
#[derive(Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ok`, `ready` or `not ready`.
    status: &'static str,
    /// Why it is not ready, or that it is `degraded` by problems, which `/health` shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// `GET /health/live`: 200 while the process responds.
pub(crate) async fn live() -> Response {
    ([NO_STORE], Json(Readiness { status: "ok", reason: None })).into_response()
}

/// `GET /health/ready`: 200 if the daemon accepts requests; 503 while it starts or drains, and if the store accepts
/// no writes or cannot read its index.
pub(crate) async fn ready(State(state): State<AppState>, public: Option<Extension<PublicHost>>) -> Response {
    let Some(reason) = not_ready(&state).await else {
        let has_problems = public.is_none() && !problems(&state).await.is_empty();
        let reason = has_problems.then(|| "degraded: see /health".to_owned());
        return ([NO_STORE], Json(Readiness { status: "ready", reason })).into_response();
    };
    let not_ready = Readiness { status: "not ready", reason: public.is_none().then_some(reason) };
    (StatusCode::SERVICE_UNAVAILABLE, [NO_STORE], Json(not_ready)).into_response()
}

/// Returns the problems of the repo. One of them may be that they cannot be read.
async fn problems(state: &AppState) -> Vec<String> {
    state.node.problems().await.unwrap_or_else(|e| vec![format!("problems cannot be read: {}", error::text(&e))])
}

/// Returns why requests should be sent to another daemon, or `None` if this one is ready.
async fn not_ready(state: &AppState) -> Option<String> {
    if !state.lifecycle.is_ready() {
        return Some("the daemon is starting or draining".to_owned());
    }
    state.node.check().await.err().map(|e| error::text(&e))
}

/// `GET /health`: readiness, version and store size. On a public host, only the status.
pub(crate) async fn health(
    State(state): State<AppState>,
    public: Option<Extension<PublicHost>>,
    caller: Option<Extension<Caller>>,
) -> Result<Response, GatewayError> {
    let reason = not_ready(&state).await;
    let is_ready = reason.is_none();
    let code = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let status = if is_ready { "ok" } else { "not ready" };
    let reads = |caller: Caller| caller.require(Scope::Read).and_then(|()| caller.require_no_roots()).is_ok();
    let may_read = caller.is_none_or(|Extension(caller)| reads(caller));
    if public.is_some() || !may_read {
        return Ok((code, [NO_STORE], Json(Health { status, details: None })).into_response());
    }
    let stats = state.node.stats().await?;
    let details = Details {
        reason,
        version: env!("CARGO_PKG_VERSION"),
        blocks: stats.blocks,
        payload_bytes: stats.payload_bytes,
        disk_bytes: stats.disk_bytes,
        problems: problems(&state).await,
        grpc: state.grpc.get().cloned(),
        api: state.api_addresses.get().cloned(),
    };
    Ok((code, [NO_STORE], Json(Health { status, details: Some(details) })).into_response())
}

/// Refuses pages, even for reads, since all content shares the daemon's origin. A public host shows its status to
/// every client.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let is_public = request.extensions().get::<PublicHost>().is_some();
    let mut response = match origin::check(&request, state.port) {
        Err(e) if !is_public => GatewayError(e).into_response(),
        _ => next.run(request).await,
    };
    origin::isolate(response.headers_mut());
    response
}

/// `GET /metrics` and `/debug/metrics/prometheus`: the Prometheus text format, version 0.0.4, or OpenMetrics for
/// clients that prefer it.
pub(crate) async fn metrics(State(state): State<AppState>, headers: HeaderMap) -> Result<Response, GatewayError> {
    // Updates the gauges of the store and of the caches, which gc may have swept.
    state.node.stats().await?;
    state.path_cache.measure();
    state.response_cache.measure();
    let families = state.registry.gather();
    let (media_type, text) = if openmetrics::is_preferred(&headers) {
        let exemplars = |histogram: &str, labels: &[_]| state.metrics.exemplars(histogram, labels);
        (openmetrics::MEDIA_TYPE, openmetrics::encode(&families, exemplars).into_bytes())
    } else {
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new()
            .encode(&families, &mut text)
            .map_err(|e| ipfrs_core::Error::internal("the metrics could not be encoded").with_source(e))?;
        ("text/plain; version=0.0.4; charset=utf-8", text)
    };
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(media_type)), (VARY, HeaderValue::from_static("accept"))];
    Ok((headers, [NO_STORE], text).into_response())
}

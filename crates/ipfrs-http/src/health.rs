//! Health and metrics.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use prometheus::{Encoder, TextEncoder};
use serde_json::json;

use crate::error::GatewayError;
use crate::router::AppState;

const NO_STORE: (http::HeaderName, HeaderValue) = (CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// `GET /health/live`: the process answers.
pub(crate) async fn live() -> Response {
    ([NO_STORE], Json(json!({"status": "ok"}))).into_response()
}

/// `GET /health/ready`: requests are welcome; 503 while starting, while draining, and when the store takes no writes.
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    let Some(reason) = not_ready(&state).await else {
        return ([NO_STORE], Json(json!({"status": "ready"}))).into_response();
    };
    let not_ready = Json(json!({"status": "not ready", "reason": reason}));
    (StatusCode::SERVICE_UNAVAILABLE, [NO_STORE], not_ready).into_response()
}

/// Why requests should go elsewhere.
async fn not_ready(state: &AppState) -> Option<String> {
    if !state.lifecycle.is_ready() {
        return Some("the daemon is starting or draining".to_owned());
    }
    state.node.check().await.err().map(|e| e.to_string())
}

/// `GET /health`: readiness with the version and the size of the store.
pub(crate) async fn health(State(state): State<AppState>) -> Result<Response, GatewayError> {
    let stats = state.node.stats().await?;
    let reason = not_ready(&state).await;
    let is_ready = reason.is_none();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "status": if is_ready { "ok" } else { "not ready" },
        "reason": reason,
        "version": env!("CARGO_PKG_VERSION"),
        "blocks": stats.blocks,
        "payload_bytes": stats.payload_bytes,
        "disk_bytes": stats.disk_bytes,
        "grpc": state.grpc.get(),
    });
    Ok((status, [NO_STORE], Json(body)).into_response())
}

/// `GET /metrics`: the Prometheus text format, version 0.0.4.
pub(crate) async fn metrics(State(state): State<AppState>) -> Result<Response, GatewayError> {
    // Brings the gauges of the store up to date.
    state.node.stats().await?;
    let encoder = TextEncoder::new();
    let mut text = Vec::with_capacity(16 * 1024);
    encoder
        .encode(&state.registry.gather(), &mut text)
        .map_err(|e| ipfrs_core::Error::internal("the metrics could not be written").with_source(e))?;
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(CONTENT_TYPE, content_type), NO_STORE], text).into_response())
}

//! `GET /v1/config`: the effective configuration.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ipfrs_core::Error;

use crate::error::Problem;
use crate::request_id::RequestId;
use crate::state::AppState;

/// Returns all sections with all keys, as JSON.
pub(super) async fn show(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
) -> Result<Response, Problem> {
    let why = "the program that embeds this gateway has its configuration";
    let shown = state.configuration.get().ok_or_else(|| Problem::new(Error::not_found(why), &id))?;
    Ok(([(CACHE_CONTROL, "no-store"), (CONTENT_TYPE, "application/json")], shown.running.json()).into_response())
}

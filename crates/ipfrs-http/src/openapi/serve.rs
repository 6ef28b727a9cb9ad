//! `GET /openapi.json`.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use crate::state::AppState;
use crate::static_file;

/// Sends the document.
pub(crate) async fn serve(State(state): State<AppState>, headers: HeaderMap) -> Response {
    static_file::respond(&headers, "application/json", (state.openapi)().as_bytes().into())
}

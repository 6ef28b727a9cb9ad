//! Types that the command handlers share.

use axum::extract::Request;
use axum::response::Response;
use http::header::CONTENT_TYPE;

use crate::error::RpcError;

/// Result of a command's handler.
pub(super) type CommandResult = Result<Response, RpcError>;

/// Whether a request has a body, even an empty one. Without any body, the client probably forgot it.
pub(super) fn has_body(request: &Request) -> bool {
    let headers = request.headers();
    headers.contains_key(CONTENT_TYPE) || !http_body::Body::is_end_stream(request.body())
}

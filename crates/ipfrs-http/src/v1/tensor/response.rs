//! Responses of the tensor routes.

use axum::response::Response;
use http::{HeaderMap, StatusCode};

/// Returns a response with an empty body.
pub(super) fn response(status: StatusCode, headers: HeaderMap) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Part of a response to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// 304: the client already has the content.
    NotModified,
    /// Only the head.
    Head,
    /// Head and body.
    Whole,
}

//! Shared by the handlers: their result, and the media types that a request accepts.

use axum::response::Response;
use http::HeaderMap;
use http::header::ACCEPT;

use crate::error::GatewayError;
use crate::gateway::format;

/// Result of a handler.
pub(super) type HandlerResult = Result<Response, GatewayError>;

/// Whether `Accept` names a media type.
pub(super) fn names(headers: &HeaderMap, media_type: &str) -> bool {
    format::accepted(headers).any(|media| media.eq_ignore_ascii_case(media_type))
}

/// Whether `Accept` permits a media type, which must be one of `application/*`. Without the header, every type is
/// accepted.
pub(super) fn accepted(headers: &HeaderMap, media_type: &str) -> bool {
    !headers.contains_key(ACCEPT)
        || names(headers, media_type)
        || format::accepted(headers).any(|media| matches!(media, "*/*" | "application/*"))
}

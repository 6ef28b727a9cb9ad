//! Shared by the handlers: their result, and the media types that a request accepts.

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::HeaderMap;
use http::header::ACCEPT;
use http::request::Parts;

use crate::error::GatewayError;
use crate::gateway::format;
use crate::path_parameter;

/// The only parameter in the path of a route.
pub(super) struct InPath(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = GatewayError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, GatewayError> {
        path_parameter::only(parts, state).await.map(Self).map_err(GatewayError)
    }
}

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

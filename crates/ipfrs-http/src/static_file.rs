//! Files of the binary, which browsers keep until the daemon has other ones.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Base, hash};
use ipfrs_middleware::Representation;

use crate::body::header_text;
use crate::gateway::conditional;

/// Responds with a file, or with 304 if the client has it.
pub(crate) fn respond(request: &HeaderMap, media: &str, content: Cow<'static, [u8]>) -> Response {
    let digest = hash::sha2_256(&content);
    let tag = format!("\"{}\"", Base::Base16Lower.encode(&digest.digest()[..8]));
    let media = header_text(media);
    let whole = Representation { content_type: Some(media.clone()), length: Some(content.len() as u64) };
    let is_known = conditional::if_none_match(request, &tag);
    let mut response = match (is_known, content) {
        (true, _) => whole.describe(StatusCode::NOT_MODIFIED.into_response()),
        (false, Cow::Borrowed(bytes)) => Body::from(Bytes::from_static(bytes)).into_response(),
        (false, Cow::Owned(bytes)) => Body::from(bytes).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A new version of the daemon has new files.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ETAG, header_text(&tag));
    response
}

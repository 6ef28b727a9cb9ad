//! Cached heads of partial responses for files. Media players, resumed downloads and archive readers request many
//! ranges of the same file.
//!
//! Parsing the path, looking up the root and building the headers cost more than finding the range. Except for the
//! range, the head is the same for every partial response. It is kept in the path cache entry and is valid as long as
//! that entry.

use axum::response::Response;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipfrs_core::Result;

use super::format::{Format, SERVICE_WORKER};
use super::path_cache::CachedPath;
use super::payload::{Payload, content_range};
use super::range::{self, Ranges};
use super::request::GatewayRequest;
use super::{content_type, cors};
use crate::state::AppState;

/// Headers that may affect more than the choice of range.
const DECIDING: [HeaderName; 6] =
    [IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, SERVICE_WORKER];

/// Returns a response to a range request for a file whose path is cached, if the head of an earlier response is
/// cached too.
///
/// # Errors
/// The error of reading the beginning of the range.
pub(super) async fn again(
    state: &AppState,
    parts: &Parts,
    format: Format,
    cached: &CachedPath,
) -> Result<Option<Response>> {
    let Some(plain_range) = plain_range(parts, format) else { return Ok(None) };
    let Some(head) = cached.partial_head.get() else { return Ok(None) };
    let Some(file) = state.node.file_below_root(&cached.resolved) else { return Ok(None) };
    let size = file.size();
    let Ranges::One(span) = range::parse(Some(plain_range), size, state.config.max_ranges) else { return Ok(None) };
    let mut response = Response::new(Payload::File(file).body(&state.node, span).await?);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let headers = response.headers_mut();
    *headers = head.clone();
    headers.insert(CONTENT_RANGE, content_range(span, size));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(span.len));
    Ok(Some(response))
}

/// Keeps the head of a partial response for a file of `size` bytes, if the response depends only on the path and the
/// range.
pub(super) fn keep(state: &AppState, parts: &Parts, request: &GatewayRequest<'_>, response: &Response, size: u64) {
    let is_part = response.status() == StatusCode::PARTIAL_CONTENT && response.headers().contains_key(CONTENT_RANGE);
    // If the type is a fallback because the beginning of the file could not be read, a later request may find the
    // real one.
    let Some(cached) = &request.cached else { return };
    let by_name = request.path.segments().last().and_then(|name| content_type::by_name(&name.to_string_lossy()));
    let known_type = by_name.or_else(|| cached.content_type.get().cloned());
    let has_type = known_type.is_some_and(|known| response.headers().get(CONTENT_TYPE) == Some(&known));
    if !is_part || !has_type || plain_range(parts, request.format).is_none() {
        return;
    }
    cached.partial_head.get_or_init(|| {
        let mut headers = response.headers().clone();
        cors::add(&mut headers);
        state.compression.varies(&mut headers, size);
        headers
    });
}

/// Returns the requested range if no other part of the request affects the response.
fn plain_range(parts: &Parts, format: Format) -> Option<&HeaderValue> {
    let is_plain = parts.method == Method::GET
        && parts.uri.query().is_none()
        && format == Format::Deserialised
        && !parts.headers.keys().any(|name| DECIDING.contains(name));
    if is_plain { range::of(&parts.headers) } else { None }
}

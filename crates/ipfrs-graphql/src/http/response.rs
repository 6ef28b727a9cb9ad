//! Responses to single requests.

use async_graphql::ServerError;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, RETRY_AFTER, VARY};
use http::{HeaderValue, StatusCode};
use ipfrs_core::{Error, ErrorKind, hash};
use ipfrs_middleware::Representation;

use super::media::Media;
use super::serialized::serialized;
use crate::error::request_error;
use crate::json;
use crate::operation::Answer;

/// Size of content from which a response is serialized off the runtime workers, in bytes.
const LARGE_BYTES: usize = 256 * 1024;

/// Number of bytes of a hash in an `ETag`.
const TAG_BYTES: usize = 16;

/// Returns the response to a request that cannot be read as a GraphQL request.
pub(super) fn unreadable(media: Media, error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::Timeout => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    };
    let mut response = refused(status, Media::GraphQlJson, request_error(error));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media.name()));
    response
}

/// Returns the response to an operation that was not executed. With `application/json`, its status is 200.
pub(super) fn refused(status: StatusCode, media: Media, error: ServerError) -> Response {
    let status = if media == Media::GraphQlJson { status } else { StatusCode::OK };
    let body = json::to_vec(&Answer::refused(error));
    (status, headers(media, "no-store"), body).into_response()
}

fn headers(media: Media, cache_control: &'static str) -> [(http::HeaderName, &'static str); 3] {
    [(CONTENT_TYPE, media.name()), (CACHE_CONTROL, cache_control), (VARY, "Accept")]
}

/// Returns the response to an executed operation. That to a GET has a validator: caches may keep it, and ask each time
/// whether it is still the same. The lines of `if_none_match` are one list.
pub(super) async fn whole(answer: Answer, media: Media, is_get: bool, if_none_match: &[HeaderValue]) -> Response {
    let is_refused = !answer.is_executed();
    let is_large = answer.budget.as_ref().is_some_and(|budget| budget.content() > LARGE_BYTES);
    let has_tag = is_get && answer.errors.is_empty();
    let serialize = move || {
        let (body, is_complete) = serialized(answer, "", "");
        let tag = (has_tag && is_complete).then(|| tag_of(&body));
        (body, tag)
    };
    let (body, tag) =
        if is_large { tokio::task::spawn_blocking(serialize).await.unwrap_or_default() } else { serialize() };
    let status = if is_refused && media == Media::GraphQlJson { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let Some(tag) = tag else {
        return (status, headers(media, "no-store"), body).into_response();
    };
    let tags = if_none_match.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let is_known = tags.map(str::trim).any(|given| given == "*" || weak(given) == weak(&tag));
    let headers = headers(media, "private, no-cache");
    let mut response = match is_known {
        true => {
            let content_type = Some(HeaderValue::from_static(media.name()));
            let whole = Representation { content_type, length: Some(body.len() as u64) };
            whole.describe((StatusCode::NOT_MODIFIED, headers, Body::empty()).into_response())
        }
        false => (status, headers, Body::from(body)).into_response(),
    };
    if let Ok(tag) = HeaderValue::try_from(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn tag_of(body: &[u8]) -> String {
    let digest = hash::sha2_256(body);
    let digits: String = digest.digest().iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{digits}\"")
}

/// Returns a validator without the mark of a weak one (RFC 9110, 13.1.2).
fn weak(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

//! Request bodies of batches: JSON or CAR.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::accept::preferred;
use ipfrs_middleware::json_object;
use serde::Deserialize;

use crate::gateway::format::CAR_MEDIA_TYPE;

/// Parses JSON, whatever the request's `Content-Type`: `curl -d` sends form-urlencoded.
pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a Bytes, expected: &str) -> Result<T> {
    json_object::parse(body).map_err(|e| Error::invalid(format!("the body is not JSON like {expected}: {e}")))
}

/// Whether the body of a request is a CAR, according to `Content-Type`.
pub(super) fn is_car(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = value.and_then(|value| value.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case(CAR_MEDIA_TYPE))
}

/// Whether `Accept` prefers CAR to JSON.
pub(super) fn accepts_car(headers: &HeaderMap) -> bool {
    preferred(headers, &["application/json", CAR_MEDIA_TYPE]) == Some(1)
}

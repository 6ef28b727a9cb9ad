//! Request bodies of batches: JSON or CAR.

use bytes::Bytes;
use http::HeaderMap;
use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::gateway::format::CAR_MEDIA_TYPE;

/// Parses JSON, whatever the request's `Content-Type`: `curl -d` sends form-urlencoded.
pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a Bytes, expected: &str) -> Result<T> {
    serde_json::from_slice(body).map_err(|e| Error::invalid(format!("the body is not JSON like {expected}: {e}")))
}

/// Whether a header with media types names CAR.
pub(super) fn names_car(headers: &HeaderMap, name: http::HeaderName) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|media| media.split(';').next().is_some_and(|m| m.trim() == CAR_MEDIA_TYPE))
}

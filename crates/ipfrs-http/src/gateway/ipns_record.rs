//! `?format=ipns-record`: the signed record of a name (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>).

use std::fmt::Write;
use std::time::SystemTime;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LOCATION, CONTENT_TYPE, ETAG, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Result, hash};
use ipfrs_node::{Name, Record};

use super::address::{Address, content_location};
use super::escape::normalised;
use super::format::{Format, IPNS_RECORD_MEDIA_TYPE};
use super::path::key_name;
use super::request::Wanted;
use super::{conditional, disposition};
use crate::body::header_text;
use crate::state::AppState;

/// Returns the entity tag of a record, derived from its bytes.
fn etag(record: &Record) -> String {
    let digest = hash::sha2_256(record.bytes());
    let mut tag = String::from("\"");
    for byte in &digest.digest()[..16] {
        // Writing to a string never fails.
        let _ = write!(tag, "{byte:02x}");
    }
    tag.push('"');
    tag
}

/// Returns the file name for a record.
pub(crate) fn file_name(name: &Name) -> String {
    format!("{name}.ipns-record")
}

/// Returns a response with the record as the file `file`, or the result of the request's conditions.
pub(crate) fn answer(record: &Record, file: &str, cache_control: &str, request: &HeaderMap) -> Response {
    let etag = etag(record);
    if conditional::if_match_fails(request, &etag, None) {
        return (StatusCode::PRECONDITION_FAILED, [(CACHE_CONTROL, "no-store")]).into_response();
    }
    let mut response = if conditional::if_none_match(request, &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Response::new(Body::from(record.bytes().clone()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(IPNS_RECORD_MEDIA_TYPE));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_DISPOSITION, disposition::header("attachment", file));
        response
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, header_text(&etag));
    headers.insert(CACHE_CONTROL, header_text(cache_control));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

/// Responds with the record of the name in `content_path`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the path is anything but a name of a key;
/// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if there is no valid record.
pub(super) async fn respond(state: &AppState, parts: &Parts, content_path: &str, wanted: &Wanted) -> Result<Response> {
    let name = key_name(content_path)?;
    let record = state.node.ipns_record(&name).await?;
    let file = wanted.filename.clone().unwrap_or_else(|| file_name(&name));
    let max_age = record.lifetime(SystemTime::now(), state.node.config().ipns.record_ttl()).as_secs();
    let mut response = answer(&record, &file, &format!("public, max-age={max_age}"), &parts.headers);
    let headers = response.headers_mut();
    Address::of(content_path).tell(headers);
    if wanted.is_negotiated {
        let query = parts.uri.query().map(|query| format!("{query}&")).unwrap_or_default();
        let location = format!("{}?{query}format={}", normalised(parts.uri.path()), Format::IpnsRecord.name());
        if let Some(location) = content_location(&location) {
            headers.insert(CONTENT_LOCATION, location);
        }
    }
    Ok(response)
}

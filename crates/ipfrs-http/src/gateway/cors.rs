//! What pages of other origins may do with content: read it (Fetch standard, "CORS protocol"), as with Kubo. These headers
//! are on every answer under `/ipfs`, whoever asks, so that caches can give one answer to all.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
};
use http::{HeaderMap, HeaderValue};

use super::ALLOW;

/// Headers that a page may set beyond those that are always safe.
const ALLOW_HEADERS: HeaderValue = HeaderValue::from_static("Content-Type, Range, User-Agent, X-Requested-With");
/// Headers that a page may read beyond those that are always safe.
const EXPOSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Length, Content-Range, Ipfs-Uri, X-Chunked-Output, X-Ipfs-Path, X-Ipfs-Roots, X-Stream-Output",
);

/// Adds the headers to an answer, if they are not there. Without credentials: content is the same for everybody.
pub(crate) fn add(headers: &mut HeaderMap) {
    if headers.contains_key(ACCESS_CONTROL_EXPOSE_HEADERS) {
        return;
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOW));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSE_HEADERS);
}

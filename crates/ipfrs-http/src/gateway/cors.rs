//! CORS headers: pages of other origins may read content, as in Kubo (Fetch standard, "CORS protocol"). Every
//! response under `/ipfs` has these headers, whatever the origin of the request, so that caches can share one
//! response.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
};
use http::{HeaderMap, HeaderValue};

/// Request headers that a page may set in addition to the CORS-safelisted ones.
const ALLOW_HEADERS: HeaderValue = HeaderValue::from_static("Content-Type, Range, User-Agent, X-Requested-With");
/// Response headers that a page may read in addition to the CORS-safelisted ones.
const EXPOSE_HEADERS: HeaderValue = HeaderValue::from_static(
    "Content-Length, Content-Range, Ipfs-Uri, X-Chunked-Output, X-Ipfs-Path, X-Ipfs-Roots, X-Stream-Output",
);

/// Adds the headers to a response that lacks them. Credentials are not allowed, since content is the same for all
/// clients.
pub(crate) fn add(headers: &mut HeaderMap) {
    if headers.contains_key(ACCESS_CONTROL_EXPOSE_HEADERS) {
        return;
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOW));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ALLOW_HEADERS);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSE_HEADERS);
}

pub(super) const ALLOW: &str = "GET, HEAD, OPTIONS";

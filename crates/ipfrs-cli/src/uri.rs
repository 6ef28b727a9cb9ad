//! Text as parts of URIs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Everything but what RFC 3986 calls unreserved.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// `bytes` as one component of a path or a query.
pub(crate) fn escape(bytes: &[u8]) -> String {
    percent_encode(bytes, COMPONENT).to_string()
}

/// The gateway's path of what a person typed, `CID/name` or `/ipfs/CID/name`, with every segment escaped.
pub(crate) fn gateway_path(path: &OsStr) -> String {
    let path = path.as_bytes();
    let rest = path.strip_prefix(b"ipfs://").unwrap_or(path);
    let rest = rest.strip_prefix(b"/ipfs/").unwrap_or(rest);
    let segments: Vec<_> = rest.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).map(escape).collect();
    format!("/ipfs/{}", segments.join("/"))
}

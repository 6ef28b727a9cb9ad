//! Percent-encoding of URI components.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// All characters except the unreserved ones of RFC 3986.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes `bytes` as one component of a path or a query.
pub(crate) fn escape(bytes: &[u8]) -> String {
    percent_encode(bytes, COMPONENT).to_string()
}

/// Returns the gateway path for user input of the form `CID/name` or `/ipfs/CID/name`, with each segment encoded.
pub(crate) fn gateway_path(path: &OsStr) -> String {
    let path = path.as_bytes();
    let rest = path.strip_prefix(b"ipfs://").unwrap_or(path);
    let rest = rest.strip_prefix(b"/ipfs/").unwrap_or(rest);
    let segments: Vec<_> = rest.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).map(escape).collect();
    format!("/ipfs/{}", segments.join("/"))
}

//! A request that was read, and parsing of its JSON.

use async_graphql::Request;
use bytes::BytesMut;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::RequestMemory;

use crate::error::no_query;
use crate::files::Files;

/// A request that was read.
pub(super) struct Parsed {
    pub(super) request: Request,
    /// Files of a multipart request.
    pub(super) files: Option<Files>,
    /// Memory of the body.
    pub(super) memory: Option<RequestMemory>,
}

/// Parses a request in JSON.
pub(super) fn of_json(json: &[u8]) -> Result<Request> {
    if json.trim_ascii_start().starts_with(b"[") {
        return Err(Error::invalid("the body is an array: send one request at a time"));
    }
    let request: Request = serde_json::from_slice(json).map_err(|e| {
        Error::invalid(format!(
            "the body is not a GraphQL request: {e}; send {{\"query\": \"...\", \"variables\": {{}}}}"
        ))
    })?;
    // A persisted query may be known by its hash.
    if request.query.is_empty() && request.extensions.is_empty() { Err(no_query()) } else { Ok(request) }
}

/// Memory of a parsed value in JSON, in bytes.
const VALUE_BYTES: usize = 72;

/// Returns an upper bound of the memory of a text in JSON and of what is parsed from it: each value is followed by a
/// comma or a closing bracket.
pub(super) fn memory_of(json: &[u8]) -> usize {
    let values = json.iter().filter(|byte| matches!(byte, b',' | b']' | b'}')).count();
    json.len().saturating_mul(2).saturating_add(values.saturating_mul(VALUE_BYTES))
}

/// Appends a piece to a text of at most `most` bytes.
pub(super) fn append(bytes: &mut BytesMut, piece: &[u8], most: usize) -> Result<()> {
    if bytes.len() + piece.len() > most {
        return Err(Error::too_large(format!(
            "the request has more than {most} bytes: upload files as multipart/form-data, and blocks with /v1"
        )));
    }
    bytes.extend_from_slice(piece);
    Ok(())
}

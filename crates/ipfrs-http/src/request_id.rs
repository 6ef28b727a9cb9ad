//! Request IDs: taken from the client or made.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Result;
use ipfrs_node::{OperationId, RequestIds};

/// The header that carries the ID in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The header that carries the ID of an operation in both directions.
pub(crate) const X_OPERATION_ID: HeaderName = HeaderName::from_static("x-operation-id");

/// The ID that the client chose for the operation that a request is.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for one that is malformed.
pub(crate) fn operation_id(headers: &HeaderMap) -> Result<Option<OperationId>> {
    headers.get(X_OPERATION_ID).map(|id| id.to_str().unwrap_or_default().parse()).transpose()
}

/// The client's ID for its request, or a new one. HTTP/2 keeps it out of the table of headers that a connection has seen, from
/// which each would drive out another that comes again.
pub(crate) fn of(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let mut id = match chosen(headers) {
        Some(id) => id.clone(),
        // Hexadecimal digits are always a valid header value.
        None => HeaderValue::from_bytes(&ids.make()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    };
    id.set_sensitive(true);
    id
}

/// The ID that a client chose for its request.
pub(crate) fn chosen(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|id| RequestIds::is_fit(id.as_bytes()))
}

/// The ID of the request being answered, for handlers that put it into a body.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

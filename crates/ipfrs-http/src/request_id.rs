//! Request IDs, chosen by the client or generated.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Result;
use ipfrs_node::{OperationId, RequestIds};

/// Header of the request ID, in requests and responses.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Header of the operation ID, in requests and responses.
pub(crate) const X_OPERATION_ID: HeaderName = HeaderName::from_static("x-operation-id");

/// Returns the operation ID that the client chose for its request.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the ID is malformed.
pub(crate) fn operation_id(headers: &HeaderMap) -> Result<Option<OperationId>> {
    headers.get(X_OPERATION_ID).map(|id| id.to_str().unwrap_or_default().parse()).transpose()
}

/// Returns the client's ID for its request, or a new one. The value is marked sensitive so that HTTP/2 keeps it out
/// of the dynamic header table, where it would evict reusable entries.
pub(crate) fn of(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let mut id = match chosen(headers) {
        Some(id) => id.clone(),
        // Hexadecimal digits are always a valid header value.
        None => HeaderValue::from_bytes(&ids.make()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    };
    id.set_sensitive(true);
    id
}

/// Returns the valid request ID that the client chose, if any.
pub(crate) fn chosen(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|id| RequestIds::is_fit(id.as_bytes()))
}

/// ID of the current request, for handlers that put it into a body.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

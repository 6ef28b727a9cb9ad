//! Request IDs, chosen by the client or generated.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Result;
pub(crate) use ipfrs_middleware::request_id::{X_REQUEST_ID, chosen, of};
use ipfrs_node::OperationId;

use crate::single_header::single;

/// Header of the operation ID, in requests and responses.
pub(crate) const X_OPERATION_ID: HeaderName = HeaderName::from_static("x-operation-id");

/// Returns the operation ID that the client chose for its request.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the ID is malformed, or the header is there twice.
pub(crate) fn operation_id(headers: &HeaderMap) -> Result<Option<OperationId>> {
    single(headers, &X_OPERATION_ID)?.map(|id| id.to_str().unwrap_or_default().parse()).transpose()
}

/// ID of the current request, for handlers that put it into a body.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

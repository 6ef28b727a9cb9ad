//! Request IDs: taken from the client or made.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Result;
use ipfrs_node::OperationId;

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

/// Longest ID that is taken from a client.
const MAX_BYTES: usize = 128;

/// Makes IDs that are unique in this process and very likely everywhere.
#[derive(Debug)]
pub(crate) struct RequestIds {
    prefix: u64,
    next: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // RandomState is seeded by the system: enough to tell two processes apart.
        Self { prefix: RandomState::new().hash_one(std::process::id()), next: AtomicU64::new(1) }
    }

    /// A new ID: 32 hexadecimal digits.
    pub(crate) fn make(&self) -> String {
        format!("{:016x}{:016x}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The client's ID, or a new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let fits = |id: &&HeaderValue| (1..=MAX_BYTES).contains(&id.len()) && id.to_str().is_ok();
        if let Some(id) = headers.get(X_REQUEST_ID).filter(fits) {
            return id.clone();
        }
        // Hexadecimal digits are always a valid header value.
        HeaderValue::try_from(self.make()).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
}

/// The ID of the request being answered, for handlers that put it into a body.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

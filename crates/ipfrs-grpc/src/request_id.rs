//! Request IDs, which clients choose or the server generates, and which are available while a request is processed.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_node::RequestIds;

/// Metadata key of the ID in requests and responses.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    /// ID of the current request.
    static CURRENT: HeaderValue;
}

/// Returns the ID that the client sent, or a new one. The value is marked as sensitive, so that HPACK does not index
/// it: unique IDs would evict headers that repeat from the dynamic table.
pub(crate) fn of(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let mut id = match headers.get(X_REQUEST_ID).filter(|id| RequestIds::is_fit(id.as_bytes())) {
        Some(id) => id.clone(),
        // Hexadecimal digits are always a valid header value.
        None => HeaderValue::from_bytes(&ids.make()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    };
    id.set_sensitive(true);
    id
}

/// Runs `work` as part of the request `id`.
pub(crate) fn within<T>(id: &HeaderValue, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id.clone(), work)
}

/// Returns a future that runs as part of the request `id`.
pub(crate) fn scope<F: Future>(id: HeaderValue, answer: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, answer)
}

/// Returns the ID of the current request; empty in separate tasks.
pub(crate) fn current() -> String {
    CURRENT.try_with(|id| id.to_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

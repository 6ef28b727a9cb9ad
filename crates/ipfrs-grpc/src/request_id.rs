//! Request IDs: taken from the client or made, and known to whatever answers the request.

use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_node::RequestIds;

/// The metadata that carries the ID in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    /// That of the request that is being answered.
    static CURRENT: HeaderValue;
}

/// The client's ID for its request, or a new one. HTTP/2 keeps it out of the table of headers that a connection has seen, from
/// which each would drive out another that comes again.
pub(crate) fn of(headers: &HeaderMap, ids: &RequestIds) -> HeaderValue {
    let mut id = match headers.get(X_REQUEST_ID).filter(|id| RequestIds::is_fit(id.as_bytes())) {
        Some(id) => id.clone(),
        // Hexadecimal digits are always a valid header value.
        None => HeaderValue::from_bytes(&ids.make()).unwrap_or_else(|_| HeaderValue::from_static("-")),
    };
    id.set_sensitive(true);
    id
}

/// Runs `work` as a part of answering the request `id`.
pub(crate) fn within<T>(id: &HeaderValue, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(id.clone(), work)
}

/// The future of answering the request `id`.
pub(crate) fn scope<F: Future>(id: HeaderValue, answer: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(id, answer)
}

/// The ID of the request that is being answered; empty in tasks of their own.
pub(crate) fn current() -> String {
    CURRENT.try_with(|id| id.to_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

//! Request IDs, which clients choose or the server generates, and which are available while a request is processed.

use http::HeaderValue;
pub(crate) use ipfrs_middleware::request_id::{X_REQUEST_ID, of};

tokio::task_local! {
    /// ID of the current request.
    static CURRENT: HeaderValue;
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

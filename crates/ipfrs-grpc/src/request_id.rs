//! Request IDs: taken from the client or made, and known to whatever answers the request.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The metadata that carries the ID in both directions.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest ID that is taken from a client.
const MAX_BYTES: usize = 128;

tokio::task_local! {
    /// That of the request that is being answered.
    static CURRENT: HeaderValue;
}

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

    /// The client's ID, or a new one of 32 hexadecimal digits.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let fits = |id: &&HeaderValue| (1..=MAX_BYTES).contains(&id.len()) && id.to_str().is_ok();
        if let Some(id) = headers.get(X_REQUEST_ID).filter(fits) {
            return id.clone();
        }
        let id = format!("{:016x}{:016x}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        // Hexadecimal digits are always a valid header value.
        HeaderValue::try_from(id).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
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

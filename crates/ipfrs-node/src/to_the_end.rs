//! Work that completes although its client leaves.

use ipfrs_core::{Error, Result};
use tracing::Instrument;

use crate::retrieval::{current_client, with_client};

/// Runs `work` in a task of its own, so that it completes even if the caller is cancelled. The task has the span and
/// the client of the caller.
///
/// # Errors
/// That of the work, or an internal error if it panics.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let task = tokio::spawn(with_client(current_client(), work).in_current_span());
    task.await.unwrap_or_else(|e| Err(Error::internal("a task that must complete failed").with_source(e)))
}

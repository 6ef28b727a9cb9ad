//! Work that must not run on a worker of the runtime.

use ipfrs_core::{Error, Result};

/// Runs work that waits for the disk on a blocking thread.
///
/// # Errors
/// That of the work.
pub async fn off_workers<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal("work on a file stopped").with_source(e))?
}

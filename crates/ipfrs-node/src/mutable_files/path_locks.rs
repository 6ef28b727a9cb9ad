//! Locks of files, so that one writer of a file waits for the other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex as Short;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

use crate::LinkName;

/// Maximum wait for a lock.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of locks above which unused ones are removed.
const MANY_LOCKS: usize = 256;

/// A lock for each path that is being written.
#[derive(Debug, Default)]
pub(super) struct PathLocks(Short<HashMap<Vec<LinkName>, Arc<Mutex<()>>>>);

impl PathLocks {
    /// Waits until no other task has the lock of this path.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another task keeps it for [`PATIENCE`]: a client may write as slowly as it likes.
    pub(super) async fn lock(&self, names: &[LinkName]) -> Result<OwnedMutexGuard<()>> {
        timeout(PATIENCE, self.lock_at_last(names)).await.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            let why = "others write to the file, or wait for their turn to do so (concurrency.max_concurrent_tasks)";
            Error::new(ErrorKind::Conflict, format!("for {seconds} s, {why}: try again when they have ended"))
        })
    }

    /// Like [`Self::lock`], however long it takes: for content that is acknowledged already.
    pub(super) async fn lock_at_last(&self, names: &[LinkName]) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            if locks.len() >= MANY_LOCKS {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(locks.entry(names.to_vec()).or_default())
        };
        lock.lock_owned().await
    }
}

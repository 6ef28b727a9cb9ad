//! Locks of files, so that one writer of a file waits for the other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex as Short;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::LinkName;

/// Number of locks above which unused ones are removed.
const MANY_LOCKS: usize = 256;

/// A lock for each path that is being written.
#[derive(Debug, Default)]
pub(super) struct PathLocks(Short<HashMap<Vec<LinkName>, Arc<Mutex<()>>>>);

impl PathLocks {
    /// Waits until no other task has the lock of this path.
    pub(super) async fn lock(&self, names: &[LinkName]) -> OwnedMutexGuard<()> {
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

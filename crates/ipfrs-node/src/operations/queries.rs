//! Queries of running operations.

use std::time::Duration;

use ipfrs_core::{Error, Result};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{OperationId, Progress, REMEMBERED};
use crate::Node;

impl Node {
    /// Returns the progress of an operation, from its current state to its end. If the ID is unknown, waits for the
    /// operation to begin, so that a client that chose the ID can watch from the first byte.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if the operation does not begin within `max_wait`, or ended more
    /// than five minutes ago.
    pub async fn watch_operation(&self, id: &OperationId, max_wait: Duration) -> Result<watch::Receiver<Progress>> {
        let operations = &self.inner.operations;
        let mut begun = operations.0.begun.subscribe();
        let found = async {
            loop {
                if let Some(progress) = operations.find(id) {
                    return Some(progress);
                }
                begun.changed().await.ok()?;
            }
        };
        let found = timeout(max_wait, found).await.ok().flatten();
        found.ok_or_else(|| {
            Error::not_found(format!(
                "no operation {id}: it did not start within {} s, or ended more than {} s ago",
                max_wait.as_secs(),
                REMEMBERED.as_secs()
            ))
        })
    }

    /// Returns the operations that have not ended, in no particular order.
    #[must_use]
    pub fn operations(&self) -> Vec<Progress> {
        let registered = self.inner.operations.0.registered.lock();
        registered
            .by_id
            .values()
            .map(|progress| progress.borrow().clone())
            .filter(|progress| !progress.is_over())
            .collect()
    }
}

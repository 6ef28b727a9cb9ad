//! Queries of running operations.

use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{OperationId, OperationState, Progress, REMEMBERED, Registered};
use crate::Node;

/// How long a cancelled operation may take to end.
const CANCEL_TIME: Duration = Duration::from_secs(10);

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
                if let Some(known) = operations.find(id) {
                    return Some(known.progress);
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

    /// Cancels an operation and waits until it has ended. What a resumable upload has received is removed. Content that
    /// is complete stays: files that an import has already reported, with their pins.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown ID; [`ErrorKind::Conflict`] if the operation has ended already, or
    /// completes before it can be cancelled;
    /// [`ErrorKind::Timeout`] if it does not end in time.
    pub async fn cancel_operation(&self, id: &OperationId) -> Result<()> {
        let known = self.inner.operations.find(id);
        let Registered { mut progress, cancellation } =
            known.ok_or_else(|| Error::not_found(format!("no operation {id}: it ended, or never began")))?;
        let has_ended = || Error::new(ErrorKind::Conflict, format!("the operation {id} has ended already"));
        if progress.borrow().is_over() {
            return Err(has_ended());
        }
        cancellation.cancel();
        // No task works on an upload that waits for its client.
        self.end_cancelled_upload(id).await?;
        match timeout(CANCEL_TIME, progress.wait_for(Progress::is_over)).await {
            // It may have been past the last point at which it can be cancelled.
            Ok(Ok(ended)) if matches!(ended.state, OperationState::Done { .. }) => Err(has_ended()),
            // An operation that is gone has ended, too.
            Ok(_) => Ok(()),
            Err(_) => {
                Err(Error::new(ErrorKind::Timeout, format!("the operation {id} is cancelled, but has not ended yet")))
            }
        }
    }

    /// Returns the operations that have not ended, in no particular order.
    #[must_use]
    pub fn operations(&self) -> Vec<Progress> {
        let registered = self.inner.operations.0.registered.lock();
        registered
            .by_id
            .values()
            .map(|known| known.progress.borrow().clone())
            .filter(|progress| !progress.is_over())
            .collect()
    }
}

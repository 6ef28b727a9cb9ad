//! Memory of messages that have arrived and are not stored yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of bytes of messages that an object holds while they are hashed and stored.
const MAX_UNSTORED_BYTES: usize = 24 * 1024 * 1024;

/// Memory for the messages of one connection.
#[derive(Debug)]
pub(super) struct ConnectionMemory {
    /// Bytes that the queue may hold.
    queue: Arc<Semaphore>,
    capacity: usize,
    /// Bytes that all connections may hold. Connections get them in the order in which they wait. No client keeps
    /// others from them: once messages have arrived, only the daemon works on them.
    all: Arc<Semaphore>,
}

/// Memory that messages hold while they are in the queue.
#[derive(Debug)]
pub(super) struct QueuedMemory {
    _queue: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl ConnectionMemory {
    /// Creates the memory of a connection, with at most `capacity` bytes in the queue.
    pub(super) fn new(capacity: usize, all: Arc<Semaphore>) -> Self {
        Self { queue: Arc::new(Semaphore::new(capacity)), capacity, all }
    }

    /// Waits for memory for messages of `bytes`. More than the queue may hold count as all of it.
    pub(super) async fn take(&self, bytes: usize) -> Option<QueuedMemory> {
        let permits = u32::try_from(bytes.min(self.capacity)).unwrap_or(u32::MAX);
        let queue = Arc::clone(&self.queue).acquire_many_owned(permits).await.ok()?;
        let all = Arc::clone(&self.all).acquire_many_owned(permits).await.ok()?;
        Some(QueuedMemory { _queue: queue, all })
    }
}

/// Memory of the messages that an object has taken, until they are stored.
#[derive(Debug, Default)]
pub(super) struct UnstoredMemory {
    appended: Option<OwnedSemaphorePermit>,
    committing: Option<OwnedSemaphorePermit>,
}

impl UnstoredMemory {
    /// Keeps the memory of messages that were appended, up to what an object holds.
    pub(super) fn append(&mut self, memory: QueuedMemory) {
        let mut appended = memory.all;
        if let Some(before) = self.appended.take() {
            appended.merge(before);
        }
        let committing = self.committing.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let excess = (appended.num_permits() + committing).saturating_sub(MAX_UNSTORED_BYTES);
        drop(appended.split(excess.min(appended.num_permits())));
        self.appended = Some(appended);
    }

    /// Notes that a commit of all that was appended begins.
    pub(super) fn begin_commit(&mut self) {
        self.committing = self.appended.take();
    }

    /// Releases the memory of what is committed.
    pub(super) fn end_commit(&mut self) {
        self.committing = None;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn take(connection: &ConnectionMemory, bytes: usize) -> Option<QueuedMemory> {
        connection.take(bytes).now_or_never().flatten()
    }

    #[test]
    fn connections_wait_until_messages_of_others_are_committed() {
        let all = Arc::new(Semaphore::new(100));
        let [one, other] = [80, 80].map(|capacity| ConnectionMemory::new(capacity, Arc::clone(&all)));
        let mut unstored = UnstoredMemory::default();
        unstored.append(take(&one, 60).unwrap());
        assert!(take(&other, 60).is_none());
        // The queue is empty again.
        unstored.append(take(&one, 40).unwrap());
        unstored.begin_commit();
        assert!(take(&other, 1).is_none());
        unstored.end_commit();
        let held = take(&other, 1_000).unwrap();
        assert_eq!(all.available_permits(), 20, "a long message takes all of the queue");
        assert!(take(&other, 1).is_none());
        drop(held);
        assert_eq!(all.available_permits(), 100);
    }

    #[test]
    fn object_holds_a_part_of_what_was_appended() {
        const TOTAL: usize = 4 * MAX_UNSTORED_BYTES;
        let all = Arc::new(Semaphore::new(TOTAL));
        let connection = ConnectionMemory::new(TOTAL, Arc::clone(&all));
        let mut unstored = UnstoredMemory::default();
        unstored.append(take(&connection, MAX_UNSTORED_BYTES / 2).unwrap());
        unstored.begin_commit();
        for _ in 0..10 {
            unstored.append(take(&connection, MAX_UNSTORED_BYTES).unwrap());
            assert_eq!(all.available_permits(), TOTAL - MAX_UNSTORED_BYTES);
        }
        unstored.end_commit();
        assert_eq!(all.available_permits(), TOTAL - MAX_UNSTORED_BYTES / 2);
    }
}

//! Memory of messages that have arrived and are not stored yet.

use std::sync::Arc;

use ipfrs_core::fair_pool::{FairPool, Share};
use ipfrs_middleware::Client;
use ipfrs_node::IngestConfig;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bytes of a message besides its content, in the memory of the queue.
pub(super) const MESSAGE_BYTES: usize = 64;
/// Bytes of messages that have arrived after which they are passed to the writer.
pub(super) const GATHERED_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes of messages that an object holds while they are hashed and stored: 24 MiB, and the rest of
/// the message in which these begin, which is copied if it is over 16 MiB.
const MAX_UNSTORED_BYTES: usize = (24 + 16) * 1024 * 1024;

/// Memory for the messages of all connections (`ingest.max_memory_bytes`). A client holds at most as much as is free
/// for others, because its messages may wait for long: for another writer of the same file.
#[derive(Debug, Clone)]
pub(crate) struct IngestMemory {
    pool: FairPool<Client>,
    /// Bytes that the queue of a connection may hold.
    queue_bytes: usize,
    /// Notified when memory is released.
    released: Arc<Notify>,
}

impl IngestMemory {
    /// Creates the memory.
    pub(crate) fn new(config: &IngestConfig) -> Self {
        // The queue holds a message besides the one that arrives.
        let queue_bytes = config.max_message_bytes + GATHERED_BYTES + MESSAGE_BYTES;
        let pool = FairPool::new(config.max_memory_bytes, queue_bytes, usize::MAX);
        Self { pool, queue_bytes, released: Arc::default() }
    }

    /// Returns the memory for a connection of `client`.
    pub(super) fn of_connection(&self, client: Client) -> ConnectionMemory {
        ConnectionMemory { all: self.clone(), client, queue: Arc::new(Semaphore::new(self.queue_bytes)) }
    }

    /// Waits until the client may hold `bytes` more.
    async fn take(&self, client: Client, bytes: usize) -> HeldMemory {
        loop {
            let released = self.released.notified();
            if let Ok(share) = self.pool.take(client, bytes) {
                return HeldMemory { share, released: Arc::clone(&self.released) };
            }
            released.await;
        }
    }
}

/// Memory for the messages of one connection.
#[derive(Debug)]
pub(super) struct ConnectionMemory {
    all: IngestMemory,
    client: Client,
    /// Bytes that the queue may hold.
    queue: Arc<Semaphore>,
}

impl ConnectionMemory {
    /// Waits until the client may hold messages of `bytes`. More than the queue may hold count as all of it. Messages
    /// that were appended hold memory until they are committed, so the writer must commit meanwhile.
    pub(super) async fn take(&self, bytes: usize) -> HeldMemory {
        self.all.take(self.client, bytes.min(self.all.queue_bytes)).await
    }

    /// Waits until the queue may hold messages of `bytes`: until those before are appended.
    pub(super) async fn queue(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.min(self.all.queue_bytes)).ok()?;
        Arc::clone(&self.queue).acquire_many_owned(permits).await.ok()
    }
}

/// Memory that messages hold while they are in the queue.
#[derive(Debug)]
pub(super) struct QueuedMemory {
    held: HeldMemory,
    _queue: OwnedSemaphorePermit,
}

/// A part of the memory of all connections.
#[derive(Debug)]
pub(super) struct HeldMemory {
    share: Share<Client>,
    released: Arc<Notify>,
}

impl HeldMemory {
    /// Adds the permit of the queue.
    pub(super) fn queued(self, permit: OwnedSemaphorePermit) -> QueuedMemory {
        QueuedMemory { held: self, _queue: permit }
    }

    fn bytes(&self) -> usize {
        self.share.units()
    }

    fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes() {
            self.share.shrink_to(bytes);
            self.released.notify_waiters();
        }
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Memory of the messages that an object has taken, until they are stored.
#[derive(Debug, Default)]
pub(super) struct UnstoredMemory {
    appended: Option<HeldMemory>,
    committing: Option<HeldMemory>,
}

impl UnstoredMemory {
    /// Keeps the memory of messages that were appended, up to what an object holds.
    pub(super) fn append(&mut self, memory: QueuedMemory) {
        let mut appended = memory.held;
        if let Some(before) = &mut self.appended {
            appended.share.take_over(&mut before.share);
        }
        let committing = self.committing.as_ref().map_or(0, HeldMemory::bytes);
        appended.shrink_to(MAX_UNSTORED_BYTES.saturating_sub(committing));
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
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn memory(max_message_bytes: usize, max_memory_bytes: usize) -> IngestMemory {
        IngestMemory::new(&IngestConfig { max_message_bytes, max_memory_bytes, ..IngestConfig::default() })
    }

    fn client(number: u8) -> Client {
        Client::of([192, 0, 2, number].into())
    }

    fn take(connection: &ConnectionMemory, bytes: usize) -> Option<QueuedMemory> {
        let held = connection.take(bytes).now_or_never()?;
        Some(held.queued(connection.queue(bytes).now_or_never().flatten()?))
    }

    #[test]
    fn messages_hold_memory_until_they_are_committed() {
        let memory = memory(MIB, 10 * MIB);
        let connections = [1, 1].map(|number| memory.of_connection(client(number)));
        let mut unstored = UnstoredMemory::default();
        for _ in 0..5 {
            // The queue is empty again each time.
            unstored.append(take(&connections[0], MIB).unwrap());
        }
        assert!(take(&connections[1], MIB).is_none(), "a client leaves half for others");
        assert!(take(&memory.of_connection(client(2)), MIB).is_some());
        unstored.begin_commit();
        assert!(take(&connections[1], MIB).is_none());
        let mut waiting = pin!(connections[1].take(MIB));
        assert!(waiting.as_mut().now_or_never().is_none());
        unstored.end_commit();
        assert!(waiting.now_or_never().is_some(), "the connection goes on");
        assert_eq!(memory.pool.held(client(1)), 0);
    }

    #[test]
    fn queue_of_a_connection_holds_a_message_and_what_was_gathered() {
        let memory = memory(3 * MIB, 100 * MIB);
        let connection = memory.of_connection(client(1));
        let held = take(&connection, 100 * MIB).unwrap();
        assert_eq!(memory.pool.held(client(1)), 4 * MIB + MESSAGE_BYTES);
        assert!(take(&connection, 1).is_none());
        drop(held);
        assert!(take(&connection, 1).is_some());
    }

    #[test]
    fn object_holds_a_part_of_what_was_appended() {
        let memory = memory(MAX_UNSTORED_BYTES, 8 * MAX_UNSTORED_BYTES);
        let connection = memory.of_connection(client(1));
        let mut unstored = UnstoredMemory::default();
        unstored.append(take(&connection, MAX_UNSTORED_BYTES / 2).unwrap());
        unstored.begin_commit();
        for _ in 0..10 {
            unstored.append(take(&connection, MAX_UNSTORED_BYTES).unwrap());
            assert_eq!(memory.pool.held(client(1)), MAX_UNSTORED_BYTES);
        }
        unstored.end_commit();
        assert_eq!(memory.pool.held(client(1)), MAX_UNSTORED_BYTES / 2);
        drop(unstored);
        assert_eq!(memory.pool.held(client(1)), 0);
    }
}

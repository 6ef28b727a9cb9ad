//! The task that stores the messages of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result};
use ipfrs_middleware::{MemoryPool, RequestMemory};
use ipfrs_node::{IngestObject, Node};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::memory::{QueuedMemory, UnstoredMemory};
use super::{Place, Target};

/// Number of bytes after which a writer commits although more messages wait.
const COMMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Time after which a writer commits although more messages wait.
const COMMIT_AFTER: Duration = Duration::from_secs(1);

/// Pause of the client after which readers see all that it has sent.
const SETTLE_AFTER: Duration = Duration::from_millis(200);

/// Size of the pieces of an object in memory, in bytes. Messages share them, so that short ones have no overhead.
const PIECE_BYTES: usize = 64 * 1024;

/// Messages with the memory that they use.
pub(super) struct Batch {
    pub(super) messages: Vec<Bytes>,
    pub(super) memory: QueuedMemory,
}

/// Stored part of an object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Messages of this connection.
    pub(super) messages: u64,
    /// Bytes of the object.
    pub(super) bytes: u64,
    pub(super) cid: Option<Cid>,
}

/// An object that is being written.
pub(super) enum Sink {
    Memory { pieces: Pieces, bytes: u64, max_bytes: u64 },
    Durable(Box<IngestObject>),
}

/// The content of an object in memory, in pieces that are full up to the last one.
pub(super) struct Pieces {
    /// Memory of the pieces.
    memory: RequestMemory,
    pieces: Vec<Vec<u8>>,
}

impl Pieces {
    fn append(&mut self, mut content: &[u8]) -> Result<()> {
        while !content.is_empty() {
            let free = self.pieces.last().map_or(0, |last| PIECE_BYTES - last.len());
            if free == 0 {
                self.memory.grow_to((self.pieces.len() + 1).saturating_mul(PIECE_BYTES))?;
                self.pieces.push(Vec::with_capacity(PIECE_BYTES));
                continue;
            }
            let (fitting, rest) = content.split_at(content.len().min(free));
            if let Some(last) = self.pieces.last_mut() {
                last.extend_from_slice(fitting);
            }
            content = rest;
        }
        Ok(())
    }
}

impl Sink {
    pub(super) async fn open(node: &Node, memory: &MemoryPool, target: &Target) -> Result<Self> {
        Ok(match target.place {
            Place::Memory => {
                let max_bytes = node.config().ingest.max_object_bytes;
                let pieces = Pieces { memory: memory.reservation(), pieces: Vec::new() };
                Self::Memory { pieces, bytes: 0, max_bytes }
            }
            Place::Durable(store) => {
                Self::Durable(Box::new(node.ingest(store, target.name.clone(), target.append).await?))
            }
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Memory { bytes, .. } => *bytes,
            Self::Durable(object) => object.bytes(),
        }
    }

    /// Whether appended messages take memory until they are committed, beside that of the object itself.
    fn holds_messages(&self) -> bool {
        matches!(self, Self::Durable(object) if object.holds_messages())
    }

    /// Returns how many of `messages`, from the first, fit.
    fn room_for(&self, messages: &[Bytes]) -> usize {
        match self {
            // It is gone with the connection.
            Self::Memory { .. } => messages.len(),
            Self::Durable(object) => object.room_for(messages),
        }
    }

    async fn append(&mut self, messages: Vec<Bytes>) -> Result<()> {
        match self {
            Self::Durable(object) => object.append(messages).await,
            Self::Memory { pieces, bytes, max_bytes } => {
                for message in messages {
                    *bytes = bytes.saturating_add(message.len() as u64);
                    if *bytes > *max_bytes {
                        let text = format!("the object is over {max_bytes} bytes (ingest.max_object_bytes)");
                        return Err(Error::too_large(text));
                    }
                    pieces.append(&message)?;
                }
                Ok(())
            }
        }
    }

    async fn begin_commit(&mut self) -> Result<()> {
        match self {
            Self::Memory { .. } => Ok(()),
            Self::Durable(object) => object.begin_commit().await,
        }
    }

    async fn committed(&mut self) -> Result<()> {
        match self {
            Self::Memory { .. } => Ok(()),
            Self::Durable(object) => object.committed().await,
        }
    }

    async fn settle(&mut self) -> Result<()> {
        match self {
            Self::Memory { .. } => Ok(()),
            Self::Durable(object) => object.settle().await,
        }
    }

    async fn finish(self) -> Result<Option<Cid>> {
        match self {
            Self::Memory { .. } => Ok(None),
            Self::Durable(object) => object.finish().await,
        }
    }
}

/// The running task. Its queue ends it; it then commits what is left.
pub(super) struct Writer {
    pub(super) queue: mpsc::UnboundedSender<Batch>,
    /// Whether the next batch has its memory, and only waits until those in the queue are appended.
    pub(super) is_batch_waiting: Arc<AtomicBool>,
    pub(super) stored: watch::Receiver<Stored>,
    pub(super) task: JoinHandle<Result<Stored>>,
}

impl Writer {
    pub(super) fn start(sink: Sink) -> Self {
        let (queue, batches) = mpsc::unbounded_channel();
        let (progress, stored) = watch::channel(Stored { bytes: sink.bytes(), ..Stored::default() });
        let is_batch_waiting = Arc::<AtomicBool>::default();
        let task = tokio::spawn(write(sink, batches, Arc::clone(&is_batch_waiting), Arc::new(progress)));
        Self { queue, is_batch_waiting, stored, task }
    }
}

async fn write(
    mut sink: Sink,
    mut batches: mpsc::UnboundedReceiver<Batch>,
    is_batch_waiting: Arc<AtomicBool>,
    progress: Arc<watch::Sender<Stored>>,
) -> Result<Stored> {
    let mut stored = *progress.borrow();
    // Commit in progress. Meanwhile, more is appended.
    let mut committing: Option<Stored> = None;
    // Time at which the first message after the last commit was appended, and the size before it.
    let mut waiting: Option<(Instant, u64)> = None;
    let mut unstored = UnstoredMemory::default();
    loop {
        tokio::select! {
            biased;
            committed = sink.committed(), if committing.is_some() => {
                committed?;
                unstored.end_commit();
                if let Some(committed) = committing.take() {
                    progress.send_replace(committed);
                }
            }
            next = timeout(SETTLE_AFTER, batches.recv()) => match next {
                Ok(Some(Batch { messages, memory })) => {
                    waiting.get_or_insert((Instant::now(), sink.bytes()));
                    if let Err(error) = take(&mut sink, messages, &mut stored, &progress).await {
                        // If the commit has failed, its error is the cause: it has undone what is appended to.
                        sink.committed().await?;
                        let reported = progress.borrow().messages;
                        // A message that does not fit was reported after those before it.
                        if let Some(committed) = committing.filter(|committed| committed.messages > reported) {
                            progress.send_replace(committed);
                        }
                        return Err(error);
                    }
                    if sink.holds_messages() {
                        unstored.append(memory);
                    }
                }
                Ok(None) => break,
                Err(_) if committing.is_none() => sink.settle().await?,
                Err(_) => {}
            }
        }
        let is_due = |(since, before): (Instant, u64)| {
            let is_last = !is_batch_waiting.load(Ordering::Acquire) && batches.is_empty();
            is_last || sink.bytes() - before >= COMMIT_BYTES || since.elapsed() >= COMMIT_AFTER
        };
        if committing.is_none() && waiting.is_some_and(is_due) {
            waiting = None;
            unstored.begin_commit();
            sink.begin_commit().await?;
            stored.bytes = sink.bytes();
            committing = Some(stored);
        }
    }
    stored.bytes = sink.bytes();
    stored.cid = sink.finish().await?;
    Ok(stored)
}

/// Appends messages. If the object has no room for all of them, those before that are stored: they have arrived.
async fn take(
    sink: &mut Sink,
    mut messages: Vec<Bytes>,
    stored: &mut Stored,
    progress: &watch::Sender<Stored>,
) -> Result<()> {
    let room = sink.room_for(&messages);
    if room < messages.len() {
        let rest = messages.split_off(room);
        stored.messages += messages.len() as u64;
        sink.append(messages).await?;
        publish(sink, stored, progress).await?;
        sink.settle().await?;
        messages = rest;
    }
    stored.messages += messages.len() as u64;
    sink.append(messages).await
}

/// Commits, and reports what is stored.
async fn publish(sink: &mut Sink, stored: &mut Stored, progress: &watch::Sender<Stored>) -> Result<()> {
    sink.begin_commit().await?;
    sink.committed().await?;
    stored.bytes = sink.bytes();
    progress.send_replace(*stored);
    Ok(())
}

#[cfg(test)]
mod tests {
    use ipfrs_middleware::Client;
    use prometheus::Registry;

    use super::super::memory::IngestMemory;
    use super::*;

    #[tokio::test]
    async fn messages_are_committed_with_those_that_wait_for_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let pool = MemoryPool::register(&node, &Registry::new()).unwrap();
        let target = Target { place: Place::Memory, name: "a".parse().unwrap(), append: false };
        let memory = IngestMemory::new(&node.config().ingest).of_connection(Client::default());
        let mut writer = Writer::start(Sink::open(&node, &pool, &target).await.unwrap());
        for (messages, is_another_waiting) in [(1, false), (2, true), (3, false), (4, true), (5, false)] {
            let (held, permit) = (memory.take(usize::MAX).await, memory.queue(usize::MAX).await.unwrap());
            let batch = Batch { messages: vec![Bytes::from_static(b"message")], memory: held.queued(permit) };
            writer.is_batch_waiting.store(is_another_waiting, Ordering::Release);
            assert!(writer.queue.send(batch).is_ok());
            // The writer has appended it.
            drop(memory.queue(usize::MAX).await.unwrap());
            assert_eq!(writer.stored.has_changed().unwrap(), !is_another_waiting, "{messages}");
            if !is_another_waiting {
                assert_eq!(writer.stored.borrow_and_update().messages, messages);
            }
        }
        drop(writer.queue);
        assert_eq!(writer.task.await.unwrap().unwrap().messages, 5);
        node.close().await.unwrap();
    }
}

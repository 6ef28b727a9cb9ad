//! Operations on the messages of a stream, several at a time.
//!
//! Meanwhile, further messages are read. The window of HTTP/2 bounds the bytes that a client may send ahead, but
//! 512 KiB of messages of a few bytes are more frames than the library keeps: it would end the connection.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, FuturesOrdered, FuturesUnordered, Stream, StreamExt};
use ipfrs_middleware::{Lifecycle, RequestMemory};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

/// Maximum number of concurrent operations of one stream.
const MAX_OPERATIONS: usize = 256;
/// Maximum size of the blocks that one stream puts concurrently, in KiB. The store commits concurrent puts together.
const WINDOW_KIB: u32 = 8 * 1024;
/// Maximum number of messages that wait for their operation.
const MAX_WAITING: usize = 50_000;
/// Maximum size of these messages, in bytes. The last one may exceed it.
const MAX_WAITING_BYTES: usize = 1024 * 1024;
/// Maximum number of messages that are read without a pause, in which other tasks of the thread run.
const MAX_READS: usize = 512;
/// Memory that a waiting message takes besides its bytes.
const MESSAGE_BYTES: usize = 256;

/// Length of the data of a block from which it stays in the memory of its message, in bytes. Few of this length wait.
const SHARED_BYTES: usize = 256 * 1024;

/// Returns the same data in memory of its own. Otherwise a few bytes keep all of the memory into which their message
/// was received, which may be megabytes: fields that are repeated or unknown count as nothing.
pub(super) fn detached(data: Bytes) -> Bytes {
    if data.len() < SHARED_BYTES { Bytes::copy_from_slice(&data) } else { data }
}

/// A message that waits for its operation.
pub(super) struct Waiting<M> {
    pub(super) message: M,
    /// Number of bytes of the message.
    pub(super) bytes: usize,
    /// Number of bytes of the block in the message.
    pub(super) block_bytes: usize,
}

/// The running operations.
pub(super) trait Running<F: Future>: Stream<Item = F::Output> + Unpin {
    fn add(&mut self, operation: F);

    /// Returns the number of operations whose outputs were not taken.
    fn pending(&self) -> usize;
}

impl<F: Future> Running<F> for FuturesOrdered<F> {
    fn add(&mut self, operation: F) {
        self.push_back(operation);
    }

    fn pending(&self) -> usize {
        self.len()
    }
}

impl<F: Future> Running<F> for FuturesUnordered<F> {
    fn add(&mut self, operation: F) {
        self.push(operation);
    }

    fn pending(&self) -> usize {
        self.len()
    }
}

/// The outputs of the operations on the messages of a stream. An error of the stream follows once all operations before
/// it have begun.
pub(super) struct Pipeline<M, R, S> {
    messages: BoxStream<'static, Result<Waiting<M>, Status>>,
    has_ended: bool,
    /// The error with which the stream has ended.
    failure: Option<Status>,
    waiting: VecDeque<Waiting<M>>,
    waiting_bytes: usize,
    /// Memory of the waiting messages.
    memory: RequestMemory,
    running: R,
    window: Arc<Semaphore>,
    start: S,
    /// While the daemon drains, no operation starts.
    lifecycle: Option<Lifecycle>,
}

impl<M, R, S> Pipeline<M, R, S> {
    /// `start` returns the operation on a message, which drops the permit when its block is stored.
    pub(super) fn new(
        messages: BoxStream<'static, Result<Waiting<M>, Status>>,
        memory: RequestMemory,
        running: R,
        start: S,
    ) -> Self {
        Self {
            messages,
            has_ended: false,
            failure: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            memory,
            running,
            window: Arc::new(Semaphore::new(WINDOW_KIB as usize)),
            start,
            lifecycle: None,
        }
    }

    /// Starts no operations while the daemon drains: those that wait are dropped when the messages end.
    pub(super) fn until_drain(self, lifecycle: Lifecycle) -> Self {
        Self { lifecycle: Some(lifecycle), ..self }
    }

    /// Whether a further message may wait. Without memory for it, the client is throttled by its window.
    fn has_room(&mut self) -> bool {
        let count = self.waiting.len();
        let is_free = count < MAX_WAITING && self.waiting_bytes < MAX_WAITING_BYTES;
        count == 0 || (is_free && self.memory.try_grow_to(self.waiting_bytes + (count + 1) * MESSAGE_BYTES))
    }

    /// Reads messages as long as there is room, and subtracts them from `left`.
    fn read(&mut self, left: &mut usize, cx: &mut Context<'_>) {
        while !self.has_ended && self.has_room() {
            if *left == 0 {
                cx.waker().wake_by_ref();
                return;
            }
            *left -= 1;
            match self.messages.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => {
                    self.waiting_bytes += message.bytes;
                    self.waiting.push_back(message);
                }
                Poll::Ready(end) => {
                    self.has_ended = true;
                    self.failure = end.and_then(Result::err);
                }
                Poll::Pending => return,
            }
        }
    }

    /// Starts as many operations as may run. Returns whether there were any.
    fn start<F>(&mut self) -> bool
    where
        F: Future,
        R: Running<F>,
        S: FnMut(M, OwnedSemaphorePermit) -> F,
    {
        if self.has_ended && self.lifecycle.as_ref().is_some_and(Lifecycle::is_draining) {
            self.waiting.clear();
            self.waiting_bytes = 0;
        }
        let before = self.waiting.len();
        while self.running.pending() < MAX_OPERATIONS
            && let Some(next) = self.waiting.front()
        {
            let kibibytes = u32::try_from(next.block_bytes.div_ceil(1_024)).unwrap_or(WINDOW_KIB).clamp(1, WINDOW_KIB);
            let Ok(permit) = Arc::clone(&self.window).try_acquire_many_owned(kibibytes) else { break };
            let Some(next) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= next.bytes;
            self.running.add((self.start)(next.message, permit));
        }
        if self.waiting.is_empty() && self.memory.bytes() > 0 {
            self.memory.release();
        }
        self.waiting.len() < before
    }
}

impl<M, R, S, F> Stream for Pipeline<M, R, S>
where
    M: Unpin,
    F: Future,
    R: Running<F>,
    S: FnMut(M, OwnedSemaphorePermit) -> F + Unpin,
{
    type Item = Result<F::Output, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (this, mut left) = (self.get_mut(), MAX_READS);
        loop {
            this.read(&mut left, cx);
            if this.start() {
                continue;
            }
            if this.waiting.is_empty()
                && let Some(failure) = this.failure.take()
            {
                return Poll::Ready(Some(Err(failure)));
            }
            match this.running.poll_next_unpin(cx) {
                Poll::Ready(Some(output)) => return Poll::Ready(Some(Ok(output))),
                // Nothing waits either, because an operation alone has the whole window.
                Poll::Ready(None) if this.has_ended => return Poll::Ready(None),
                // An operation that has ended while its output waits for others has released its permit.
                Poll::Pending if this.start() => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, stream};
    use ipfrs_middleware::MemoryPool;
    use ipfrs_node::{MemoryStore, Node, NodeConfig};
    use prometheus::Registry;
    use tokio::sync::watch;

    use super::*;

    async fn pool() -> (tempfile::TempDir, MemoryPool) {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await;
        (repo, MemoryPool::register(&node.unwrap(), &Registry::new()).unwrap())
    }

    /// Returns a stream of `count` messages of `bytes` bytes with blocks of `block_bytes`, and how many were read.
    fn messages(
        count: usize,
        bytes: usize,
        block_bytes: usize,
    ) -> (BoxStream<'static, Result<Waiting<usize>, Status>>, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let messages = stream::iter(0..count).map(move |message| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Waiting { message, bytes, block_bytes })
        });
        (messages.boxed(), read)
    }

    #[tokio::test]
    async fn messages_are_read_ahead_within_limits() {
        let (_repo, pool) = pool().await;
        // Number of running operations by the window, and of messages that wait.
        for (bytes, block_bytes, expected) in [
            (10, 0, MAX_OPERATIONS + MAX_WAITING),
            (1_024, 1_000, MAX_OPERATIONS + MAX_WAITING_BYTES / 1_024),
            (2 << 20, 2 << 20, 4 + 1),
        ] {
            let (messages, read) = messages(100_000, bytes, block_bytes);
            let (release, released) = watch::channel(false);
            let start = |message: usize, permit: OwnedSemaphorePermit| {
                let mut released = released.clone();
                async move {
                    released.wait_for(|released| *released).await.unwrap();
                    drop(permit);
                    message
                }
            };
            let mut outputs = Pipeline::new(messages, pool.reservation(), FuturesOrdered::new(), start);
            for _ in 0..=(MAX_OPERATIONS + MAX_WAITING) / MAX_READS {
                assert!(outputs.next().now_or_never().is_none());
            }
            assert_eq!(read.load(Ordering::Relaxed), expected, "messages of {bytes} bytes");
            release.send(true).unwrap();
            for message in 0..100_000 {
                assert_eq!(outputs.next().await.unwrap().unwrap(), message);
            }
            assert!(outputs.next().await.is_none());
        }
    }

    #[test]
    fn few_bytes_do_not_keep_the_memory_of_a_message() {
        let message = Bytes::from(vec![1; 2 << 20]);
        let kept = detached(message.slice(..SHARED_BYTES - 1));
        assert!(message.is_unique() && kept.len() == SHARED_BYTES - 1);
        let shared = detached(message.slice(..SHARED_BYTES));
        assert!(!message.is_unique() && shared.len() == SHARED_BYTES);
    }

    #[tokio::test]
    async fn messages_that_wait_are_dropped_when_the_daemon_drains() {
        let (_repo, pool) = pool().await;
        let (requests, _) = messages(1_000, 10, 0);
        let lifecycle = Lifecycle::default();
        let until = lifecycle.clone();
        let requests = requests.chain(stream::pending()).take_until(async move { until.drain_begun().await });
        let started = AtomicUsize::new(0);
        let (release, released) = watch::channel(false);
        let start = |_: usize, permit: OwnedSemaphorePermit| {
            started.fetch_add(1, Ordering::Relaxed);
            let mut released = released.clone();
            async move {
                released.wait_for(|released| *released).await.unwrap();
                drop(permit);
            }
        };
        let outputs = Pipeline::new(requests.boxed(), pool.reservation(), FuturesUnordered::new(), start);
        let mut outputs = outputs.until_drain(lifecycle.clone());
        for _ in 0..4 {
            assert!(outputs.next().now_or_never().is_none());
        }
        lifecycle.drain();
        assert!(outputs.next().now_or_never().is_none());
        release.send(true).unwrap();
        assert_eq!(outputs.collect::<Vec<_>>().await.len(), MAX_OPERATIONS);
        assert_eq!(started.load(Ordering::Relaxed), MAX_OPERATIONS);
    }

    #[tokio::test]
    async fn failure_follows_the_messages_before_it() {
        let (_repo, pool) = pool().await;
        let (before, _) = messages(1_000, 10, 0);
        let failing = before.chain(stream::iter([Err(Status::cancelled("broken off"))])).boxed();
        let started = AtomicUsize::new(0);
        let start = |_: usize, permit: OwnedSemaphorePermit| {
            started.fetch_add(1, Ordering::Relaxed);
            async move { drop(permit) }
        };
        let outputs = Pipeline::new(failing, pool.reservation(), FuturesUnordered::new(), start);
        let outputs: Vec<_> = outputs.collect().await;
        assert!(outputs.iter().any(Result::is_err));
        assert_eq!(started.load(Ordering::Relaxed), 1_000);
    }
}

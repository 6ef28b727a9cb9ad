//! A UnixFS file as a stream of slices of its blocks.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{FileNode, Node, decode_async};

use crate::walk::{Accepted, Walk};
use crate::{Span, StreamingConfig};

/// Most pieces that wait to be taken when further blocks are asked for; what bounds a file of tiny blocks.
const MAX_READY_PIECES: usize = 256;

/// Reads a span of a UnixFS file: a stream of pieces that are slices of the file's blocks, nothing copied.
///
/// * Only blocks that have bytes in the span are fetched.
/// * Blocks are asked of the store in batches ahead of the consumer, at most a window of
///   [`FlowControl::window_bytes`](crate::FlowControl::window_bytes) (and one block more, where blocks are larger than
///   half a window). The next batch is started while half a window is still to be taken, so that the store can wait for
///   a disk while the connection sends.
/// * All work happens when the stream is polled. A consumer that stops polling stops the reader; dropping it cancels what
///   is under way. Taking blocks that are in memory uses up the budget of a Tokio task, so that others run in between
///   however many nodes lie above the next byte.
/// * The stream yields exactly the span's bytes, or else an error as its last item: a block that is missing
///   ([`ErrorKind::NotFound`](ipfrs_core::ErrorKind)), that holds more or fewer bytes than its parent says
///   ([`ErrorKind::Corrupt`](ipfrs_core::ErrorKind)), or a DAG over the limits
///   ([`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)). No byte beyond what was promised is ever yielded.
pub struct DagReader {
    store: Arc<dyn BlockStore>,
    chunk_bytes: usize,
    window_bytes: u64,
    /// `None` once all blocks have been asked for and accepted, or reading has failed.
    walk: Option<Walk>,
    batch: Option<Batch>,
    ready: VecDeque<Bytes>,
    ready_bytes: u64,
    remaining: u64,
    failed: Option<Error>,
}

/// Blocks that the store was asked for.
struct Batch {
    /// What they are; `None` for those that the store does not have.
    nodes: BoxStream<'static, Result<Option<Node>>>,
    /// How many have not arrived.
    left: usize,
}

impl DagReader {
    /// A reader of `span` of `file`, a root that was decoded before. The blocks below it come from `store`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, file: &FileNode, span: Span, config: &StreamingConfig) -> Self {
        let mut reader = Self {
            store,
            chunk_bytes: (config.chunk_size as usize).max(1),
            window_bytes: config.flow_control.window_bytes(),
            walk: None,
            batch: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            remaining: span.len,
            failed: None,
        };
        match Walk::new(file, span, config) {
            Ok((walk, data)) => {
                reader.walk = Some(walk);
                reader.push(data);
            }
            Err(error) => reader.failed = Some(error),
        }
        reader
    }

    /// Bytes of the span that have not been taken yet.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    fn push(&mut self, data: Bytes) {
        if !data.is_empty() {
            self.ready_bytes += data.len() as u64;
            self.ready.push_back(data);
        }
    }

    /// Takes what has arrived and asks for what is next, until the window is full or the store has to wait.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while self.walk.is_some() {
            let Some(batch) = &mut self.batch else {
                if !self.start_batch() {
                    return;
                }
                continue;
            };
            let Poll::Ready(item) = batch.nodes.poll_next_unpin(cx) else { return };
            batch.left -= 1;
            if batch.left == 0 {
                self.batch = None;
            }
            if let Err(error) = self.accept(item) {
                self.failed = Some(error);
                self.walk = None;
                self.batch = None;
            }
        }
    }

    /// Asks the store for the next blocks; `false` where there is no room, or nothing left to ask for.
    fn start_batch(&mut self) -> bool {
        if self.ready_bytes > self.window_bytes / 2 || self.ready.len() >= MAX_READY_PIECES {
            return false;
        }
        let budget = self.window_bytes - self.ready_bytes;
        let Some(run) = self.walk.as_mut().and_then(|walk| walk.plan(budget)) else {
            self.walk = None;
            if self.ready_bytes != self.remaining {
                self.failed = Some(Error::internal("the blocks of a file ended before its bytes did"));
            }
            return false;
        };
        let left = run.len();
        let nodes = self.store.get_many(run).then(|item| async {
            match item? {
                (cid, Some(block)) => decode_async(cid, block).await.map(Some),
                (_, None) => Ok(None),
            }
        });
        self.batch = Some(Batch { left, nodes: nodes.boxed() });
        true
    }

    fn accept(&mut self, item: Option<Result<Option<Node>>>) -> Result<()> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
        let node = item.unwrap_or_else(|| Err(Error::internal("the store left out a block that it was asked for")))?;
        let Accepted { data, interrupts } = walk.accept(node)?;
        if interrupts {
            self.batch = None;
        }
        self.push(data);
        Ok(())
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        let front = self.ready.front_mut()?;
        let piece =
            if front.len() > self.chunk_bytes { front.split_to(self.chunk_bytes) } else { self.ready.pop_front()? };
        self.ready_bytes -= piece.len() as u64;
        self.remaining -= piece.len() as u64;
        Some(piece)
    }
}

impl Stream for DagReader {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.get_mut();
        reader.fill(cx);
        if let Some(piece) = reader.next_piece() {
            return Poll::Ready(Some(Ok(piece)));
        }
        match reader.failed.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None if reader.walk.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for DagReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.batch.as_ref().map_or(0, |batch| batch.left);
        f.debug_struct("DagReader")
            .field("remaining", &self.remaining)
            .field("ready_bytes", &self.ready_bytes)
            .field("blocks_asked_for", &asked)
            .finish_non_exhaustive()
    }
}

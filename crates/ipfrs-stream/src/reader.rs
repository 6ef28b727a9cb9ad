//! A UnixFS file as a stream of slices of its blocks.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::{BlockStore, StoreEpoch};
use ipfrs_unixfs::{FileNode, Node, decode_measured};
use tokio::task::coop::poll_proceed;

use crate::source::StoreRef;
use crate::walk::{Accepted, Walk};
use crate::{MEASURED_PARTS, NodeCache, Span, StreamingConfig};

/// Number of queued pieces from which no further blocks are requested. This bounds the memory of a file of tiny
/// blocks.
const MAX_READY_PIECES: usize = 256;

/// Memory of the links of a reader up to which it is not counted, in bytes. Nodes of ordinary files need less.
const UNCOUNTED_BYTES: usize = 64 * 1024;

/// Counts the memory of the links that a reader holds, in bytes, or refuses it.
type CountMemory = Box<dyn FnMut(usize) -> Result<()> + Send>;

/// A reader of a span of a UnixFS file. It is a stream of pieces that are slices of the file's blocks, without
/// copying.
///
/// * The reader fetches only blocks that have bytes in the span, and skips inner nodes that are in its [node
///   cache](Self::with_nodes).
/// * It requests blocks from the store in batches ahead of the consumer. The read-ahead is at most a window of
///   [`FlowControl::window_bytes`](crate::FlowControl::window_bytes), plus one block if blocks are larger than half a
///   window. The next batch starts while half a window is still queued, so the store can wait for a disk while the
///   connection sends.
/// * All work happens when the stream is polled. A consumer that stops polling stops the reader, and dropping the
///   reader cancels outstanding requests. Taking blocks that are in memory consumes the budget of a Tokio task, so
///   other tasks run in between even if many nodes precede the next byte.
/// * The stream yields exactly the bytes of the span, or an error as its last item. The error reports a block that is
///   missing ([`ErrorKind::NotFound`](ipfrs_core::ErrorKind)), a block whose size differs from the size that its
///   parent declares ([`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind)), or a DAG that exceeds the limits
///   ([`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)). The stream never yields a byte beyond the declared size.
pub struct DagReader {
    store: Arc<dyn BlockStore>,
    nodes: Option<Arc<NodeCache>>,
    /// Number of parts that may still be read to find sizes.
    measurable: Arc<AtomicUsize>,
    chunk_bytes: usize,
    window_bytes: u64,
    /// The walk, or `None` once all blocks have been requested and accepted or reading has failed.
    walk: Option<Walk>,
    batch: Option<Batch>,
    /// `None` if nothing counts the memory, and at the end of the walk.
    count: Option<CountMemory>,
    /// Memory that was counted last, in bytes.
    counted: usize,
    ready: VecDeque<Bytes>,
    ready_bytes: u64,
    remaining: u64,
    failed: Option<Error>,
}

/// Blocks that were requested from the store.
struct Batch {
    nodes: Nodes,
    /// Number of blocks that have not arrived.
    left: usize,
    /// Store epoch at the time of the request, if a node of the batch may be worth caching.
    epoch: Option<StoreEpoch>,
}

/// The decoded nodes of the requested blocks; `None` for each block that the store does not have.
enum Nodes {
    One(BoxFuture<'static, Result<Option<Node>>>),
    Many(BoxStream<'static, Result<Option<Node>>>),
}

impl Nodes {
    /// Polls for the next node. The caller must not poll for more nodes than were requested.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Node>>> {
        match self {
            Self::One(node) => node.as_mut().poll(cx),
            Self::Many(nodes) => nodes
                .poll_next_unpin(cx)
                .map(|item| item.unwrap_or_else(|| Err(Error::internal("the store omitted a requested block")))),
        }
    }
}

impl DagReader {
    /// Creates a reader of `span` of `file`, a decoded root. The blocks below it are read from `store`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, file: &FileNode, span: Span, config: &StreamingConfig) -> Self {
        let mut reader = Self {
            measurable: Arc::new(AtomicUsize::new(MEASURED_PARTS)),
            store,
            nodes: None,
            chunk_bytes: (config.chunk_size as usize).max(1),
            window_bytes: config.flow_control.window_bytes(),
            walk: None,
            batch: None,
            count: None,
            counted: 0,
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

    /// Makes the reader look up inner nodes in `nodes`, and add the nodes that it has to decode.
    #[must_use]
    pub fn with_nodes(mut self, nodes: Option<Arc<NodeCache>>) -> Self {
        self.nodes = nodes;
        self
    }

    /// Makes the reader pass the memory of the links that it holds to `count`, in bytes, whenever much of it changes.
    /// The reader fails with the error of `count`, and drops it at the end.
    #[must_use]
    pub fn with_memory(mut self, count: impl FnMut(usize) -> Result<()> + Send + 'static) -> Self {
        self.count = Some(Box::new(count));
        let counted = self.count_memory();
        self.note(counted);
        self
    }

    fn count_memory(&mut self) -> Result<()> {
        let bytes = self.walk.as_ref().map_or(0, Walk::memory_bytes);
        if bytes == self.counted || bytes.max(self.counted) <= UNCOUNTED_BYTES {
            return Ok(());
        }
        self.counted = bytes;
        self.count.as_mut().map_or(Ok(()), |count| count(bytes))
    }

    /// Ends the walk, which frees its memory.
    fn end_walk(&mut self) {
        self.walk = None;
        self.count = None;
    }

    /// Returns the number of bytes of the span that have not been taken yet.
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

    /// Takes the blocks that have arrived and requests the next ones, until the window is full or the store has to
    /// wait.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.walk.is_some() {
            if let Some(batch) = &mut self.batch {
                let item = ready!(batch.nodes.poll_next(cx));
                batch.left -= 1;
                let epoch = batch.epoch;
                if batch.left == 0 {
                    self.batch = None;
                }
                let accepted = item.and_then(|node| self.accept(node, epoch));
                self.note(accepted);
                continue;
            }
            let Some(run) = self.plan() else { break };
            match self.cached_node(&run) {
                Some(node) => {
                    let opened = self.open(&node);
                    self.note(opened);
                    // Even if many nodes are cached, other tasks run in between.
                    ready!(poll_proceed(cx)).made_progress();
                }
                None => self.request(run),
            }
        }
        Poll::Ready(())
    }

    /// Stops reading if `outcome` is an error.
    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.failed = Some(error);
            self.end_walk();
            self.batch = None;
        }
    }

    /// Returns the next blocks to request, or `None` if the window is full or no blocks are left.
    fn plan(&mut self) -> Option<Vec<Cid>> {
        if self.ready_bytes > self.window_bytes / 2 || self.ready.len() >= MAX_READY_PIECES {
            return None;
        }
        let budget = self.window_bytes - self.ready_bytes;
        let run = self.walk.as_mut()?.plan(budget);
        if run.is_none() {
            self.end_walk();
            if self.ready_bytes != self.remaining {
                self.failed = Some(Error::internal("the blocks of a file have fewer bytes than the file"));
            }
        }
        run
    }

    /// Returns the cached node of a run that consists of one node. A node that has, or may have, children forms a run
    /// of its own.
    fn cached_node(&self, run: &[Cid]) -> Option<Arc<FileNode>> {
        match run {
            [one] => self.nodes.as_ref()?.get(one),
            _ => None,
        }
    }

    /// Requests a run of blocks from the store.
    fn request(&mut self, run: Vec<Cid>) {
        let left = run.len();
        let epoch = self.nodes.as_ref().map(|nodes| nodes.epoch());
        let nodes = if let [cid] = *run {
            let (store, left) = (self.store.clone(), self.measurable.clone());
            Nodes::One(Box::pin(async move { decoded(&*store, cid, store.get(&cid).await?, &left).await }))
        } else {
            let (store, left) = (self.store.clone(), self.measurable.clone());
            let nodes = self.store.get_many(run).then(move |item| {
                let (store, left) = (store.clone(), left.clone());
                async move {
                    let (cid, block) = item?;
                    decoded(&*store, cid, block, &left).await
                }
            });
            Nodes::Many(nodes.boxed())
        };
        self.batch = Some(Batch { nodes, left, epoch });
    }

    /// Accepts the next requested block.
    fn accept(&mut self, node: Option<Node>, epoch: Option<StoreEpoch>) -> Result<()> {
        let Some(walk) = &self.walk else { return Ok(()) };
        let Some(Node::File(node)) = node else { return Err(walk.refusal(node.is_some())) };
        let cid = if node.children.is_empty() { None } else { walk.expected() };
        self.open(&node)?;
        if let (Some(nodes), Some(cid), Some(epoch)) = (&self.nodes, cid, epoch) {
            nodes.keep(cid, node, epoch);
        }
        Ok(())
    }

    /// Continues the walk with a decoded node.
    fn open(&mut self, node: &FileNode) -> Result<()> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
        let Accepted { data, interrupts } = walk.accept(node)?;
        if interrupts {
            self.batch = None;
        }
        self.push(data);
        self.count_memory()
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

/// Decodes a block, if the store has it.
async fn decoded(store: &dyn BlockStore, cid: Cid, block: Option<Bytes>, left: &AtomicUsize) -> Result<Option<Node>> {
    let Some(block) = block else { return Ok(None) };
    let node = decode_measured(&StoreRef(store), cid, block, left).await;
    node.map(Some).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => {
            Error::invalid_content(format!("part of a file is not UnixFS: {error}")).with_source(error)
        }
        _ => error,
    })
}

impl Stream for DagReader {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.get_mut();
        // If the store is not ready, the reader polls it again when the queue needs more bytes.
        let _waits = reader.fill(cx).is_pending();
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

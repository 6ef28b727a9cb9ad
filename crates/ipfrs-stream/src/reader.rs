//! A UnixFS file as a stream of slices of its blocks.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{FileNode, Node, decode_async};
use tokio::task::coop::poll_proceed;

use crate::node_cache::Moment;
use crate::walk::{Accepted, Walk};
use crate::{NodeCache, Span, StreamingConfig};

/// Most pieces that wait to be taken when further blocks are asked for; what bounds a file of tiny blocks.
const MAX_READY_PIECES: usize = 256;

/// Reads a span of a UnixFS file: a stream of pieces that are slices of the file's blocks, nothing copied.
///
/// * Only blocks that have bytes in the span are fetched, and of those on the way there none that
///   [is known](Self::with_nodes).
/// * Blocks are asked of the store in batches ahead of the consumer, at most a window of
///   [`FlowControl::window_bytes`](crate::FlowControl::window_bytes) (and one block more, where blocks are larger than
///   half a window). The next batch is started while half a window is still to be taken, so that the store can wait for
///   a disk while the connection sends.
/// * All work happens when the stream is polled. A consumer that stops polling stops the reader; dropping it cancels what
///   is under way. Taking blocks that are in memory uses up the budget of a Tokio task, so that others run in between
///   however many nodes lie above the next byte.
/// * The stream yields exactly the span's bytes, or else an error as its last item: a block that is missing
///   ([`ErrorKind::NotFound`](ipfrs_core::ErrorKind)), that holds more or fewer bytes than its parent says
///   ([`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind)), or a DAG over the limits
///   ([`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)). No byte beyond what was promised is ever yielded.
pub struct DagReader {
    store: Arc<dyn BlockStore>,
    nodes: Option<Arc<NodeCache>>,
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
    nodes: Nodes,
    /// How many have not arrived.
    left: usize,
    /// When they were asked for, where one of them may be worth keeping.
    asked: Option<Moment>,
}

/// What blocks that the store was asked for are; `None` for those that it does not have.
enum Nodes {
    One(BoxFuture<'static, Result<Option<Node>>>),
    Many(BoxStream<'static, Result<Option<Node>>>),
}

impl Nodes {
    /// The next one. Not to be asked for more than there are.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Node>>> {
        match self {
            Self::One(node) => node.as_mut().poll(cx),
            Self::Many(nodes) => nodes.poll_next_unpin(cx).map(|item| {
                item.unwrap_or_else(|| Err(Error::internal("the store left out a block that it was asked for")))
            }),
        }
    }
}

impl DagReader {
    /// A reader of `span` of `file`, a root that was decoded before. The blocks below it come from `store`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, file: &FileNode, span: Span, config: &StreamingConfig) -> Self {
        let mut reader = Self {
            store,
            nodes: None,
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

    /// The same reader, which looks for nodes among those that are kept, and keeps those that it has to decode.
    #[must_use]
    pub fn with_nodes(mut self, nodes: Option<Arc<NodeCache>>) -> Self {
        self.nodes = nodes;
        self
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
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.walk.is_some() {
            if let Some(batch) = &mut self.batch {
                let item = ready!(batch.nodes.poll_next(cx));
                batch.left -= 1;
                let asked = batch.asked;
                if batch.left == 0 {
                    self.batch = None;
                }
                let accepted = item.and_then(|node| self.accept(node, asked));
                self.note(accepted);
                continue;
            }
            let Some(run) = self.plan() else { break };
            match self.known(&run) {
                Some(node) => {
                    let opened = self.open(&node);
                    self.note(opened);
                    // However many nodes are known on the way, others run in between.
                    ready!(poll_proceed(cx)).made_progress();
                }
                None => self.ask(run),
            }
        }
        Poll::Ready(())
    }

    /// Ends the reading where it has failed.
    fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.failed = Some(error);
            self.walk = None;
            self.batch = None;
        }
    }

    /// The next blocks; `None` where there is no room, or nothing left to ask for.
    fn plan(&mut self) -> Option<Vec<Cid>> {
        if self.ready_bytes > self.window_bytes / 2 || self.ready.len() >= MAX_READY_PIECES {
            return None;
        }
        let budget = self.window_bytes - self.ready_bytes;
        let run = self.walk.as_mut()?.plan(budget);
        if run.is_none() {
            self.walk = None;
            if self.ready_bytes != self.remaining {
                self.failed = Some(Error::internal("the blocks of a file ended before its bytes did"));
            }
        }
        run
    }

    /// The node that a run consists of, where it is kept. What has, or may have, children is a run of its own.
    fn known(&self, run: &[Cid]) -> Option<Arc<FileNode>> {
        match run {
            [one] => self.nodes.as_ref()?.get(one),
            _ => None,
        }
    }

    /// Asks the store for a run of blocks.
    fn ask(&mut self, run: Vec<Cid>) {
        let left = run.len();
        let asked = self.nodes.as_ref().map(|nodes| nodes.now());
        let nodes = if let [cid] = *run {
            let store = self.store.clone();
            Nodes::One(Box::pin(async move { decoded(cid, store.get(&cid).await?).await }))
        } else {
            let nodes = self.store.get_many(run).then(|item| async {
                let (cid, block) = item?;
                decoded(cid, block).await
            });
            Nodes::Many(nodes.boxed())
        };
        self.batch = Some(Batch { nodes, left, asked });
    }

    /// Takes a block that was asked for.
    fn accept(&mut self, node: Option<Node>, asked: Option<Moment>) -> Result<()> {
        let Some(walk) = &self.walk else { return Ok(()) };
        let Some(Node::File(node)) = node else { return Err(walk.refusal(node.is_some())) };
        let cid = if node.children.is_empty() { None } else { walk.expected().copied() };
        self.open(&node)?;
        if let (Some(nodes), Some(cid), Some(asked)) = (&self.nodes, cid, asked) {
            nodes.keep(cid, node, asked);
        }
        Ok(())
    }

    /// Goes on with a node.
    fn open(&mut self, node: &FileNode) -> Result<()> {
        let Some(walk) = &mut self.walk else { return Ok(()) };
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

/// What a block is, where it is there.
async fn decoded(cid: Cid, block: Option<Bytes>) -> Result<Option<Node>> {
    match block {
        Some(block) => decode_async(cid, block).await.map(Some).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Error::invalid_content(format!("part of a file is not UnixFS: {error}")),
            _ => error,
        }),
        None => Ok(None),
    }
}

impl Stream for DagReader {
    type Item = Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.get_mut();
        // What waits is asked for again when its bytes are wanted.
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

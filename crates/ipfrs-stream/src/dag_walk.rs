//! A stream of the blocks of a DAG, or of a part of one, in the block order of a CAR.

mod frame;
mod part;
mod seen;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::Stream;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result, identity_payload};
use ipfrs_store::{BlockStore, StoredSection};
use parking_lot::Mutex;
use tokio::task::coop::consume_budget;

use frame::{Frame, Path};
pub use part::Part;
use part::{Below, Links, has_no_links, links_below};
use seen::Seen;

use crate::{MEASURED_PARTS, StreamingConfig};

/// Most blocks in the queue for the consumer. This bounds the memory of a DAG of tiny blocks. The prefixes of so few
/// blocks, which the lookup has read, are still in the processor's cache when they are sent.
const MAX_READY_BLOCKS: usize = 256;

/// Links that consume one unit of a Tokio task's cooperative budget.
const LINKS_PER_TURN: usize = 32;

/// A stream of the blocks of a DAG, depth first. Each node comes before the nodes that it links to, and links are
/// followed in the order of their node. This is the order `dfs` of CARs
/// (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>, "CAR order").
///
/// * The stream yields each block once, where the walk first meets it, unless [`Self::along`] is called with
///   `repeats`. A block that is linked to under two codecs counts as two blocks, because its links differ by codec.
///   Identity blocks are traversed; a [path walk](Self::along) does not yield them.
/// * The walk requests the blocks that a node links to from the store together. It reads ahead of the consumer by at
///   most a window of [`FlowControl::window_bytes`](crate::FlowControl::window_bytes). The order does not depend on
///   when blocks arrive.
/// * All work happens when the stream is polled. Dropping the stream cancels outstanding requests. The walk consumes
///   the budget of a Tokio task and decodes large nodes on a blocking thread, so it needs a Tokio runtime.
/// * An error is the last item. It reports a block that is missing ([`ErrorKind::NotFound`](ipfrs_core::ErrorKind))
///   or that cannot be decoded with its codec, a chain of more than [`StreamingConfig::max_dag_depth`] nodes, or more
///   than [`MAX_DAG_BLOCKS`](ipfrs_core::limits::MAX_DAG_BLOCKS) blocks
///   ([`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)).
/// * Memory is bounded by the window, the [set](crate::Visited) of visited blocks, and the state of the nodes between
///   the root and the current node. Without `repeats`, the walk keeps that set; with `repeats`, it keeps none. The
///   state takes about 70 bytes for most nodes, and nothing for a node whose last link is being followed.
pub struct DagWalk {
    /// The walk, or `None` once it has ended.
    walk: Option<BoxFuture<'static, Result<()>>>,
    ready: Arc<Mutex<Ready>>,
    failed: Option<Error>,
}

/// A block that a walk has met.
#[derive(Debug)]
pub(crate) struct Walked {
    pub(crate) cid: Cid,
    pub(crate) section: StoredSection,
    /// Number of links from the root.
    depth: u32,
}

impl Walked {
    fn into_block(self) -> Block {
        Block::trusted(self.cid, self.section.data())
    }
}

/// Blocks that the consumer has not taken yet.
#[derive(Debug)]
struct Ready {
    blocks: VecDeque<Walked>,
    bytes: usize,
    window_bytes: usize,
}

impl Ready {
    fn is_full(&self) -> bool {
        self.bytes >= self.window_bytes || self.blocks.len() >= MAX_READY_BLOCKS
    }

    /// Returns whether the walk should continue before the next block is taken.
    fn is_low(&self) -> bool {
        self.bytes <= self.window_bytes / 2 && self.blocks.len() <= MAX_READY_BLOCKS / 2
    }

    fn push(&mut self, block: Walked) {
        self.bytes += block.section.data_len();
        self.blocks.push_back(block);
    }

    fn pop(&mut self) -> Option<Walked> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.section.data_len();
        Some(block)
    }
}

impl DagWalk {
    /// Creates a walk over the DAGs below each of `roots`, one after the other. Blocks are read from `store`. Identity
    /// blocks are yielded too.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, roots: Vec<Cid>, config: &StreamingConfig) -> Self {
        Self::over(
            store,
            Links { cids: roots.into_iter().collect(), below: Below::Each(Part::All) },
            Kinds { has_identity: true, ..Kinds::default() },
            config,
        )
    }

    /// Creates a walk over the blocks of `path`, without their descendants, and then over `part` of the DAG below
    /// `target`. The result contains every block that a client needs to follow the path and to read its target. If
    /// `repeats` is true, the stream yields a block each time that the walk meets it.
    #[must_use]
    pub fn along(
        store: Arc<dyn BlockStore>,
        path: Vec<Cid>,
        target: Cid,
        part: Part,
        repeats: bool,
        config: &StreamingConfig,
    ) -> Self {
        let cids = path.into_iter().chain([target]).collect();
        Self::over(store, Links { cids, below: Below::Last(part) }, Kinds { repeats, ..Kinds::default() }, config)
    }

    /// Creates a walk as [`Self::new`] does, but leaves out blocks that are missing or unreadable, and all blocks that
    /// only they lead to. A block that its codec cannot decode has no links.
    #[must_use]
    pub fn of_available(store: Arc<dyn BlockStore>, roots: Vec<Cid>, config: &StreamingConfig) -> Self {
        let roots = Links { cids: roots.into_iter().collect(), below: Below::Each(Part::All) };
        Self::over(store, roots, Kinds { is_partial: true, has_identity: true, ..Kinds::default() }, config)
    }

    fn over(store: Arc<dyn BlockStore>, roots: Links, kinds: Kinds, config: &StreamingConfig) -> Self {
        let path = Path::new(Frame::of_roots(roots));
        let window_bytes = usize::try_from(config.flow_control.window_bytes()).unwrap_or(usize::MAX);
        let ready = Arc::new(Mutex::new(Ready { blocks: VecDeque::new(), bytes: 0, window_bytes }));
        let (config, seen) = (config.clone(), Seen::new(kinds.repeats));
        let measurable = AtomicUsize::new(MEASURED_PARTS);
        let walk = Walk { store, config, seen, path, ready: Arc::clone(&ready), kinds, measurable };
        Self { walk: Some(walk.run().boxed()), ready, failed: None }
    }

    /// Converts this walk into a stream that yields each block with its depth, the number of links from the root.
    #[must_use]
    pub fn with_depths(self) -> DepthWalk {
        DepthWalk(self)
    }

    /// Returns the next block. The walk fills the window with the blocks that are available without waiting.
    pub(crate) fn poll_walked(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Walked>>> {
        if let Some(walk) = self.walk.as_mut().filter(|_| self.ready.lock().is_low())
            && let Poll::Ready(ended) = walk.poll_unpin(cx)
        {
            (self.walk, self.failed) = (None, ended.err());
        }
        if let Some(block) = self.ready.lock().pop() {
            return Poll::Ready(Some(Ok(block)));
        }
        match self.failed.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None if self.walk.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl Stream for DagWalk {
    type Item = Result<Block>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_walked(cx).map_ok(Walked::into_block)
    }
}

/// A [`DagWalk`] that also yields depths. Created by [`DagWalk::with_depths`].
#[derive(Debug)]
pub struct DepthWalk(DagWalk);

impl Stream for DepthWalk {
    type Item = Result<(Block, u32)>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_walked(cx).map_ok(|walked| {
            let depth = walked.depth;
            (walked.into_block(), depth)
        })
    }
}

impl fmt::Debug for DagWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DagWalk").field("ready", &self.ready).finish_non_exhaustive()
    }
}

/// The traversal itself. It reads ahead of the consumer by at most one run of blocks.
struct Walk {
    store: Arc<dyn BlockStore>,
    config: StreamingConfig,
    seen: Seen,
    path: Path,
    ready: Arc<Mutex<Ready>>,
    kinds: Kinds,
    /// Number of parts that may still be read to find sizes.
    measurable: AtomicUsize,
}

/// Blocks that a walk yields.
#[derive(Debug, Clone, Copy, Default)]
struct Kinds {
    /// Whether a block is yielded each time that the walk meets it.
    repeats: bool,
    /// Whether blocks that are not available are left out.
    is_partial: bool,
    /// Whether identity blocks are yielded.
    has_identity: bool,
}

impl Walk {
    async fn run(mut self) -> Result<()> {
        while let Some(frame) = self.path.current(&self.store, &self.measurable).await? {
            let (cid, part) = frame.take()?;
            let depth = frame.depth;
            if frame.next % LINKS_PER_TURN == 0 {
                consume_budget().await;
            }
            if let Some(payload) = identity_payload(&cid) {
                let data = Bytes::copy_from_slice(payload);
                self.open(cid, data.clone(), part, depth).await?;
                if self.kinds.has_identity
                    && self.seen.insert(&cid, part)?
                    && self.hand_over(Walked { cid, section: data.into(), depth })
                {
                    self.until_taken().await;
                }
            } else if !self.seen.is_done(&cid, part) {
                let section = match self.path.fetch(&cid, &self.store, &self.seen).await {
                    Err(error) if self.kinds.is_partial && is_unavailable(&error) => continue,
                    section => section?,
                };
                let is_new = self.seen.insert(&cid, part)?;
                if !has_no_links(&cid, section.bytes()) {
                    self.open(cid, section.data(), part, depth).await?;
                }
                if is_new && self.hand_over(Walked { cid, section, depth }) {
                    self.until_taken().await;
                }
            }
        }
        Ok(())
    }

    /// Passes a block to the consumer. Returns whether the window is full then. The caller waits: a future that did
    /// would move each block once more.
    fn hand_over(&self, block: Walked) -> bool {
        let mut ready = self.ready.lock();
        ready.push(block);
        ready.is_full()
    }

    /// Waits while the window is full. Nothing wakes this wait: the consumer polls the walk again when it has taken
    /// enough blocks.
    async fn until_taken(&mut self) {
        poll_fn(|_| if self.ready.lock().is_full() { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    /// Descends into a block that `depth` links lead to, if it has links within `part`.
    async fn open(&mut self, cid: Cid, data: Bytes, part: Part, depth: u32) -> Result<()> {
        let links = match self.path.take_links(&cid, part, depth) {
            Some(links) => {
                consume_budget().await;
                links
            }
            None => match links_below(&*self.store, &self.measurable, cid, data, part).await {
                Err(error) if self.kinds.is_partial && is_undecodable(&error) => return Ok(()),
                links => links?,
            },
        };
        if links.cids.is_empty() {
            return Ok(());
        }
        if depth >= self.config.max_dag_depth {
            return Err(self.config.too_deep("the DAG", &format_args!("block {cid}")));
        }
        self.path.push(Frame::new(cid, part, links, depth + 1));
        Ok(())
    }
}

fn is_unavailable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt)
}

fn is_undecodable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidContent | ErrorKind::Unsupported)
}

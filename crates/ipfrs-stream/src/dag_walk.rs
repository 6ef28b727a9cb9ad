//! The blocks of a DAG, or of a part of one, in the order of a CAR.

mod frame;
mod part;
mod seen;

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use ipfrs_core::{Block, Cid, Error, Result, identity_payload};
use ipfrs_store::BlockStore;
use tokio::task::coop::consume_budget;

use frame::{Frame, Path};
pub use part::Part;
use part::{Below, Links, links_below};
use seen::Seen;

use crate::StreamingConfig;

/// Most blocks that wait to be taken: what bounds a DAG of tiny blocks.
const MAX_READY_BLOCKS: usize = 1024;

/// Links that are one unit of a task's budget.
const LINKS_PER_TURN: usize = 32;

/// The blocks of a DAG, depth first, each node before what it links to and links in the order of their node: the order
/// `dfs` of CARs (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>, "CAR order").
///
/// * Each block is given once, where the walk first meets it, unless [`Self::along`] asks for repetitions. One that is
///   linked to under two codecs is two blocks: what it links to is not the same. Identity blocks are walked through and
///   never given.
/// * The blocks that a node links to are asked of the store together, and the walk goes on ahead of the consumer by at most
///   a window of [`FlowControl::window_bytes`](crate::FlowControl::window_bytes). The order does not depend on when blocks
///   arrive.
/// * All work happens when the stream is polled. Dropping it cancels what is under way. The walk uses up the budget of a
///   Tokio task, and large nodes are decoded on a blocking thread; it needs a Tokio runtime.
/// * An error is the last item: a block that is missing ([`ErrorKind::NotFound`](ipfrs_core::ErrorKind)) or that cannot be
///   read as its codec says, more than [`StreamingConfig::max_dag_depth`] nodes in a line, more than
///   [`MAX_DAG_BLOCKS`](ipfrs_core::limits::MAX_DAG_BLOCKS) blocks ([`ErrorKind::TooLarge`](ipfrs_core::ErrorKind)).
/// * Memory is bounded by the window, the [set](crate::Visited) of what was visited, which there is none of where blocks
///   are repeated, and what the walk remembers of the nodes on the way from the root: 70 bytes of most of them, and
///   nothing of a node whose last link is followed.
pub struct DagWalk {
    /// `None` once the walk has come to its end.
    walk: Option<BoxStream<'static, Result<(Block, u32)>>>,
    window_bytes: usize,
    ready: VecDeque<(Block, u32)>,
    ready_bytes: usize,
    failed: Option<Error>,
}

impl DagWalk {
    /// A walk over what is below each of `roots`, one after the other. Blocks come from `store`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, roots: Vec<Cid>, config: &StreamingConfig) -> Self {
        Self::over(store, Links { cids: roots.into_iter().collect(), below: Below::Each(Part::All) }, false, config)
    }

    /// A walk over the blocks of `path` without what is below them, then over `part` of the DAG that `target` is the root
    /// of: all that it takes to follow a path, and what it leads to. With `repeats`, a block is given each time that the
    /// walk meets it.
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
        Self::over(store, Links { cids, below: Below::Last(part) }, repeats, config)
    }

    fn over(store: Arc<dyn BlockStore>, roots: Links, repeats: bool, config: &StreamingConfig) -> Self {
        let path = Path::new(Frame::of_roots(roots));
        let walk = Walk { store, config: config.clone(), seen: Seen::new(repeats), path };
        let blocks =
            stream::try_unfold(walk, |mut walk| async move { Ok(walk.next().await?.map(|block| (block, walk))) });
        let window_bytes = usize::try_from(config.flow_control.window_bytes()).unwrap_or(usize::MAX);
        Self { walk: Some(blocks.boxed()), window_bytes, ready: VecDeque::new(), ready_bytes: 0, failed: None }
    }

    /// The same blocks, each with the number of links on the way to it that the walk came.
    #[must_use]
    pub fn with_depths(self) -> DepthWalk {
        DepthWalk(self)
    }

    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(Block, u32)>>> {
        if self.ready_bytes <= self.window_bytes / 2 && self.ready.len() <= MAX_READY_BLOCKS / 2 {
            self.fill(cx);
        }
        if let Some((block, depth)) = self.ready.pop_front() {
            self.ready_bytes -= block.data().len();
            return Poll::Ready(Some(Ok((block, depth))));
        }
        match self.failed.take() {
            Some(error) => Poll::Ready(Some(Err(error))),
            None if self.walk.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// Takes what can be had without waiting, until the window is full.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while let Some(walk) = &mut self.walk {
            if self.ready_bytes >= self.window_bytes || self.ready.len() >= MAX_READY_BLOCKS {
                return;
            }
            match walk.poll_next_unpin(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(block))) => {
                    self.ready_bytes += block.0.data().len();
                    self.ready.push_back(block);
                }
                Poll::Ready(Some(Err(error))) => (self.walk, self.failed) = (None, Some(error)),
                Poll::Ready(None) => self.walk = None,
            }
        }
    }
}

impl Stream for DagWalk {
    type Item = Result<Block>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_block(cx).map_ok(|(block, _)| block)
    }
}

/// A [`DagWalk`] that tells depths; made by [`DagWalk::with_depths`].
#[derive(Debug)]
pub struct DepthWalk(DagWalk);

impl Stream for DepthWalk {
    type Item = Result<(Block, u32)>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_block(cx)
    }
}

impl fmt::Debug for DagWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DagWalk")
            .field("ready_blocks", &self.ready.len())
            .field("ready_bytes", &self.ready_bytes)
            .finish_non_exhaustive()
    }
}

/// The walk itself, without anything ahead of it but the blocks of one run.
struct Walk {
    store: Arc<dyn BlockStore>,
    config: StreamingConfig,
    seen: Seen,
    path: Path,
}

impl Walk {
    /// Returns the next block, and how many links lead to it.
    async fn next(&mut self) -> Result<Option<(Block, u32)>> {
        while let Some(frame) = self.path.current(&self.store).await? {
            let (cid, part) = frame.take()?;
            let depth = frame.depth;
            if frame.next % LINKS_PER_TURN == 0 {
                consume_budget().await;
            }
            if let Some(payload) = identity_payload(&cid) {
                self.open(cid, Bytes::copy_from_slice(payload), part, depth).await?;
            } else if !self.seen.is_done(&cid, part) {
                let data = frame.fetch(&cid, &self.store, &self.seen).await?;
                let is_new = self.seen.insert(&cid, part)?;
                self.open(cid, data.clone(), part, depth).await?;
                if is_new {
                    return Ok(Some((Block::trusted(cid, data), depth)));
                }
            }
        }
        Ok(None)
    }

    /// Goes down to a block that `depth` links lead to, if it has links within `part` of it.
    async fn open(&mut self, cid: Cid, data: Bytes, part: Part, depth: u32) -> Result<()> {
        let links = links_below(cid, data, part).await?;
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

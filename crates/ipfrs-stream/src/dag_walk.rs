//! The blocks of a DAG, or of a part of one, in the order of a CAR.

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

pub use part::Part;
use part::{Below, Links, links_below};
use seen::Seen;

use crate::StreamingConfig;

/// Most blocks that are asked of the store at once.
const MAX_RUN_BLOCKS: usize = 256;

/// Links that are looked at for those that are worth asking for together.
const MAX_RUN_LINKS: usize = 1024;

/// Most blocks that wait to be taken: what bounds a DAG of tiny blocks.
const MAX_READY_BLOCKS: usize = 1024;

/// Links of nodes above the current one that are remembered, about 20 MB. The links of further nodes are read again from
/// their blocks when the walk comes back to them.
const MAX_OPEN_LINKS: usize = 128 * 1024;

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
///   are repeated, and the links of the nodes on the way from the root.
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
        Self::over(store, Links { cids: roots, below: Below::Each(Part::All) }, false, config)
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
        let path = vec![Frame::new(None, roots)];
        let walk = Walk { store, config: config.clone(), seen: Seen::new(repeats), path, open_links: 0 };
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
    /// The nodes from the roots to where the walk is. The first stands for all roots.
    path: Vec<Frame>,
    /// Links that the frames of nodes remember.
    open_links: usize,
}

/// A node whose links are being followed.
struct Frame {
    /// The node, and what of it is walked; `None` for the list of the roots.
    node: Option<(Cid, Bytes, Part)>,
    /// Empty where they were let go.
    links: Vec<Cid>,
    below: Below,
    count: usize,
    /// The first link that has not been followed.
    next: usize,
    run: Option<Run>,
}

/// Blocks that the store was asked for together: some of the links of a node, in order.
struct Run {
    asked: VecDeque<Cid>,
    blocks: BoxStream<'static, Result<(Cid, Option<Bytes>)>>,
}

impl Walk {
    /// The next block, and how many links lead to it.
    async fn next(&mut self) -> Result<Option<(Block, u32)>> {
        while let Some(frame) = self.path.last_mut() {
            if frame.next == frame.count {
                self.open_links -= if frame.node.is_some() { frame.links.len() } else { 0 };
                self.path.pop();
                continue;
            }
            if let (true, Some((cid, data, part))) = (frame.links.is_empty(), &frame.node) {
                frame.links = links_below(*cid, data.clone(), *part).await?.cids;
                self.open_links += frame.links.len();
            }
            let Some(cid) = frame.links.get(frame.next).copied() else {
                return Err(Error::internal("a node has fewer links than it had before"));
            };
            let part = frame.below.part(frame.next, frame.count);
            frame.next += 1;
            if frame.next % LINKS_PER_TURN == 0 {
                consume_budget().await;
            }
            if let Some(payload) = identity_payload(&cid) {
                self.open(cid, Bytes::copy_from_slice(payload), part).await?;
            } else if !self.seen.is_done(&cid, part) {
                let data = frame.fetch(&cid, &self.store, &self.seen).await?;
                // The first frame is that of the roots.
                let depth = u32::try_from(self.path.len() - 1).unwrap_or(u32::MAX);
                let is_new = self.seen.insert(&cid, part)?;
                self.open(cid, data.clone(), part).await?;
                if is_new {
                    return Ok(Some((Block::trusted(cid, data), depth)));
                }
            }
        }
        Ok(None)
    }

    /// Goes down to a block, if it has links within `part` of it.
    async fn open(&mut self, cid: Cid, data: Bytes, part: Part) -> Result<()> {
        let links = links_below(cid, data.clone(), part).await?;
        let count = links.cids.len();
        if count == 0 {
            return Ok(());
        }
        if self.path.len() > self.config.max_dag_depth as usize {
            return Err(self.config.too_deep("the DAG", &format_args!("block {cid}")));
        }
        for frame in self.path.iter_mut().filter(|frame| frame.node.is_some()) {
            if self.open_links + count <= MAX_OPEN_LINKS {
                break;
            }
            self.open_links -= frame.links.len();
            (frame.links, frame.run) = (Vec::new(), None);
        }
        self.open_links += count;
        self.path.push(Frame::new(Some((cid, data, part)), links));
        Ok(())
    }
}

impl Frame {
    fn new(node: Option<(Cid, Bytes, Part)>, links: Links) -> Self {
        let Links { cids, below } = links;
        Self { node, count: cids.len(), links: cids, below, next: 0, run: None }
    }

    /// The block of the link before `next`.
    async fn fetch(&mut self, cid: &Cid, store: &Arc<dyn BlockStore>, seen: &Seen) -> Result<Bytes> {
        let missing = || Error::internal("the store left out a block that it was asked for");
        loop {
            let Some(run) = self.run.as_mut().filter(|run| !run.asked.is_empty()) else {
                self.run = Some(self.plan(store, seen));
                continue;
            };
            // What comes before was met further down since it was asked for.
            let is_wanted = run.asked.pop_front().is_some_and(|asked| asked == *cid);
            let item = run.blocks.next().await.ok_or_else(missing)?;
            if !is_wanted {
                continue;
            }
            let (_, data) = item?;
            return data.ok_or_else(|| {
                let from = self.node.as_ref().map(|(node, ..)| format!(", which {node} links to,")).unwrap_or_default();
                Error::no_block(cid, format!("block {cid}{from} is not in this store"))
            });
        }
    }

    /// Asks for the link before `next` and those after it that have not been met.
    fn plan(&self, store: &Arc<dyn BlockStore>, seen: &Seen) -> Run {
        let ahead = self.links.iter().enumerate().skip(self.next - 1).take(MAX_RUN_LINKS);
        let is_done = |index, cid| seen.is_done(cid, self.below.part(index, self.count));
        let mut asked = VecDeque::new();
        let wanted = ahead.filter(|(index, cid)| identity_payload(cid).is_none() && !is_done(*index, cid));
        for (_, cid) in wanted {
            if asked.len() == MAX_RUN_BLOCKS {
                break;
            }
            // Files of zeros are nodes that link to one block again and again.
            if seen.repeats() || asked.back() != Some(cid) {
                asked.push_back(*cid);
            }
        }
        Run { blocks: store.get_many(asked.iter().copied().collect()), asked }
    }
}

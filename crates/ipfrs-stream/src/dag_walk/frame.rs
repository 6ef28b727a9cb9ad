//! The nodes between the root of a walk and its current position.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use ipfrs_core::{Cid, CidList, Error, Result, identity_payload};
use ipfrs_store::{BlockBatch, BlockStore, Section, StoredSection};
use ipfrs_unixfs::links;

use super::part::{Below, Links, Part, has_no_links, links_below};
use super::seen::Seen;

/// Most blocks that are requested from the store at once.
const MAX_RUN_BLOCKS: usize = 256;

/// Most links that are examined when the next blocks to request are chosen.
const MAX_RUN_LINKS: usize = 1024;

/// Largest node, in bytes, whose links are requested before the walk enters it.
const MAX_AHEAD_NODE_BYTES: usize = 2 * 1024;

/// Most bytes of such nodes that are decoded together, before the task yields to others.
const MAX_AHEAD_BYTES: usize = 64 * 1024;

/// Memory, in bytes, for the links of the nodes above the current one. The links of further nodes are read again from
/// their blocks when the walk returns to them.
const MAX_OPEN_BYTES: usize = 16 * 1024 * 1024;

/// Most nodes above the current one that keep their outstanding store request, of up to 80 kB each.
const MAX_RUNS: usize = 32;

/// The nodes between the roots and the current position, except nodes whose links have all been taken. A linked list
/// of any length, in which the last link of each node leads to the next node, therefore takes no memory.
pub(super) struct Path {
    /// A frame for the list of all roots.
    roots: Frame,
    /// The nodes below the roots that keep no links. `closed_nodes` holds their content IDs.
    closed: Vec<Closed>,
    closed_nodes: CidList,
    /// The nodes below the closed nodes.
    open: VecDeque<Frame>,
    /// Memory of `open`, in bytes.
    open_bytes: usize,
    /// Links of several nodes that follow each other in the node above them.
    ahead: Option<Ahead>,
}

/// Blocks that were requested together although different nodes link to them.
struct Ahead {
    run: Run,
    /// Depth of these nodes' frames.
    depth: u32,
    /// The nodes that the walk has not entered yet, with their links.
    nodes: VecDeque<(Cid, CidList)>,
}

/// A node whose links were dropped and must be read again.
struct Closed {
    part: Part,
    next: u32,
    depth: u32,
}

impl Path {
    pub(super) fn new(roots: Frame) -> Self {
        let (closed, closed_nodes, open) = (Vec::new(), CidList::default(), VecDeque::new());
        Self { roots, closed, closed_nodes, open, open_bytes: 0, ahead: None }
    }

    /// Returns the innermost node that has links left to take, or `None` at the end.
    /// Counts parts that are read to find sizes off `measurable`.
    pub(super) async fn current(
        &mut self,
        store: &Arc<dyn BlockStore>,
        measurable: &AtomicUsize,
    ) -> Result<Option<&mut Frame>> {
        self.drop_done();
        if self.open.is_empty() && !self.closed.is_empty() {
            self.reopen(store, measurable).await?;
        }
        let frame = self.open.back_mut().unwrap_or(&mut self.roots);
        Ok(if frame.is_done() { None } else { Some(frame) })
    }

    /// Returns the block of the link that was taken last from the current node.
    pub(super) async fn fetch(&mut self, cid: &Cid, store: &Arc<dyn BlockStore>, seen: &Seen) -> Result<StoredSection> {
        loop {
            let Some(run) = self.run_with(cid) else {
                self.plan(store, seen);
                continue;
            };
            let next = run.next().await;
            let (requested, found) = next.ok_or_else(|| Error::internal("the store omitted a requested block"))?;
            // The walk may have met earlier blocks of the run deeper in the DAG since it requested them.
            if requested != *cid {
                continue;
            }
            return found?.ok_or_else(|| {
                let node = self.open.back().and_then(|frame| frame.node.as_ref());
                let from = node.map(|(node, _)| format!(", which {node} links to,")).unwrap_or_default();
                Error::no_block(cid, format!("block {cid}{from} is not in this store"))
            });
        }
    }

    /// Returns the run with the next blocks of the current node, if it has been requested.
    fn run_with(&mut self, cid: &Cid) -> Option<&mut Run> {
        let frame = self.open.back_mut().unwrap_or(&mut self.roots);
        let depth = frame.depth;
        let own = frame.run.as_mut().filter(|run| !run.has_ended());
        match (own, &mut self.ahead) {
            (Some(run), _) => Some(run),
            (None, Some(Ahead { run, depth: at, .. })) if *at == depth && run.rest().contains(cid) => Some(run),
            _ => None,
        }
    }

    /// Requests the link that was taken last from the current node, and later links of the node. If these are few, also
    /// requests those of the nodes that follow it: most shards of a large directory have two or three links, and a
    /// request for each shard would cost more than its blocks.
    fn plan(&mut self, store: &Arc<dyn BlockStore>, seen: &Seen) {
        let frame = self.open.back().unwrap_or(&self.roots);
        let (depth, mut requested) = (frame.depth, Vec::new());
        let has_all = frame.request_rest(&mut requested, seen);
        let own = requested.len();
        // Nodes further down must not replace what was requested for those that follow.
        let is_free = self.ahead.as_ref().is_none_or(|ahead| ahead.run.has_ended() || depth <= ahead.depth);
        let above = self.open.iter().nth_back(1).filter(|above| above.depth + 1 == depth);
        let above = above.filter(|_| has_all && is_free);
        let nodes = above.map(|above| above.request_following(&mut requested, seen)).unwrap_or_default();
        let has_more = requested.len() > own;
        let run = Run::new(requested, store);
        if has_more {
            self.ahead = Some(Ahead { run, depth, nodes });
        } else {
            self.open.back_mut().unwrap_or(&mut self.roots).run = Some(run);
        }
    }

    /// Returns the links of a node to which `depth` links lead, if they were read ahead.
    pub(super) fn take_links(&mut self, node: &Cid, part: Part, depth: u32) -> Option<Links> {
        let ahead = self.ahead.as_mut().filter(|ahead| part == Part::All && ahead.depth == depth + 1)?;
        let at = ahead.nodes.iter().position(|(cid, _)| cid == node)?;
        // The walk has met the nodes before this one somewhere else.
        let (_, cids) = ahead.nodes.drain(..=at).next_back()?;
        Some(Links { cids, below: Below::Each(part) })
    }

    /// Descends into a node.
    pub(super) fn push(&mut self, frame: Frame) {
        self.drop_done();
        self.open_bytes += frame.memory();
        self.open.push_back(frame);
        if let Some(frame) = self.open.iter_mut().nth_back(MAX_RUNS) {
            frame.run = None;
        }
        while self.open_bytes > MAX_OPEN_BYTES && self.open.len() > 1 {
            let Some(frame) = self.open.pop_front() else { break };
            self.open_bytes -= frame.memory();
            if let Some((cid, part)) = frame.node {
                self.closed_nodes.push(&cid);
                // The number of links in a block fits in 32 bits.
                self.closed.push(Closed { part, next: frame.next as u32, depth: frame.depth });
            }
        }
    }

    fn drop_done(&mut self) {
        while let Some(done) = self.open.pop_back_if(|frame| frame.is_done()) {
            self.open_bytes -= done.memory();
        }
    }

    /// Reads the links of the innermost closed node again.
    async fn reopen(&mut self, store: &Arc<dyn BlockStore>, measurable: &AtomicUsize) -> Result<()> {
        let (Some(Closed { part, next, depth }), Some(cid)) = (self.closed.pop(), self.closed_nodes.pop()) else {
            return Ok(());
        };
        if self.closed.capacity() > 4 * self.closed.len().max(64) {
            self.closed.shrink_to(2 * self.closed.len());
        }
        let data = match identity_payload(&cid) {
            Some(payload) => Bytes::copy_from_slice(payload),
            None => store.get(&cid).await?.ok_or_else(|| {
                Error::no_block(&cid, format!("block {cid} was removed from this store while the DAG was read"))
            })?,
        };
        let mut frame = Frame::new(cid, part, links_below(&**store, measurable, cid, data, part).await?, depth);
        frame.skip(next as usize);
        self.open_bytes += frame.memory();
        self.open.push_back(frame);
        Ok(())
    }
}

/// A node whose links are being followed.
pub(super) struct Frame {
    /// The node and the part of its DAG to walk; `None` for the list of roots.
    node: Option<(Cid, Part)>,
    links: CidList,
    below: Below,
    /// Number of links from the root to the blocks that this node links to.
    pub(super) depth: u32,
    /// Index of the first link that has not been taken.
    pub(super) next: usize,
    /// Offset of that link in the list. `taken_offset` is the offset of the link before it.
    offset: usize,
    taken_offset: usize,
    run: Option<Run>,
}

/// Blocks that were requested from the store together: some of the links of one node, in order.
struct Run {
    requested: Arc<[Cid]>,
    /// Number of blocks that were taken.
    taken: usize,
    batches: BoxStream<'static, BlockBatch>,
    /// The batch that is being taken, and the number of its blocks that were.
    batch: BlockBatch,
    taken_of_batch: usize,
}

impl Run {
    fn new(requested: Vec<Cid>, store: &Arc<dyn BlockStore>) -> Self {
        let requested: Arc<[Cid]> = requested.into();
        let batches = store.get_batches(Arc::clone(&requested));
        Self { requested, taken: 0, batches, batch: BlockBatch::default(), taken_of_batch: 0 }
    }

    /// Returns the blocks that have not been taken.
    fn rest(&self) -> &[Cid] {
        self.requested.get(self.taken..).unwrap_or_default()
    }

    /// Returns those of the [rest](Self::rest) that the current batch holds, up to the first that is missing.
    fn at_hand(&self) -> impl Iterator<Item = (&Cid, Section<'_>)> {
        let sections = (self.taken_of_batch..self.batch.len()).map_while(|index| self.batch.section(index).ok()?);
        self.rest().iter().zip(sections)
    }

    fn has_ended(&self) -> bool {
        self.taken >= self.requested.len()
    }

    /// Returns the next block with the content ID that was requested, or `None` if the stream ends early.
    async fn next(&mut self) -> Option<(Cid, Result<Option<StoredSection>>)> {
        let cid = *self.requested.get(self.taken)?;
        if self.taken_of_batch >= self.batch.len() {
            (self.batch, self.taken_of_batch) = (self.batches.next().await?, 0);
        }
        let section = self.batch.take_section(self.taken_of_batch);
        (self.taken, self.taken_of_batch) = (self.taken + 1, self.taken_of_batch + 1);
        Some((cid, section))
    }
}

impl Frame {
    pub(super) fn new(cid: Cid, part: Part, links: Links, depth: u32) -> Self {
        Self { node: Some((cid, part)), depth, ..Self::of_roots(links) }
    }

    pub(super) fn of_roots(Links { cids, below }: Links) -> Self {
        Self { node: None, links: cids, below, depth: 0, next: 0, offset: 0, taken_offset: 0, run: None }
    }

    fn is_done(&self) -> bool {
        self.next >= self.links.len()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.links.memory()
    }

    /// Takes the next link, and returns it with the part to walk below it.
    pub(super) fn take(&mut self) -> Result<(Cid, Part)> {
        let mut rest = self.links.iter_from(self.offset);
        let cid = rest.next().ok_or_else(|| Error::internal("a node has fewer links than it had before"))?;
        (self.taken_offset, self.offset) = (self.offset, rest.offset());
        self.next += 1;
        Ok((cid, self.below.part(self.next - 1, self.links.len())))
    }

    /// Skips the first `taken` links, which were taken before the node was closed.
    fn skip(&mut self, taken: usize) {
        let mut rest = self.links.iter();
        rest.by_ref().take(taken).for_each(drop);
        (self.offset, self.next) = (rest.offset(), taken);
    }

    /// Appends the link that was taken last and those later links that the walk has not met yet. Returns whether these
    /// are all.
    fn request_rest(&self, requested: &mut Vec<Cid>, seen: &Seen) -> bool {
        let count = self.links.len();
        let rest = (self.next - 1..).zip(self.links.iter_from(self.taken_offset));
        for (index, cid) in rest.take(MAX_RUN_LINKS) {
            if requested.len() == MAX_RUN_BLOCKS {
                return false;
            }
            request(requested, cid, self.below.part(index, count), seen);
        }
        count < self.next + MAX_RUN_LINKS
    }

    /// Appends links of the next nodes that this node links to, as far as these nodes are small and have been read.
    /// Returns these nodes with all of their links.
    fn request_following(&self, requested: &mut Vec<Cid>, seen: &Seen) -> VecDeque<(Cid, CidList)> {
        let mut nodes = VecDeque::new();
        let (Some(run), Below::Each(Part::All)) = (&self.run, self.below) else { return nodes };
        let mut rest_bytes = MAX_AHEAD_BYTES;
        for (cid, node) in run.at_hand() {
            if has_no_links(cid, node.data) || seen.is_done(cid, Part::All) {
                continue;
            }
            let bytes = node.data.len();
            let data = node.range.end - bytes..node.range.end;
            let is_small = bytes <= MAX_AHEAD_NODE_BYTES.min(rest_bytes);
            let Some(links) = is_small.then(|| links(cid, &run.batch.slice(node.span, data)).ok()).flatten() else {
                break;
            };
            rest_bytes -= bytes;
            for link in &links {
                if requested.len() == MAX_RUN_BLOCKS {
                    break;
                }
                request(requested, link, Part::All, seen);
            }
            nodes.push_back((*cid, links));
            if requested.len() == MAX_RUN_BLOCKS {
                break;
            }
        }
        nodes
    }
}

/// Appends a link, unless the walk has met its block or its content ID contains the block.
fn request(requested: &mut Vec<Cid>, cid: Cid, part: Part, seen: &Seen) {
    // Files of zeros consist of nodes that link to one block many times.
    let is_repeated = !seen.repeats() && requested.last() == Some(&cid);
    if !is_repeated && identity_payload(&cid).is_none() && !seen.is_done(&cid, part) {
        requested.push(cid);
    }
}

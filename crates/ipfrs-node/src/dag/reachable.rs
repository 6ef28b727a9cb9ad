//! Walk over all blocks that are reachable from roots: those that a pin requires and that gc keeps.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Multihash, Result, codec};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{lenient_links, links};
use tokio::task::coop::consume_budget;

use super::INLINE_DECODE_BYTES;
use crate::fingerprint::{ByItself, Fingerprints};
use crate::gc::Protection;

/// Number of nodes that are requested from the store together.
const NODES: usize = 64;

/// Number of leaves that are looked up together.
const LEAVES: usize = 1_024;

/// Total size of the nodes that are decoded together, in bytes.
const DECODE_BYTES: usize = 4 * 1024 * 1024;

/// Number of queued CIDs (some 600 kB) above which the walk continues depth first, one node at a time.
const WIDE: usize = 16 * 1024;

/// Maximum memory of queued CIDs, in bytes: some four million CIDs. Files and directories need thousands; a chain of
/// the widest nodes reaches this limit.
const MAX_WAITING_BYTES: usize = 160 * 1024 * 1024;

/// Treatment of leaves, that is, blocks whose codec has no links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Leaves are assumed to be in the store.
    Assumed,
    /// Leaves are looked up in the store, but not read.
    Checked,
}

/// Block that the walk has visited.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) cid: Cid,
    /// Size of the block in bytes (0 if leaves are assumed), or an error if it is missing or its codec cannot decode
    /// it.
    pub(crate) found: Result<u64>,
}

/// Walk over the blocks below roots. Each block is visited once, however many roots lead to it.
///
/// The walk keeps some 20 to 40 bytes of memory for each visited block. In addition, it holds the queue (thousands of
/// CIDs, at most [`MAX_WAITING_BYTES`]) and the nodes that are being decoded.
pub(crate) struct Reachable {
    store: Arc<dyn BlockStore>,
    leaves: Leaves,
    /// Protection under which each block is touched before it is looked up.
    protection: Option<Protection>,
    marks: Marks,
    /// Nodes to read, as a stack.
    nodes: CidList,
    /// Leaves to look up.
    loose: CidList,
}

impl Reachable {
    pub(crate) fn new(store: Arc<dyn BlockStore>, leaves: Leaves) -> Self {
        let (nodes, loose) = (CidList::default(), CidList::default());
        Self { store, leaves, protection: None, marks: Marks::new(), nodes, loose }
    }

    /// Makes the walk touch each block in `protection`, under a lease that the caller holds.
    pub(crate) fn touching(self, protection: Protection) -> Self {
        Self { protection: Some(protection), ..self }
    }

    /// Continues the walk with `root` and the blocks below it.
    pub(crate) fn start(&mut self, root: &Cid) {
        self.enqueue(root);
    }

    /// Like [`Self::start`], but reads from here on from `store`.
    pub(crate) fn start_in(&mut self, store: Arc<dyn BlockStore>, root: &Cid) {
        self.store = store;
        self.start(root);
    }

    /// Visits a node once more that was missing before.
    pub(crate) fn retry(&mut self, cid: &Cid) {
        self.nodes.push(cid);
    }

    /// Marks a block without the blocks below it.
    pub(crate) fn mark(&mut self, cid: &Cid) {
        self.marks.mark(cid.hash());
    }

    /// Makes the walk visit neither a block nor the blocks below it.
    pub(crate) fn skip(&mut self, cid: &Cid) {
        self.marks.visit(cid);
    }

    /// Returns the marks of all visited blocks.
    pub(crate) fn into_marks(self) -> Marks {
        self.marks
    }

    fn enqueue(&mut self, cid: &Cid) {
        if self.marks.visit(cid) {
            if can_link(cid.codec()) { self.nodes.push(cid) } else { self.loose.push(cid) }
        }
    }

    /// Visits the next blocks and returns them; `None` if there are none left.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the queue exceeds its memory limit; also errors of the
    /// store. Errors of single blocks are part of their visit.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Visit>>> {
        if self.loose.len() >= LEAVES || (self.nodes.is_empty() && !self.loose.is_empty()) {
            let leaves = last(&mut self.loose, LEAVES);
            return self.look_for(leaves).await.map(Some);
        }
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let count = if self.nodes.len() > WIDE { 1 } else { NODES };
        let batch = last(&mut self.nodes, count);
        self.expand(batch).await.map(Some)
    }

    /// Touches blocks that are about to be looked up, if the walk has a protection.
    async fn touch(&self, cids: &[Cid]) {
        if let Some(protection) = &self.protection {
            protection.touch(cids.iter().map(Cid::hash));
            protection.settled().await;
        }
    }

    async fn look_for(&self, leaves: Vec<Cid>) -> Result<Vec<Visit>> {
        consume_budget().await;
        self.touch(&leaves).await;
        let sizes = match self.leaves {
            Leaves::Assumed => vec![Some(0); leaves.len()],
            Leaves::Checked => self.sizes(&leaves).await?,
        };
        let visit = |(cid, size): (Cid, Option<u64>)| Visit { cid, found: size.ok_or_else(|| missing(&cid)) };
        Ok(leaves.into_iter().zip(sizes).map(visit).collect())
    }

    /// Returns the sizes of blocks. Missing blocks are read, because the store may be able to retrieve them.
    async fn sizes(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let mut sizes = self.store.has_many(cids).await?;
        let absent =
            cids.iter().zip(&sizes).filter(|(_, size)| size.is_none()).map(|(cid, _)| *cid).collect::<Vec<_>>();
        if !absent.is_empty() {
            let mut blocks = self.store.get_many(absent);
            for size in sizes.iter_mut().filter(|size| size.is_none()) {
                let found = blocks.next().await.transpose()?;
                *size = found.and_then(|(_, data)| Some(data?.len() as u64));
            }
        }
        Ok(sizes)
    }

    /// Reads nodes and queues the blocks that they link to.
    async fn expand(&mut self, batch: Vec<Cid>) -> Result<Vec<Visit>> {
        self.touch(&batch).await;
        let mut blocks = self.store.get_many(batch.clone());
        let mut batch = VecDeque::from(batch);
        let mut visits = Vec::with_capacity(batch.len());
        let (mut nodes, mut bytes) = (Vec::new(), 0);
        while let Some(cid) = batch.pop_front() {
            consume_budget().await;
            match blocks.next().await {
                Some(Ok((_, Some(data)))) => {
                    bytes += data.len();
                    nodes.push((cid, data));
                }
                Some(Ok((_, None))) => visits.push(Visit { cid, found: Err(missing(&cid)) }),
                // The time-out does not concern this block alone: the remaining blocks will not arrive either.
                Some(Err(e)) if matches!(e.kind(), ErrorKind::Timeout | ErrorKind::Unretrievable) => return Err(e),
                Some(Err(e)) => visits.push(Visit { cid, found: Err(e) }),
                None => return Err(Error::internal("the store returned fewer results than requested")),
            }
            if bytes >= DECODE_BYTES || batch.is_empty() {
                self.decode(std::mem::take(&mut nodes), bytes, &mut visits).await?;
                bytes = 0;
                if !batch.is_empty() && self.nodes.len() + self.loose.len() > WIDE {
                    // Blocks below the decoded nodes are visited first, because a few nodes can have a million
                    // leaves.
                    let mut nodes: CidList = batch.drain(..).rev().collect();
                    nodes.append(&self.nodes);
                    self.nodes = nodes;
                }
            }
        }
        Ok(visits)
    }

    async fn decode(&mut self, nodes: Vec<(Cid, Bytes)>, bytes: usize, visits: &mut Vec<Visit>) -> Result<()> {
        let links = match self.leaves {
            // Older versions pinned dag-cbor by other rules, so gc must keep the blocks that those rules reached.
            Leaves::Assumed => lenient_links,
            Leaves::Checked => links,
        };
        let read = move || nodes.iter().map(|(cid, data)| (*cid, data.len(), links(cid, data))).collect::<Vec<_>>();
        let decoded = if bytes <= INLINE_DECODE_BYTES {
            read()
        } else {
            let decoding = tokio::task::spawn_blocking(read);
            decoding.await.map_err(|e| Error::internal("decoding blocks failed").with_source(e))?
        };
        for (cid, len, links) in decoded {
            let found = links.map(|links| {
                // The list is a stack, so the first link is pushed last.
                links.iter().rev().for_each(|link| self.enqueue(&link));
                len as u64
            });
            visits.push(Visit { cid, found });
        }
        if self.nodes.memory() + self.loose.memory() > MAX_WAITING_BYTES {
            return Err(Error::too_large(format!(
                "the DAG is too wide and too deep: the queue of blocks to visit takes more than the limit of \
                 {MAX_WAITING_BYTES} bytes of memory"
            )));
        }
        Ok(())
    }
}

/// Takes the last CIDs of a list, at most `count`, the last one first.
fn last(list: &mut CidList, count: usize) -> Vec<Cid> {
    std::iter::from_fn(|| list.pop()).take(count).collect()
}

fn missing(cid: &Cid) -> Error {
    Error::no_block(cid, format!("block {cid} is not in this store"))
}

/// Whether blocks of a codec can have links.
pub(super) fn can_link(codec: u64) -> bool {
    class(codec) != 0
}

/// Returns a number for the rules by which a codec's links are read; 0 if the codec has no links.
fn class(codec: u64) -> u128 {
    match codec {
        codec::DAG_PB => 1,
        codec::DAG_CBOR => 2,
        codec::DAG_JSON => 3,
        codec::GIT_RAW => 4,
        codec::DAG_JOSE => 5,
        _ => 0,
    }
}

/// Bits of the values of [`class`].
const CLASSES: u128 = 7;

/// Number of shards of the set, so that growing one of them takes little time.
const SHARDS: usize = 256;

/// Set of visited blocks. If a block is linked under several codecs, the blocks below it differ by codec: the block
/// is visited once for each codec, and it is marked for all of them.
pub(crate) struct Marks {
    fingerprints: Fingerprints,
    shards: Vec<HashSet<u128, ByItself>>,
}

impl Marks {
    fn new() -> Self {
        Self { fingerprints: Fingerprints::default(), shards: vec![HashSet::default(); SHARDS] }
    }

    fn shard(fingerprint: u128) -> usize {
        (fingerprint >> 120) as usize
    }

    /// Marks a block. Returns whether it was not marked before.
    fn mark(&mut self, hash: &Multihash) -> bool {
        let block = self.block(hash);
        self.shards[Self::shard(block)].insert(block)
    }

    /// Marks a block as visited under its codec. Returns whether there may be new blocks below it.
    fn visit(&mut self, cid: &Cid) -> bool {
        let is_new = self.mark(cid.hash());
        match class(cid.codec()) {
            0 => is_new,
            class => {
                let block = self.block(cid.hash());
                self.shards[Self::shard(block)].insert(block | class)
            }
        }
    }

    /// Returns the fingerprint of a block with the bits of the class cleared.
    fn block(&self, hash: &Multihash) -> u128 {
        self.fingerprints.long(hash) & !CLASSES
    }

    /// Returns whether a block was visited under any codec.
    pub(crate) fn contains(&self, hash: &Multihash) -> bool {
        let block = self.block(hash);
        self.shards[Self::shard(block)].contains(&block)
    }
}

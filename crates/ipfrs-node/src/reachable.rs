//! Everything that roots lead to: what must be there for a pin, and what a collection keeps.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Multihash, Result, codec};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{lenient_links, links};
use tokio::task::coop::consume_budget;

use crate::fingerprint::{ByItself, Fingerprints};
use crate::protection::Protection;

/// Nodes that are asked of the store together.
const NODES: usize = 64;

/// Leaves that are looked for together.
const LEAVES: usize = 1_024;

/// Bytes of nodes that are decoded together.
const DECODE_BYTES: usize = 4 * 1024 * 1024;

/// Nodes up to this size, together, are decoded where they are; more would hold up a runtime worker.
const INLINE_DECODE_BYTES: usize = 32 * 1024;

/// With more CIDs waiting than this (some 600 kB), the walk goes on depth first, one node at a time.
const WIDE: usize = 16 * 1024;

/// Most memory of CIDs that wait to be visited: some four million of them. Files and directories need thousands; a
/// chain of the widest nodes ends here.
const MAX_WAITING_BYTES: usize = 160 * 1024 * 1024;

/// What is done about blocks that link to nothing by their codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// They count as there.
    Assumed,
    /// They are looked for in the store, not read.
    Checked,
}

/// A block on the way.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) cid: Cid,
    /// Its size in bytes (0 where leaves are assumed); an error when it is missing or is not what its codec says.
    pub(crate) found: Result<u64>,
}

/// Walks over what is below roots, each block once however many roots lead there.
///
/// Memory: some 20 to 40 bytes for each block that was visited, which is all that is kept of it; besides, what waits
/// (thousands of CIDs, at most [`MAX_WAITING_BYTES`] of them) and the nodes that are decoded.
pub(crate) struct Reachable {
    store: Arc<dyn BlockStore>,
    leaves: Leaves,
    /// Whom to tell of a block before it is looked for.
    protection: Option<Protection>,
    marks: Marks,
    /// Nodes to read; the last comes next.
    nodes: CidList,
    /// Leaves to look for.
    loose: CidList,
}

impl Reachable {
    pub(crate) fn new(store: Arc<dyn BlockStore>, leaves: Leaves) -> Self {
        let (nodes, loose) = (CidList::default(), CidList::default());
        Self { store, leaves, protection: None, marks: Marks::new(), nodes, loose }
    }

    /// The same, telling `protection` of each block, under a lease that the caller holds.
    pub(crate) fn touching(self, protection: Protection) -> Self {
        Self { protection: Some(protection), ..self }
    }

    /// Goes on with what is below `root`.
    pub(crate) fn start(&mut self, root: &Cid) {
        self.meet(root);
    }

    /// Visits a node that was missing once more.
    pub(crate) fn retry(&mut self, cid: &Cid) {
        self.nodes.push(cid);
    }

    /// Marks a block without what is below it.
    pub(crate) fn mark(&mut self, cid: &Cid) {
        self.marks.mark(cid.hash());
    }

    /// What has been visited.
    pub(crate) fn into_marks(self) -> Marks {
        self.marks
    }

    fn meet(&mut self, cid: &Cid) {
        if self.marks.visit(cid) {
            if class(cid.codec()) == 0 { self.loose.push(cid) } else { self.nodes.push(cid) }
        }
    }

    /// The blocks that were visited next; `None` when there are none left.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) when too much waits. What is wrong with single blocks is part of
    /// their visit.
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

    /// Tells of blocks that are about to be looked for.
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
            Leaves::Checked => self.store.has_many(&leaves).await?,
        };
        let visit = |(cid, size): (Cid, Option<u64>)| Visit { cid, found: size.ok_or_else(|| missing(&cid)) };
        Ok(leaves.into_iter().zip(sizes).map(visit).collect())
    }

    /// Reads nodes and meets what they link to.
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
                // That says nothing of the block, and the others do not come either.
                Some(Err(e)) if e.kind() == ErrorKind::Timeout => return Err(e),
                Some(Err(e)) => visits.push(Visit { cid, found: Err(e) }),
                None => return Err(Error::internal("the store gave fewer answers than it was asked for")),
            }
            if bytes >= DECODE_BYTES || batch.is_empty() {
                self.decode(std::mem::take(&mut nodes), bytes, &mut visits).await?;
                bytes = 0;
                if !batch.is_empty() && self.nodes.len() + self.loose.len() > WIDE {
                    // First what is below these: a few nodes can have a million leaves.
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
            // Older versions pinned dag-cbor by other rules: gc must keep the blocks below it.
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
                // The first link is visited first.
                links.iter().rev().for_each(|link| self.meet(&link));
                len as u64
            });
            visits.push(Visit { cid, found });
        }
        if self.nodes.memory() + self.loose.memory() > MAX_WAITING_BYTES {
            return Err(Error::too_large(format!(
                "the DAG is too wide and too deep at once: the blocks that wait to be visited take more than the limit of \
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

/// What a codec makes of a block's links; 0 when it has none.
fn class(codec: u64) -> u128 {
    match codec {
        codec::DAG_PB => 1,
        codec::DAG_CBOR => 2,
        codec::DAG_JSON => 3,
        _ => 0,
    }
}

/// Largest [`class`].
const CLASSES: u128 = 3;

/// Parts of the set, so that none of them takes long to grow.
const SHARDS: usize = 256;

/// The blocks that were visited. A block may be linked to under several codecs, which lead to different blocks below it:
/// each is visited, and the block is marked under all of them.
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

    /// Marks a block; whether that is new.
    fn mark(&mut self, hash: &Multihash) -> bool {
        let block = self.block(hash);
        self.shards[Self::shard(block)].insert(block)
    }

    /// Marks a block as visited under its codec; whether there may be something new below it.
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

    /// What stands for a block, with room for a class.
    fn block(&self, hash: &Multihash) -> u128 {
        self.fingerprints.long(hash) & !CLASSES
    }

    /// Whether a block was visited under any codec.
    pub(crate) fn contains(&self, hash: &Multihash) -> bool {
        let block = self.block(hash);
        self.shards[Self::shard(block)].contains(&block)
    }
}

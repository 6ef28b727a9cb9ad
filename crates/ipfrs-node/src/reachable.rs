//! Everything that roots lead to: what must be there for a pin, and what a collection keeps.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Cid, Error, ErrorKind, Multihash, Result, codec};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::links;
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

/// With more CIDs waiting than this (2.5 MB), the walk goes on depth first, one node at a time.
const WIDE: usize = 16 * 1024;

/// Most CIDs that wait to be visited, 160 MB. Files and directories need thousands; a chain of the widest nodes ends here.
const MAX_WAITING: usize = 1024 * 1024;

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
/// (thousands of CIDs, at most [`MAX_WAITING`]) and the nodes that are decoded.
pub(crate) struct Reachable {
    store: Arc<dyn BlockStore>,
    leaves: Leaves,
    /// Whom to tell of a block before it is looked for.
    protection: Option<Protection>,
    marks: Marks,
    /// Nodes to read; the last comes next.
    nodes: Vec<Cid>,
    /// Leaves to look for.
    loose: Vec<Cid>,
}

impl Reachable {
    pub(crate) fn new(store: Arc<dyn BlockStore>, leaves: Leaves) -> Self {
        Self { store, leaves, protection: None, marks: Marks::new(), nodes: Vec::new(), loose: Vec::new() }
    }

    /// The same, telling `protection` of each block, under a lease that the caller holds.
    pub(crate) fn touching(self, protection: Protection) -> Self {
        Self { protection: Some(protection), ..self }
    }

    /// Goes on with what is below `root`.
    pub(crate) fn start(&mut self, root: &Cid) {
        self.meet(*root);
    }

    /// Visits a node that was missing once more.
    pub(crate) fn retry(&mut self, cid: &Cid) {
        self.nodes.push(*cid);
    }

    /// Marks a block without what is below it.
    pub(crate) fn mark(&mut self, cid: &Cid) {
        self.marks.mark(cid.hash());
    }

    /// What has been visited.
    pub(crate) fn into_marks(self) -> Marks {
        self.marks
    }

    fn meet(&mut self, cid: Cid) {
        if self.marks.visit(&cid) {
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
            let rest = self.loose.len().saturating_sub(LEAVES);
            let leaves = self.loose.split_off(rest);
            return self.look_for(leaves).await.map(Some);
        }
        if self.nodes.is_empty() {
            return Ok(None);
        }
        let count = if self.nodes.len() > WIDE { 1 } else { NODES };
        let mut batch = self.nodes.split_off(self.nodes.len().saturating_sub(count));
        batch.reverse();
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
                if self.nodes.len() + self.loose.len() > WIDE {
                    // First what is below these: a few nodes can have a million leaves.
                    let later = batch.drain(..).rev();
                    self.nodes.splice(0..0, later);
                }
            }
        }
        Ok(visits)
    }

    async fn decode(&mut self, nodes: Vec<(Cid, Bytes)>, bytes: usize, visits: &mut Vec<Visit>) -> Result<()> {
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
                links.into_iter().rev().for_each(|link| self.meet(link));
                len as u64
            });
            visits.push(Visit { cid, found });
        }
        if self.nodes.len() + self.loose.len() > MAX_WAITING {
            return Err(Error::too_large(format!(
                "the DAG is too wide and too deep at once: more than {MAX_WAITING} of its blocks wait to be visited"
            )));
        }
        Ok(())
    }
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

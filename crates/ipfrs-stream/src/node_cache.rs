//! Decoded nodes that are kept between readers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_core::{Cid, codec};
use ipfrs_store::{BlockStore, EpochCache, Mappings};
use ipfrs_unixfs::{Child, FileNode};
use quick_cache::Weighter;

/// What an entry takes besides its links: its key, and what the cache keeps around it.
const ENTRY_BYTES: usize = 512;

/// What a node of ordinary files takes: 174 links, about. A part of the cache, of which it has several, has room for dozens.
const ORDINARY_BYTES: u64 = 32 * 1024;

/// The nodes between the roots and the leaves of files: decoding one of hundreds of links costs more than sending a small
/// part of what is below it. Only the links are kept, nothing of any block.
///
/// What is kept is what the store would give: once a block has gone away, nothing counts that was read before
/// ([`BlockStore::removals`]).
pub struct NodeCache {
    nodes: Arc<EpochCache<Cid, Arc<FileNode>, ByLinks>>,
    mappings: Option<Mappings>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The state of a store before something was read of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    removals: u64,
    faults: u64,
}

#[derive(Debug, Clone)]
struct ByLinks;

impl Weighter<Cid, Arc<FileNode>> for ByLinks {
    fn weight(&self, _: &Cid, node: &Arc<FileNode>) -> u64 {
        (ENTRY_BYTES + node.children.capacity() * size_of::<Child>()) as u64
    }
}

impl NodeCache {
    /// Room for nodes of `store` which take `bytes` together at most. A node that would take a large share of them is not kept.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, bytes: u64) -> Self {
        let mappings = store.mappings();
        let nodes = EpochCache::new(store, (bytes / ORDINARY_BYTES) as usize, bytes, ByLinks);
        Self { nodes, mappings, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// How often a node was known, how often one had to be decoded, and the bytes that are taken, about.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed), self.nodes.weight())
    }

    /// The present, to be asked for before a block is.
    pub(crate) fn now(&self) -> Moment {
        Moment { removals: self.nodes.removals(), faults: self.mappings.as_ref().map_or(0, Mappings::faults) }
    }

    /// The node with this content ID, where it is known. (That it is not says nothing yet: most blocks are leaves.)
    pub(crate) fn get(&self, cid: &Cid) -> Option<Arc<FileNode>> {
        if cid.codec() != codec::DAG_PB {
            return None;
        }
        let known = self.nodes.get(cid)?;
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(known)
    }

    /// Remembers a node with links whose block was asked for at `asked` or later. One that holds content itself is left out: it
    /// would keep a slice of a pack, and bytes that may have gone away.
    pub(crate) fn keep(&self, cid: Cid, node: FileNode, asked: Moment) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        // What was decoded may have been zeros.
        let is_sound = asked.faults == self.now().faults;
        if is_sound && node.inline.is_empty() {
            self.nodes.insert(cid, Arc::new(node), asked.removals);
        }
    }
}

impl fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

//! A cache of decoded nodes and of indexes of directories.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ipfrs_core::{Cid, codec};
use ipfrs_store::{BlockStore, EpochCache, Footprint, StoreEpoch};
use ipfrs_unixfs::{DirectoryIndex, FileNode};
use quick_cache::Weighter;

/// Size of an entry besides its links, in bytes: its key and the overhead of the cache.
const ENTRY_BYTES: usize = 512;

/// Size of a large node of an ordinary file, in bytes: about 500 links. Each shard of the cache has space for dozens of
/// such nodes.
const ORDINARY_BYTES: u64 = 32 * 1024;

/// A cache of the nodes between the roots and the leaves of files. Decoding a node of hundreds of links costs more
/// than sending a small part of the data below it. The same holds for searching a name in a directory. The cache keeps
/// links and copies, and no slice of any block.
///
/// The cache returns only nodes that the store would also return. The removal of a block invalidates its entry
/// ([`BlockStore::epoch_of`]).
pub struct NodeCache {
    store: Arc<dyn BlockStore>,
    nodes: Arc<EpochCache<Cid, Cached, ByLinks>>,
    /// Maximum size of a directory block that is indexed, in bytes.
    max_directory_bytes: usize,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Maximum size of a directory block that is indexed, in bytes, and as a fraction of the cache. Indexing it takes a
/// task at most a few milliseconds.
const MAX_DIRECTORY_BYTES: u64 = 256 * 1024;
const MAX_DIRECTORY_FRACTION: u64 = 256;

#[derive(Debug, Clone)]
enum Cached {
    File(Arc<FileNode>),
    Directory(Arc<DirectoryIndex>),
}

#[derive(Debug, Clone)]
struct ByLinks;

impl Weighter<Cid, Cached> for ByLinks {
    fn weight(&self, _: &Cid, cached: &Cached) -> u64 {
        let bytes = match cached {
            Cached::File(node) => node.children.memory_bytes(),
            Cached::Directory(index) => index.memory_bytes(),
        };
        (ENTRY_BYTES + bytes) as u64
    }
}

impl NodeCache {
    /// Creates a cache of nodes of `store` that takes at most `bytes`. A node that would take a large share of them
    /// is not kept.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, bytes: u64) -> Self {
        let nodes = EpochCache::new(store.clone(), (bytes / ORDINARY_BYTES) as usize, bytes, ByLinks);
        let max_directory_bytes = MAX_DIRECTORY_BYTES.min(bytes / MAX_DIRECTORY_FRACTION) as usize;
        Self { store, nodes, max_directory_bytes, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    /// Returns the number of hits, the number of nodes that had to be decoded, and the approximate size in bytes.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed), self.nodes.weight())
    }

    /// Returns the current epoch. The caller must read it before it requests a block.
    pub(crate) fn epoch(&self) -> StoreEpoch {
        self.nodes.epoch()
    }

    /// Returns the cached node with this content ID. A lookup without a result does not count as a miss, because most
    /// blocks are leaves.
    pub(crate) fn get(&self, cid: &Cid) -> Option<Arc<FileNode>> {
        if cid.codec() != codec::DAG_PB {
            return None;
        }
        let Cached::File(cached) = self.nodes.get(cid)? else { return None };
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.store.note_use(&[*cid]);
        Some(cached)
    }

    /// Returns the index of the directory block with this content ID.
    pub(crate) fn directory(&self, cid: &Cid) -> Option<Arc<DirectoryIndex>> {
        if cid.codec() != codec::DAG_PB {
            return None;
        }
        let found = match self.nodes.get(cid) {
            Some(Cached::Directory(index)) => Some(index),
            _ => None,
        };
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        if found.is_some() {
            self.store.note_use(&[*cid]);
        }
        found
    }

    /// Adds the index of a directory block that was searched before and requested at `epoch` or later.
    pub(crate) fn keep_directory(&self, cid: &Cid, block: &Bytes, epoch: StoreEpoch) {
        // An index takes up to twice as much as its block. The cache would not keep a larger one.
        if block.len() <= self.max_directory_bytes
            && self.nodes.is_wanted(cid)
            && let Ok(index) = DirectoryIndex::new(block)
        {
            let provenance = self.nodes.provenance(epoch, Footprint::of([cid]));
            self.nodes.insert(*cid, Cached::Directory(Arc::new(index)), provenance);
        }
    }

    /// Adds a node with links whose block was requested at `epoch` or later. A node that holds content is not kept,
    /// because it would keep a slice of a pack alive, with bytes that may have been removed.
    pub(crate) fn keep(&self, cid: Cid, node: FileNode, epoch: StoreEpoch) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        if node.inline.is_empty() {
            let provenance = self.nodes.provenance(epoch, Footprint::of([&cid]));
            self.nodes.insert(cid, Cached::File(Arc::new(node)), provenance);
        }
    }
}

impl fmt::Debug for NodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

//! Cache of compressed bodies.
//!
//! The content of an entity tag never changes, so it needs to be compressed only once per coding. The response head
//! is still built for each request; only the work of the encoder is saved. An entry is not used if a block of its
//! content was removed or blocked since; [`Node::epoch`] detects this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use ipfrs_node::{CacheMeter, EpochCache, Footprint, Node, StoreEpoch};
use quick_cache::Weighter;

use crate::body::Sized;

/// Approximate size of an entry in addition to its bytes.
const ENTRY_BYTES: u64 = 256;

/// Approximate size of a piece in addition to its bytes.
const PIECE_BYTES: u64 = 64;

/// Fraction of the cache that one entry may take, so that a large file does not evict everything else.
const MAX_ENTRY_PART: u64 = 8;

/// Fraction of the cache that incomplete bodies may take in addition to it.
const MAX_GATHERED_PART: u64 = 4;

/// Number of expected entries up to which the cache has a single shard. With more shards, each would be too small for
/// a large entry.
const ONE_SHARD_ENTRIES: usize = 32;

/// Compressed bodies by entity tag, which names the content and the coding: `"CID-gzip"`. The level is the same for
/// the whole process, and the media type does not change the bytes.
#[derive(Debug)]
pub(super) struct CompressedBodies {
    cache: Arc<EpochCache<HeaderValue, Arc<CompressedBody>, ByBytes>>,
    max_bytes: u64,
    /// Total bytes of the incomplete bodies.
    gathered: AtomicU64,
    meter: CacheMeter,
}

/// A complete body in a coding.
#[derive(Debug)]
pub(super) struct CompressedBody {
    pieces: Vec<Bytes>,
    /// Length in bytes.
    pub(super) length: u64,
}

impl CompressedBody {
    /// Returns a response body with these bytes.
    pub(super) fn body(self: Arc<Self>) -> Body {
        if let [piece] = self.pieces.as_slice() {
            return Body::from(piece.clone());
        }
        let length = self.length;
        let pieces = (0..self.pieces.len()).map_while(move |index| self.pieces.get(index).cloned().map(Ok));
        Sized::body(stream::iter(pieces), length)
    }
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<HeaderValue, Arc<CompressedBody>> for ByBytes {
    fn weight(&self, tag: &HeaderValue, body: &Arc<CompressedBody>) -> u64 {
        ENTRY_BYTES + tag.len() as u64 + body.length + PIECE_BYTES * body.pieces.len() as u64
    }
}

impl CompressedBodies {
    /// Creates a cache of up to `max_bytes` bytes.
    pub(super) fn new(node: &Node, max_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            cache: node.epoch_cache(ONE_SHARD_ENTRIES, max_bytes, ByBytes),
            max_bytes,
            gathered: AtomicU64::new(0),
            meter: node.cache_meter("compressed"),
        })
    }

    /// Returns the body for `tag`, if it is cached and still valid.
    pub(super) fn get(&self, tag: &HeaderValue) -> Option<Arc<CompressedBody>> {
        let found = self.cache.get(tag)?;
        self.meter.hits.inc();
        Some(found)
    }

    /// Starts collecting the body for `tag`, which was not cached, while it is compressed. `epoch` is
    /// [`Node::epoch`] from before anything of its source was read.
    pub(super) fn gather(self: &Arc<Self>, tag: HeaderValue, epoch: StoreEpoch) -> Gathering {
        self.meter.misses.inc();
        Gathering { bodies: self.clone(), tag, epoch, pieces: Vec::new(), length: 0, held: 0 }
    }
}

/// An incomplete body that is collected for the cache. If it is dropped before its end, it is discarded.
pub(super) struct Gathering {
    bodies: Arc<CompressedBodies>,
    tag: HeaderValue,
    epoch: StoreEpoch,
    pieces: Vec<Bytes>,
    length: u64,
    /// Share of this body in [`CompressedBodies::gathered`].
    held: u64,
}

impl Gathering {
    /// Appends a piece. Returns `None` if this body, or all incomplete bodies together, exceed their limit; the body
    /// is then not cached.
    pub(super) fn with(mut self, piece: &Bytes) -> Option<Self> {
        if piece.is_empty() {
            return Some(self);
        }
        let bytes = PIECE_BYTES + piece.len() as u64;
        self.held += bytes;
        let gathered = self.bodies.gathered.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let max = self.bodies.max_bytes;
        let fits = ENTRY_BYTES + self.held <= max / MAX_ENTRY_PART && gathered <= max / MAX_GATHERED_PART;
        self.length += piece.len() as u64;
        self.pieces.push(piece.clone());
        fits.then_some(self)
    }

    /// Inserts the complete body into the cache.
    pub(super) fn end(mut self) {
        let bodies = self.bodies.clone();
        let pieces = std::mem::take(&mut self.pieces);
        let body = CompressedBody { pieces, length: self.length };
        let provenance = bodies.cache.provenance(self.epoch, Footprint::ANY);
        bodies.cache.insert(self.tag.clone(), Arc::new(body), provenance);
        bodies.meter.set_bytes(bodies.cache.weight());
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.bodies.gathered.fetch_sub(self.held, Ordering::Relaxed);
    }
}

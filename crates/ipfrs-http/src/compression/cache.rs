//! Compressed bodies, kept for whoever asks next.
//!
//! What an entity tag names never changes, so that it needs to be compressed once for each coding. The answer is made as
//! ever up to its head: only the work of the encoder is spared. What was made of content from which a block has gone away
//! since, or of which a block was blocked, is not given out: [`Node::removals`] tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use ipfrs_node::{CacheMeter, EpochCache, Node};
use quick_cache::Weighter;

use crate::body::Sized;

/// About what an entry takes besides its bytes.
const ENTRY_BYTES: u64 = 256;

/// About what each piece takes besides its bytes.
const PIECE_BYTES: u64 = 64;

/// The largest entry is this part of the cache: one large file does not push everything else out.
const MAX_ENTRY_PART: u64 = 8;

/// Bodies that are on their way into the cache hold at most this part of it besides.
const MAX_GATHERED_PART: u64 = 4;

/// A cache that expects so few entries is not divided into shards, which would be too small for a large one.
const ONE_SHARD_ENTRIES: usize = 32;

/// The bodies, by entity tags that name content and coding: `"CID-gzip"`. The level is one for the whole process, and the
/// media type makes no other bytes.
#[derive(Debug)]
pub(super) struct CompressedBodies {
    cache: Arc<EpochCache<HeaderValue, Arc<CompressedBody>, ByBytes>>,
    max_bytes: u64,
    /// Bytes of bodies that are on their way here.
    gathered: AtomicU64,
    meter: CacheMeter,
}

/// A whole body in a coding.
#[derive(Debug)]
pub(super) struct CompressedBody {
    pieces: Vec<Bytes>,
    /// Its length.
    pub(super) length: u64,
}

impl CompressedBody {
    /// As the body of an answer.
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
    /// With room for so many bytes.
    pub(super) fn new(node: &Node, max_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            cache: node.epoch_cache(ONE_SHARD_ENTRIES, max_bytes, ByBytes),
            max_bytes,
            gathered: AtomicU64::new(0),
            meter: node.cache_meter("compressed"),
        })
    }

    /// The body that `tag` names, where it is here and all of its source still is.
    pub(super) fn get(&self, tag: &HeaderValue) -> Option<Arc<CompressedBody>> {
        let found = self.cache.get(tag)?;
        self.meter.hits.inc();
        Some(found)
    }

    /// Gathers the body that `tag` names, which was not here, while it is made. `removals` is [`Node::removals`] before anything of its source
    /// was read.
    pub(super) fn gather(self: &Arc<Self>, tag: HeaderValue, removals: u64) -> Gathering {
        self.meter.misses.inc();
        Gathering { bodies: self.clone(), tag, removals, pieces: Vec::new(), length: 0, held: 0 }
    }
}

/// A body on its way into the cache. Dropped before its end, it leaves nothing.
pub(super) struct Gathering {
    bodies: Arc<CompressedBodies>,
    tag: HeaderValue,
    removals: u64,
    pieces: Vec<Bytes>,
    length: u64,
    /// What of [`CompressedBodies::gathered`] is of this one.
    held: u64,
}

impl Gathering {
    /// With one more piece. `None` where it gets too large, or all that are on their way do together: this one will not be
    /// kept.
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

    /// Keeps the body: this was all of it.
    pub(super) fn end(mut self) {
        let bodies = self.bodies.clone();
        let pieces = std::mem::take(&mut self.pieces);
        let body = CompressedBody { pieces, length: self.length };
        bodies.cache.insert(self.tag.clone(), Arc::new(body), self.removals);
        bodies.meter.bytes.set(i64::try_from(bodies.cache.weight()).unwrap_or(i64::MAX));
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.bodies.gathered.fetch_sub(self.held, Ordering::Relaxed);
    }
}

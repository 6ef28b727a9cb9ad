//! The list of tensors in a file, and a cache of such lists.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Catalogue, Header, PREFIX_BYTES};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::task::spawn_blocking;

use crate::{CacheConfig, CacheMeter, FileContent, Node, Object, ObjectKind};

/// Maximum memory that parsing a header takes, as a multiple of its size. The worst case is metadata of empty
/// strings.
const READ_HEADER_FACTOR: usize = 16;

impl Node {
    /// Returns the catalogue of a file, from the cache or from its header.
    pub(super) async fn catalogue(&self, object: &Object) -> Result<Arc<Catalogue>> {
        let ObjectKind::File(file) = &object.kind else { return Err(no_file(object).await) };
        let removals = self.removals();
        let cache = self.inner.catalogues.as_ref();
        if let Some(known) = cache.and_then(|cache| cache.get(&object.cid, removals)) {
            return Ok(known);
        }
        let wrong = |e: Error| Error::new(e.kind(), format!("{}: {}", object.facts.path, e.message()));
        let size = file.size();
        let prefix = self.read_head(file, (PREFIX_BYTES as u64).min(size)).await?;
        let header = Header::of(&prefix, size).map_err(wrong)?;
        let _room = self.room(header.bytes.saturating_mul(READ_HEADER_FACTOR)).await?;
        let bytes = self.read_head(file, header.bytes as u64).await?;
        let parsed = spawn_blocking(move || Catalogue::parse(&bytes, size)).await;
        let parsed = parsed.map_err(|e| Error::internal("reading a header failed").with_source(e))?;
        let catalogue = Arc::new(parsed.map_err(wrong)?);
        // If blocks were removed in the meantime, the catalogue is not cached.
        if let Some(cache) = cache.filter(|_| removals == self.removals()) {
            cache.insert(object.cid, removals, catalogue.clone());
        }
        Ok(catalogue)
    }

    /// Returns the first bytes of a file in one piece. They do not count as a download.
    async fn read_head(&self, file: &FileContent, bytes: u64) -> Result<Bytes> {
        let span = Span { start: 0, len: bytes };
        let mut pieces = self.reader(file, span).inspect_err(|error| self.inner.metrics.refusals.note(error));
        let first = pieces.next().await.transpose()?.unwrap_or_default();
        if first.len() as u64 == bytes {
            return Ok(first);
        }
        let mut whole = BytesMut::from(first);
        while let Some(piece) = pieces.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole.freeze())
    }
}

async fn no_file(object: &Object) -> Error {
    let path = &object.facts.path;
    match object.kind {
        ObjectKind::Directory(_) => Error::invalid(format!("{path} is a directory: name a file in it")),
        ObjectKind::Symlink(_) => Error::unsupported(format!("{path} is a symlink: name the file that it points to")),
        ObjectKind::File(_) | ObjectKind::Other => object.not_unixfs("name a file with tensors").await,
    }
}

/// A cache of catalogues.
#[derive(Debug)]
pub(crate) struct Catalogues {
    /// A file never changes, but its blocks may be removed or blocked. An entry is therefore valid only while
    /// [`Node::removals`] returns the stored number.
    known: Cache<Cid, (u64, Arc<Catalogue>), ByTensors>,
    meter: CacheMeter,
}

impl Catalogues {
    /// Creates a cache with the same limit in bytes as the path cache.
    pub(crate) fn new(config: &CacheConfig, meter: CacheMeter) -> Self {
        let entries = config.max_entries.clamp(1, MOST_CATALOGUES);
        let least = config.max_bytes / entries as u64;
        let known = Cache::with_weighter(ONE_SHARD_ENTRIES.min(entries), config.max_bytes, ByTensors { least });
        Self { known, meter }
    }

    fn get(&self, cid: &Cid, removals: u64) -> Option<Arc<Catalogue>> {
        let found = self.known.get(cid).filter(|(then, _)| *then == removals).map(|(_, catalogue)| catalogue);
        let counter = if found.is_some() { &self.meter.hits } else { &self.meter.misses };
        counter.inc();
        found
    }

    fn insert(&self, cid: Cid, removals: u64, catalogue: Arc<Catalogue>) {
        self.known.insert(cid, (removals, catalogue));
        self.meter.bytes.set(i64::try_from(self.known.weight()).unwrap_or(i64::MAX));
    }
}

/// Maximum number of cached catalogues, enforced through the minimum weight of an entry.
const MOST_CATALOGUES: usize = 10_000;

/// With such a small expected number of entries, the cache uses a single shard. Smaller shards could not hold a large
/// list, which would then be read again by each request and held in memory once per concurrent request.
const ONE_SHARD_ENTRIES: usize = 32;

/// Approximate memory of a tensor besides its name and shape, in bytes.
const TENSOR_BYTES: u64 = 96;

/// Weighs catalogues by their memory.
#[derive(Debug, Clone)]
pub(crate) struct ByTensors {
    /// Minimum weight of a catalogue.
    least: u64,
}

impl Weighter<Cid, (u64, Arc<Catalogue>)> for ByTensors {
    fn weight(&self, _: &Cid, (_, catalogue): &(u64, Arc<Catalogue>)) -> u64 {
        let tensors = catalogue.tensors().iter();
        let tensors: u64 = tensors.map(|t| TENSOR_BYTES + t.name.len() as u64 + 8 * t.shape.len() as u64).sum();
        let metadata = catalogue.metadata().iter();
        let metadata: u64 = metadata.map(|(key, text)| TENSOR_BYTES + (key.len() + text.len()) as u64).sum();
        (TENSOR_BYTES + tensors + metadata).max(self.least)
    }
}

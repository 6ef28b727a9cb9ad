//! Cache of the tensor catalogues of files.

use std::sync::Arc;

use ipfrs_core::Cid;
use ipfrs_store::{BlockStore, EpochCache, Footprint, StoreEpoch};
use ipfrs_tensor::Catalogue;
use quick_cache::Weighter;

use crate::config::CacheConfig;
use crate::metrics::CacheMeter;

/// Maximum number of cached catalogues, enforced through the minimum weight of an entry.
const MAX_CATALOGUES: usize = 10_000;

/// With such a small expected number of entries, the cache uses a single shard. Smaller shards could not hold a large
/// list, which would then be read again by each request and held in memory once per concurrent request.
const ONE_SHARD_ENTRIES: usize = 32;

/// Approximate memory of a tensor besides its name and shape, in bytes.
const TENSOR_BYTES: u64 = 96;

/// A cache of catalogues. A file never changes, but its blocks may be removed or blocked.
#[derive(Debug)]
pub(crate) struct Catalogues {
    cache: Arc<EpochCache<Cid, Arc<Catalogue>, ByTensors>>,
    meter: CacheMeter,
}

impl Catalogues {
    /// Creates a cache with the same limit in bytes as the path cache.
    pub(crate) fn new(store: Arc<dyn BlockStore>, config: &CacheConfig, meter: CacheMeter) -> Self {
        let entries = config.max_entries.clamp(1, MAX_CATALOGUES);
        let min_weight = config.max_bytes / entries as u64;
        let expected = ONE_SHARD_ENTRIES.min(entries);
        Self { cache: EpochCache::new(store, expected, config.max_bytes, ByTensors { min_weight }), meter }
    }

    pub(super) fn get(&self, cid: &Cid) -> Option<Arc<Catalogue>> {
        let found = self.cache.get(cid);
        self.meter.looked_up(found.is_some());
        found
    }

    /// Stores the catalogue of a file that was read since `epoch`.
    pub(super) fn insert(&self, cid: Cid, catalogue: Arc<Catalogue>, epoch: StoreEpoch) {
        let provenance = self.cache.provenance(epoch, Footprint::ANY);
        self.cache.insert(cid, catalogue, provenance);
        self.meter.set_bytes(self.cache.weight());
    }
}

/// Weighs catalogues by their memory.
#[derive(Debug, Clone)]
struct ByTensors {
    /// Minimum weight of a catalogue.
    min_weight: u64,
}

impl Weighter<Cid, Arc<Catalogue>> for ByTensors {
    fn weight(&self, _: &Cid, catalogue: &Arc<Catalogue>) -> u64 {
        let tensors = catalogue.tensors().iter();
        let tensors: u64 = tensors.map(|t| TENSOR_BYTES + t.name.len() as u64 + 8 * t.shape.len() as u64).sum();
        let metadata = catalogue.metadata().iter();
        let metadata: u64 = metadata.map(|(key, text)| TENSOR_BYTES + (key.len() + text.len()) as u64).sum();
        (TENSOR_BYTES + tensors + metadata).max(self.min_weight)
    }
}

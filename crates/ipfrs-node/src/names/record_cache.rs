//! The records on disk and the cached ones.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_ipns::{Name, Record};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::task::JoinHandle;

use super::config::IpnsConfig;
use super::store::RecordStore;

/// Maximum memory of cached records, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// Approximate number of names that fit into the cache.
const CACHE_NAMES: usize = 20_000;

/// Approximate memory of a name besides its record, in bytes.
const NAME_BYTES: u64 = 512;

/// Number of groups of names.
const GROUPS: usize = 256;

/// The records on disk and the cached ones.
#[derive(Debug)]
pub(crate) struct Names {
    pub(super) store: RecordStore,
    /// `None` if caching is disabled.
    cache: Option<Cache<Name, CachedRecord, ByBytes>>,
    /// For each group of names, the number of changes to its records. Cache entries from before a change are ignored.
    changes: [AtomicU64; GROUPS],
    hasher: RandomState,
    /// The background task.
    background_task: Mutex<Option<JoinHandle<()>>>,
}

/// A cached record.
#[derive(Debug, Clone)]
struct CachedRecord {
    /// The record of the name, if it has one.
    record: Option<Record>,
    /// Change counter of the group before the record was read.
    changes: u64,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Name, CachedRecord> for ByBytes {
    fn weight(&self, _: &Name, cached: &CachedRecord) -> u64 {
        NAME_BYTES + cached.record.as_ref().map_or(0, |record| record.bytes().len() as u64)
    }
}

impl Names {
    pub(crate) fn new(repo: &Path, config: &IpnsConfig, keeps: bool) -> Self {
        Self {
            store: RecordStore::new(repo, config.max_records),
            cache: keeps.then(|| Cache::with_weighter(CACHE_NAMES, CACHE_BYTES, ByBytes)),
            changes: [const { AtomicU64::new(0) }; GROUPS],
            hasher: RandomState::new(),
            background_task: Mutex::default(),
        }
    }

    /// Returns the change counter of the group of a name.
    pub(super) fn changes(&self, name: &Name) -> &AtomicU64 {
        // The remainder is less than the number of groups, so the index is in bounds.
        &self.changes[(self.hasher.hash_one(name) % GROUPS as u64) as usize]
    }

    /// Returns the cached record of a name: `Some(None)` if the name is known to have no record.
    pub(super) fn get(&self, name: &Name) -> Option<Option<Record>> {
        let cached = self.cache.as_ref()?.get(name)?;
        (cached.changes == self.changes(name).load(Ordering::Acquire)).then_some(cached.record)
    }

    /// Caches the record of a name, which was read while the change counter was `changes`.
    pub(super) fn insert(&self, name: Name, record: Option<Record>, changes: u64) {
        if let Some(cache) = &self.cache {
            cache.insert(name, CachedRecord { record, changes });
        }
    }

    /// Stores the handle of the background task until the node is closed.
    #[cfg(feature = "keys")]
    pub(super) fn tend(&self, background_task: JoinHandle<()>) {
        *self.background_task.lock() = Some(background_task);
    }

    /// Stops the background task.
    pub(crate) async fn close(&self) {
        let background_task = self.background_task.lock().take();
        if let Some(background_task) = background_task {
            background_task.abort();
            // The task was aborted, so its result does not matter.
            drop(background_task.await);
        }
    }

    /// Returns the approximate memory of the cached records, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

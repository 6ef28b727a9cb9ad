//! Caches of values derived from blocks. An entry is valid until one of its blocks is removed from the store.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::{BlockStore, Footprint, Provenance, StoreEpoch};

/// A cache that can drop its stale entries.
pub trait DropStale: Send + Sync {
    /// Drops every entry with blocks that were removed from the store since ([`BlockStore::epoch_of`]).
    /// Such an entry may hold slices of a removed file, and the disk does not get the space of that file back
    /// before the last slice is dropped.
    fn drop_stale(&self);
}

/// The caches that are registered with a store. Clones share the list.
#[derive(Clone, Default)]
pub(crate) struct Caches {
    registered: Arc<Mutex<Vec<Weak<dyn DropStale>>>>,
}

impl Caches {
    /// Registers a cache. The list holds it weakly.
    pub(crate) fn register(&self, cache: Weak<dyn DropStale>) {
        let mut registered = self.registered.lock();
        registered.retain(|known| known.strong_count() > 0);
        registered.push(cache);
    }

    /// Drops the stale entries of all caches.
    pub(crate) fn drop_stale(&self) {
        // Outside the lock: dropping what an entry holds may take a while.
        let caches: Vec<_> = self.registered.lock().iter().filter_map(Weak::upgrade).collect();
        caches.iter().for_each(|cache| cache.drop_stale());
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caches").field("registered", &self.registered.lock().len()).finish()
    }
}

/// Typical weight of an entry, in bytes.
const TYPICAL_WEIGHT: u64 = 2_048;

/// A bounded cache of values derived from blocks. It never returns a value one of whose blocks was removed from the
/// store afterwards. The values may hold slices of stored files. When [`BlockStore::compact`] removes files,
/// the cache drops the values with their slices, so that the disk reclaims the space.
pub struct EpochCache<K, V, W> {
    entries: Cache<K, Stamped<V>, ByValue<W>>,
    requested: Requested,
    store: Arc<dyn BlockStore>,
}

/// Fingerprints of keys that were requested recently. Most keys are requested only once, and a value for each of them
/// would cost more than the values of the others save.
struct Requested {
    hasher: RandomState,
    /// One fingerprint per place, of the last key that was requested there. 0 means none.
    fingerprints: Box<[AtomicU16]>,
}

impl Requested {
    /// Returns a table that remembers about `keys` keys.
    fn new(keys: usize) -> Self {
        let places = keys.clamp(1 << 8, 1 << 22).next_power_of_two();
        Self { hasher: RandomState::default(), fingerprints: (0..places).map(|_| AtomicU16::new(0)).collect() }
    }

    /// Notes a request. Returns whether the key was requested before, as far as the table remembers.
    fn note<Q: Hash + ?Sized>(&self, key: &Q) -> bool {
        let hash = self.hasher.hash_one(key);
        let place = hash as usize & (self.fingerprints.len() - 1);
        let fingerprint = (hash >> 48) as u16 | 1;
        self.fingerprints[place].swap(fingerprint, Ordering::Relaxed) == fingerprint
    }
}

#[derive(Clone)]
struct Stamped<V> {
    value: V,
    provenance: Provenance,
}

/// Weighs only the value, with a minimum.
#[derive(Clone)]
struct ByValue<W> {
    weighter: W,
    min_weight: u64,
}

impl<K, V, W: Weighter<K, V>> Weighter<K, Stamped<V>> for ByValue<W> {
    fn weight(&self, key: &K, stamped: &Stamped<V>) -> u64 {
        self.weighter.weight(key, &stamped.value).max(self.min_weight)
    }
}

impl<K, V, W> EpochCache<K, V, W>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    W: Weighter<K, V> + Clone + Send + Sync + 'static,
{
    /// Returns an empty cache over `store`, sized for `entries` entries and bounded to a total weight of `weight`.
    #[must_use]
    pub fn new(store: Arc<dyn BlockStore>, entries: usize, weight: u64, weighter: W) -> Arc<Self> {
        Self::with_min_weight(store, entries, weight, ByValue { weighter, min_weight: 0 })
    }

    /// Same as [`new`](Self::new), for at most `entries` entries: each weighs at least its share of `weight`.
    #[must_use]
    pub fn bounded(store: Arc<dyn BlockStore>, entries: usize, weight: u64, weighter: W) -> Arc<Self> {
        // The library takes no entry that weighs as much as the whole cache. Of this weight, it takes one.
        let most = weight / 2 + 1;
        let min_weight = (weight / entries.max(1) as u64).min(most);
        Self::with_min_weight(store, entries, weight, ByValue { weighter, min_weight })
    }

    fn with_min_weight(store: Arc<dyn BlockStore>, entries: usize, weight: u64, weighter: ByValue<W>) -> Arc<Self> {
        // A key that returns only after more other keys would be evicted before it returns again.
        let requested = Requested::new(entries.min((weight / TYPICAL_WEIGHT) as usize) / 4);
        let entries = Cache::with_weighter(entries, weight, weighter);
        let this = Arc::new(Self { entries, requested, store });
        let weak: Weak<Self> = Arc::downgrade(&this);
        this.store.watch(weak);
        this
    }

    /// Returns the current store epoch. The caller reads it before it reads anything that a value is derived from.
    #[must_use]
    pub fn epoch(&self) -> StoreEpoch {
        self.store.epoch()
    }

    /// Returns the provenance of a value; see [`Provenance::new`].
    #[must_use]
    pub fn provenance(&self, since: StoreEpoch, footprint: Footprint) -> Option<Provenance> {
        Provenance::new(&*self.store, since, footprint)
    }

    /// Returns the value of `key`. Drops the entry and returns `None` if it is stale.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        let found = self.entries.get(key)?;
        if found.provenance.is_current(&*self.store) {
            return Some(found.value);
        }
        self.remove_stale(key);
        None
    }

    fn remove_stale<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        self.entries.remove_if(key, |entry| !entry.provenance.is_current(&*self.store));
    }

    /// Whether a value of `key`, which was requested and is not in the cache, is worth inserting: its key was requested
    /// before, or has a stale value.
    pub fn is_wanted<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.requested.note(key) || self.entries.contains_key(key)
    }

    /// Stores a value. Does nothing without a provenance, or if one of its blocks has been removed.
    pub fn insert(&self, key: K, value: V, provenance: Option<Provenance>)
    where
        K: Clone,
    {
        let Some(provenance) = provenance.filter(|provenance| provenance.is_current(&*self.store)) else { return };
        self.entries.insert(key.clone(), Stamped { value, provenance });
        // A concurrent `drop_stale` may already have passed this entry, and does not visit it again.
        if !provenance.is_current(&*self.store) {
            self.remove_stale(&key);
        }
    }

    /// Returns the weight of all entries.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.entries.weight()
    }
}

impl<K, V, W> DropStale for EpochCache<K, V, W>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    W: Weighter<K, V> + Clone + Send + Sync + 'static,
{
    fn drop_stale(&self) {
        self.entries.retain(|_, entry| entry.provenance.is_current(&*self.store));
    }
}

impl<K, V, W> fmt::Debug for EpochCache<K, V, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Block, codec};
    use quick_cache::UnitWeighter;

    use super::*;
    use crate::{BlockStoreExt, CompactOptions, MemoryStore};

    fn block(data: &'static str) -> Block {
        Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(data.as_bytes())).unwrap()
    }

    /// Returns a store with one block, and a cache over it.
    async fn store() -> (MemoryStore, Block, Arc<EpochCache<u8, Arc<()>, UnitWeighter>>) {
        let (store, garbage) = (MemoryStore::default(), block("garbage"));
        store.put(garbage.clone()).await.unwrap();
        let cache = EpochCache::new(Arc::new(store.clone()), 10, 10, UnitWeighter);
        (store, garbage, cache)
    }

    #[tokio::test]
    async fn bounded_cache_holds_no_more_entries() {
        for limit in [1, 2, 40, 1_000] {
            let store = Arc::new(MemoryStore::default());
            let cache = EpochCache::bounded(store, limit, 1 << 20, UnitWeighter);
            (0..3_000).for_each(|key: u32| cache.insert(key, (), cache.provenance(cache.epoch(), Footprint::ANY)));
            let held = (0..3_000).filter(|key| cache.get(key).is_some()).count();
            assert!((1..=limit).contains(&held), "{held} of {limit}");
        }
    }

    fn any(cache: &EpochCache<u8, Arc<()>, UnitWeighter>) -> Option<Provenance> {
        cache.provenance(cache.epoch(), Footprint::ANY)
    }

    #[tokio::test]
    async fn stale_entry_is_dropped_by_lookup() {
        let (store, garbage, cache) = store().await;
        let value = Arc::new(());
        cache.insert(1, value.clone(), any(&cache));
        assert!(cache.get(&1).is_some());
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        assert!(cache.get(&1).is_none());
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[tokio::test]
    async fn stale_entries_are_dropped_by_compaction() {
        let (store, garbage, cache) = store().await;
        let (old, new) = (Arc::new(()), Arc::new(()));
        cache.insert(1, old.clone(), any(&cache));
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        cache.insert(2, new.clone(), any(&cache));
        store.compact(CompactOptions::default()).await.unwrap();
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 2));
    }

    #[tokio::test]
    async fn value_is_wanted_when_its_key_is_requested_again() {
        let (_, _, cache) = store().await;
        assert_eq!([cache.is_wanted(&1), cache.is_wanted(&1)], [false, true]);
        cache.insert(2, Arc::default(), any(&cache));
        assert!(cache.is_wanted(&2));
    }

    #[tokio::test]
    async fn value_made_before_a_removal_is_not_kept_after_it() {
        let (store, garbage, cache) = store().await;
        let (before, value) = (cache.epoch(), Arc::new(()));
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        cache.insert(1, value.clone(), cache.provenance(before, Footprint::ANY));
        assert_eq!((Arc::strong_count(&value), cache.weight()), (1, 0));
    }
}

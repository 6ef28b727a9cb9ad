//! Store epochs, and caches of values derived from blocks. An entry is valid only for the epoch at which it was made.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::BlockStore;

/// State of a store's content at one point in time; see [`BlockStore::epoch`]. A value that
/// was derived from blocks at one epoch may be wrong at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEpoch(u64);

impl StoreEpoch {
    /// Creates an epoch from a number that never decreases.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns an epoch that changes when this one changes and when `number`, which never decreases, does.
    #[must_use]
    pub fn combined_with(self, number: u64) -> Self {
        Self(self.0.wrapping_add(number))
    }
}

/// A cache that can drop its stale entries.
pub trait DropStale: Send + Sync {
    /// Drops every entry that was made before blocks were last removed from the store ([`BlockStore::epoch`]).
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

/// A bounded cache of values derived from blocks. It never returns a value that was made before blocks were last
/// removed from the store. The values may hold slices of stored files. When [`BlockStore::compact`] removes files,
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
    /// Store epoch ([`BlockStore::epoch`]) before anything was read for the value.
    epoch: StoreEpoch,
}

/// Weighs only the value.
#[derive(Clone)]
struct ByValue<W>(W);

impl<K, V, W: Weighter<K, V>> Weighter<K, Stamped<V>> for ByValue<W> {
    fn weight(&self, key: &K, stamped: &Stamped<V>) -> u64 {
        self.0.weight(key, &stamped.value)
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
        // A key that returns only after more other keys would be evicted before it returns again.
        let requested = Requested::new(entries.min((weight / TYPICAL_WEIGHT) as usize) / 4);
        let entries = Cache::with_weighter(entries, weight, ByValue(weighter));
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

    /// Returns the value of `key`. Drops the entry and returns `None` if it is stale.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        let found = self.entries.get(key)?;
        let now = self.store.epoch();
        if found.epoch == now {
            return Some(found.value);
        }
        self.entries.remove_if(key, |entry| entry.epoch != now);
        None
    }

    /// Whether a value of `key`, which was requested and is not in the cache, is worth inserting: its key was requested
    /// before, or has a stale value.
    pub fn is_wanted<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.requested.note(key) || self.entries.contains_key(key)
    }

    /// Stores a value derived from data that was read since the store epoch was `epoch`. Does nothing if the epoch
    /// has changed.
    pub fn insert(&self, key: K, value: V, epoch: StoreEpoch)
    where
        K: Clone,
    {
        if self.store.epoch() != epoch {
            return;
        }
        self.entries.insert(key.clone(), Stamped { value, epoch });
        // A concurrent `drop_stale` may already have passed this entry, and does not visit it again.
        let now = self.store.epoch();
        if now != epoch {
            self.entries.remove_if(&key, |entry| entry.epoch != now);
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
        let now = self.store.epoch();
        self.entries.retain(|_, entry| entry.epoch == now);
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
    async fn stale_entry_is_dropped_by_lookup() {
        let (store, garbage, cache) = store().await;
        let value = Arc::new(());
        cache.insert(1, value.clone(), cache.epoch());
        assert!(cache.get(&1).is_some());
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        assert!(cache.get(&1).is_none());
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[tokio::test]
    async fn stale_entries_are_dropped_by_compaction() {
        let (store, garbage, cache) = store().await;
        let (old, new) = (Arc::new(()), Arc::new(()));
        cache.insert(1, old.clone(), cache.epoch());
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        cache.insert(2, new.clone(), cache.epoch());
        store.compact(CompactOptions::default()).await.unwrap();
        assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 2));
    }

    #[tokio::test]
    async fn value_is_wanted_when_its_key_is_requested_again() {
        let (_, _, cache) = store().await;
        assert_eq!([cache.is_wanted(&1), cache.is_wanted(&1)], [false, true]);
        cache.insert(2, Arc::default(), cache.epoch());
        assert!(cache.is_wanted(&2));
    }

    #[tokio::test]
    async fn value_made_before_a_removal_is_not_kept_after_it() {
        let (store, garbage, cache) = store().await;
        let (before, value) = (cache.epoch(), Arc::new(()));
        store.delete_many(&[*garbage.cid()]).await.unwrap();
        cache.insert(1, value.clone(), before);
        assert_eq!((Arc::strong_count(&value), cache.weight()), (1, 0));
    }
}

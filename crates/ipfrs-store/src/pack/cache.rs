//! A cache of the locations of recently used blocks. Most lookups need neither the index nor another thread.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use quick_cache::sync::Cache;

use super::changes::Changes;
use super::record::{Key, Location};

/// Approximate memory of an entry, in bytes: key, location, and the overhead of the cache.
const ENTRY_BYTES: u64 = 128;

/// Holds only present blocks. The absence of a block is never cached, so a put is visible at once.
///
/// A lookup that read the index before a deletion or a move was committed must not insert the old location
/// afterwards. The caller of [`fill`](Self::fill) therefore passes the generation at which it began to read, and the
/// call has no effect if the generation has changed since.
#[derive(Debug)]
pub(super) struct LocationCache {
    entries: Option<Cache<Key, Location>>,
    generation: RwLock<u64>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A counter of deletions and moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl LocationCache {
    /// Creates a cache for about `entries` locations, or one that stores nothing if `enabled` is false.
    pub(super) fn new(enabled: bool, entries: usize) -> Self {
        Self {
            entries: (enabled && entries > 0).then(|| Cache::new(entries)),
            generation: RwLock::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Returns the location of a block, if it is cached. Counts a hit or a miss.
    pub(super) fn get(&self, key: &[u8]) -> Option<Location> {
        let found = self.entries.as_ref().and_then(|entries| entries.get(key));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns the current generation. The caller must get it before it reads the index.
    pub(super) fn generation(&self) -> Generation {
        Generation(*self.generation.read())
    }

    /// Inserts locations read from the index, unless blocks were deleted or moved since `began`.
    pub(super) fn fill(&self, began: Generation, found: impl Iterator<Item = (Key, Location)>) {
        let Some(entries) = &self.entries else { return };
        let generation = self.generation.read();
        if *generation == began.0 {
            found.for_each(|(key, location)| entries.insert(key, location));
        }
    }

    /// Applies changes that were just added to the index.
    pub(super) fn apply(&self, changes: Changes) {
        let Some(entries) = &self.entries else { return };
        let ends = changes.blocks.values().any(|change| change.from.is_some() || change.to.is_none());
        let mut generation = self.generation.write();
        *generation += u64::from(ends);
        for (key, change) in changes.blocks {
            match (change.from, change.to) {
                // Moved without a lookup: the entry is only replaced if it exists, so that it evicts no other.
                (Some(_), Some(to)) => drop(entries.replace(key, to, true)),
                (None, Some(to)) => entries.insert(key, to),
                (_, None) => drop(entries.remove(&key)),
            }
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        if let Some(entries) = &self.entries {
            *self.generation.write() += 1;
            entries.clear();
        }
    }

    /// Returns the number of hits, the number of misses, and the approximate size in bytes.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let entries = self.entries.as_ref().map_or(0, |entries| entries.len() as u64);
        (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed), entries * ENTRY_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::changes::Change;
    use crate::pack::record::KeyMap;

    const LOCATION: Location = Location { pack: 1, offset: 2, len: 3, prefix: 4, codec: 5 };

    #[test]
    fn location_read_before_deletion_is_not_cached() {
        let cache = LocationCache::new(true, 100);
        let key = || Key::from(*b"key");
        let began = cache.generation();
        let gone = Change { from: Some(LOCATION), to: None };
        cache.apply(Changes { blocks: KeyMap::from_iter([(key(), gone)]), ..Changes::default() });
        cache.fill(began, [(key(), LOCATION)].into_iter());
        assert_eq!(cache.get(&key()), None);

        cache.fill(cache.generation(), [(key(), LOCATION)].into_iter());
        assert_eq!(cache.get(&key()), Some(LOCATION));
        assert_eq!(cache.counts(), (1, 1, ENTRY_BYTES));
    }

    #[test]
    fn move_invalidates_older_lookups_and_evicts_no_entry() {
        let cache = LocationCache::new(true, 100);
        let keys = || ["known", "unknown"].map(|key| Key::from(key.as_bytes()));
        let began = cache.generation();
        cache.fill(began, keys().into_iter().take(1).map(|key| (key, LOCATION)));
        let there = Location { pack: 2, ..LOCATION };
        let blocks = keys().into_iter().map(|key| (key, Change { from: Some(LOCATION), to: Some(there) })).collect();
        cache.apply(Changes { blocks, tombstone_bytes: 0 });
        cache.fill(began, keys().into_iter().map(|key| (key, LOCATION)));
        assert_eq!(keys().map(|key| cache.get(&key)), [Some(there), None]);
    }

    #[test]
    fn a_disabled_cache_holds_nothing() {
        let cache = LocationCache::new(false, 100);
        let blocks = KeyMap::from_iter([(Key::from(*b"key"), Change { from: None, to: Some(LOCATION) })]);
        cache.apply(Changes { blocks, ..Changes::default() });
        assert_eq!(cache.get(b"key"), None);
    }
}

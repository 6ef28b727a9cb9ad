//! The locations of recently used blocks, so that most lookups need neither the index nor another thread.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use quick_cache::sync::Cache;

use super::changes::Changes;
use super::record::{Key, Location};

/// Approximate memory of an entry: key, location, and what the cache keeps around them.
const ENTRY_BYTES: u64 = 128;

/// Present blocks only: that a block is absent is never remembered, so a put is seen at once.
///
/// A lookup that read the index before a deletion or a move was committed must not put the old location here after it:
/// whoever fills the cache says with which generation it began to read, and is ignored when one came in between.
#[derive(Debug)]
pub(super) struct LocationCache {
    entries: Option<Cache<Key, Location>>,
    generation: RwLock<u64>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// A moment in the history of deletions and moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl LocationCache {
    /// Room for about `entries` locations; none at all when `enabled` is false.
    pub(super) fn new(enabled: bool, entries: usize) -> Self {
        Self {
            entries: (enabled && entries > 0).then(|| Cache::new(entries)),
            generation: RwLock::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The location of a block, when it is known here. Counts a hit or a miss.
    pub(super) fn get(&self, key: &[u8]) -> Option<Location> {
        let found = self.entries.as_ref().and_then(|entries| entries.get(key));
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// The present, to be asked for before the index is read.
    pub(super) fn generation(&self) -> Generation {
        Generation(*self.generation.read())
    }

    /// Remembers what was read from the index, unless blocks were deleted or moved since `began`.
    pub(super) fn fill(&self, began: Generation, found: impl Iterator<Item = (Key, Location)>) {
        let Some(entries) = &self.entries else { return };
        let generation = self.generation.read();
        if *generation == began.0 {
            found.for_each(|(key, location)| entries.insert(key, location));
        }
    }

    /// Takes over changes that the index holds since a moment ago.
    pub(super) fn apply(&self, changes: Changes) {
        let Some(entries) = &self.entries else { return };
        let ends = changes.blocks.values().any(|change| change.from.is_some() || change.to.is_none());
        let mut generation = self.generation.write();
        *generation += u64::from(ends);
        for (key, change) in changes.blocks {
            match (change.from, change.to) {
                // Moved. Nobody has asked for it: it takes no other's room, if it has none.
                (Some(_), Some(to)) => drop(entries.replace(key, to, true)),
                (None, Some(to)) => entries.insert(key, to),
                (_, None) => drop(entries.remove(&key)),
            }
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        if let Some(entries) = &self.entries {
            *self.generation.write() += 1;
            entries.clear();
        }
    }

    /// Hits and misses so far, and the approximate size in bytes.
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
    fn a_location_read_before_a_deletion_is_not_remembered_after_it() {
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
    fn a_move_ends_what_began_before_it_and_takes_no_room_for_what_nobody_asked_for() {
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

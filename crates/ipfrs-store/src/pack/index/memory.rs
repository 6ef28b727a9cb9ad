//! Entries that are not in a run yet.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::OnceLock;

use super::run::Said;
use crate::pack::record::{Key, KeyMap};

/// Entries that are newer than all runs. They are sorted only when they become a run: a sorted map would take several
/// times as long for each insert and lookup.
#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: KeyMap<Said>,
    /// Sorted keys, built by the first listing. Otherwise each page would scan all entries.
    order: OnceLock<BTreeSet<Key>>,
}

impl Memory {
    /// Returns an empty map with this capacity.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { entries: KeyMap::with_capacity_and_hasher(capacity, Default::default()), order: OnceLock::new() }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns all entries, in no particular order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&Key, &Said)> {
        self.entries.iter()
    }

    /// Returns the entry of a block.
    pub(super) fn get(&self, key: &[u8]) -> Option<Said> {
        self.entries.get(key).copied()
    }

    /// Inserts or replaces the entry of a block.
    pub(super) fn insert(&mut self, key: Key, said: Said) {
        if let Some(order) = self.order.get_mut()
            && !self.entries.contains_key(&key)
        {
            order.insert(key.clone());
        }
        self.entries.insert(key, said);
    }

    /// Removes the entry of a block.
    pub(super) fn remove(&mut self, key: &Key) {
        self.entries.remove(key);
        if let Some(order) = self.order.get_mut() {
            order.remove(key);
        }
    }

    /// Returns all entries, in the order of their keys.
    pub(super) fn sorted(&self) -> Vec<(&Key, Said)> {
        // Comparing the first bytes is enough for most pairs and avoids following the pointer to the key.
        let beginning = |key: &[u8]| {
            let mut first = [0; 16];
            let len = key.len().min(16);
            first[..len].copy_from_slice(&key[..len]);
            u128::from_be_bytes(first)
        };
        let mut entries: Vec<_> = self.entries.iter().map(|(key, said)| (beginning(key), key, *said)).collect();
        entries.sort_unstable_by_key(|(beginning, key, _)| (*beginning, *key));
        entries.into_iter().map(|(_, key, said)| (key, said)).collect()
    }

    /// Returns the first `limit` entries after `after`, in the order of their keys.
    pub(super) fn first_after(&self, after: Option<&[u8]>, limit: usize) -> Vec<(Key, Said)> {
        let order = self.order.get_or_init(|| self.entries.keys().cloned().collect());
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let keys = order.range::<[u8], _>(behind).take(limit);
        keys.filter_map(|key| Some((key.clone(), self.get(key)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pack::record::Location;

    fn key(number: u32) -> Key {
        ipfrs_core::hash::sha2_256(&number.to_le_bytes()).to_bytes().into_boxed_slice()
    }

    fn said(number: u32) -> Said {
        (!number.is_multiple_of(3)).then_some(Location { pack: 1, offset: number, len: 1, prefix: 38, codec: 0x55 })
    }

    #[test]
    fn listing_page_does_not_scan_all_entries() {
        let (mut memory, mut model) = (Memory::default(), BTreeMap::new());
        for number in 0..65_536 {
            memory.insert(key(number), said(number));
            model.insert(key(number), said(number));
        }
        let mut after: Option<Key> = None;
        // If each page scanned all entries, this would take four billion steps.
        for number in 0..65_536 {
            let page = memory.first_after(after.as_deref(), 1);
            let behind = (after.as_deref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let expected = model.range::<[u8], _>(behind).next().map(|(key, said)| (key.clone(), *said));
            assert_eq!(page.first(), expected.as_ref());
            let Some((listed, _)) = page.into_iter().next() else { break };
            after = Some(listed);
            // Entries that are inserted or removed meanwhile are listed in the correct order, or not at all.
            match number % 4 {
                0 => {
                    memory.insert(key(65_536 + number), said(number));
                    model.insert(key(65_536 + number), said(number));
                }
                1 => {
                    memory.remove(&key(number * 7));
                    model.remove(&key(number * 7));
                }
                2 => {
                    memory.insert(key(number), None);
                    model.insert(key(number), None);
                }
                _ => {}
            }
        }
        assert!(memory.first_after(None, 100_000).into_iter().eq(model));
        assert!(
            memory.sorted().into_iter().map(|(key, said)| (key.clone(), said)).eq(memory.first_after(None, 100_000))
        );
    }
}

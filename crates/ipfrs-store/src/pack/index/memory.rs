//! Entries that no run has yet.

use super::run::Said;
use crate::pack::record::{Key, KeyMap};

/// Entries that are newer than all runs. They are sorted when they become a run: a sorted map takes several times as long
/// for each of them, to insert and to look up.
pub(super) type Memory = KeyMap<Said>;

/// Entries in the order of their keys.
pub(super) fn sorted(memory: &Memory) -> Vec<(&Key, Said)> {
    // Most are told apart by what is at hand, without a look at the key.
    let beginning = |key: &[u8]| {
        let mut first = [0; 16];
        let len = key.len().min(16);
        first[..len].copy_from_slice(&key[..len]);
        u128::from_be_bytes(first)
    };
    let mut entries: Vec<_> = memory.iter().map(|(key, said)| (beginning(key), key, *said)).collect();
    entries.sort_unstable_by_key(|(beginning, key, _)| (*beginning, *key));
    entries.into_iter().map(|(_, key, said)| (key, said)).collect()
}

/// The first `limit` entries after `after`, in the order of their keys.
pub(super) fn first_after(memory: &Memory, after: Option<&[u8]>, limit: usize) -> Vec<(Key, Said)> {
    let mut first: Vec<_> = memory.iter().filter(|(key, _)| after.is_none_or(|after| ***key > *after)).collect();
    if first.len() > limit {
        first.select_nth_unstable_by_key(limit, |(key, _)| *key);
        first.truncate(limit);
    }
    first.sort_unstable_by_key(|(key, _)| *key);
    first.into_iter().map(|(key, said)| (key.clone(), *said)).collect()
}

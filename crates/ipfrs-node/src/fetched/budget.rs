//! How `store.max_bytes` is divided.

use ipfrs_store::Stats;

/// Part of the limit that fetched blocks get if the content of users leaves less: a 16th.
const LEAST_PART: u64 = 16;

/// Part of the limit that is left for dead bytes, which compaction has not removed yet: a tenth on a disk, a 64th in
/// memory.
const DEAD_PART: u64 = 10;
const DEAD_PART_IN_MEMORY: u64 = 64;

/// Sizes that follow from the limit and from the use of the store. All are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Size of the store above which fetched blocks are not stored.
    pub(super) limit: u64,
    /// Maximum size of all fetched blocks.
    pub(super) capacity: u64,
    /// Size of the store above which packs are compacted.
    pub(super) compact_above: u64,
    /// Size of the store at which a compaction stops.
    pub(super) compact_to: u64,
    /// Current size of the store.
    pub(super) used: u64,
    /// Part of it that compaction can free.
    pub(super) dead: u64,
    /// Current size of all fetched blocks.
    pub(super) fetched: u64,
    /// Whether the content of users leaves less than the minimum to fetched blocks.
    pub(super) is_exceeded: bool,
}

impl Budget {
    /// Returns the budget of a store with this use. `log` is the length of the ledger's log, which counts as well.
    pub(super) fn new(max_bytes: u64, stats: &Stats, log: u64, fetched: u64) -> Self {
        let is_on_disk = stats.disk_bytes > 0;
        let (used, dead, dead_part) = match is_on_disk {
            true => (stats.disk_bytes + log, stats.dead_bytes, DEAD_PART),
            false => (stats.payload_bytes, 0, DEAD_PART_IN_MEMORY),
        };
        let others = used.saturating_sub(dead).saturating_sub(fetched);
        let live = |limit: u64| limit - limit / dead_part;
        let least = max_bytes / LEAST_PART;
        let needed = others.saturating_add(least);
        let is_exceeded = needed > live(max_bytes);
        // Rounded up, so that `live(limit)` is enough.
        let limit = if is_exceeded { needed.saturating_add(needed / (dead_part - 1) + dead_part) } else { max_bytes };
        Self {
            limit,
            capacity: live(limit) - others,
            compact_above: limit - limit / 32,
            compact_to: limit - limit / 64 * 3,
            used,
            dead,
            fetched,
            is_exceeded,
        }
    }

    /// Size of fetched blocks to which eviction shrinks them. A step, so that caches of the node, which drop their
    /// entries after each removal, are not dropped for each block.
    pub(super) fn target(&self) -> u64 {
        self.capacity - self.capacity / 64
    }

    /// Whether blocks must be evicted.
    pub(super) fn needs_eviction(&self) -> bool {
        self.fetched > self.capacity
    }

    /// Whether packs must be compacted.
    pub(super) fn needs_compaction(&self) -> bool {
        self.used > self.compact_above && self.dead > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn budget(disk_mib: u64, dead_mib: u64, fetched_mib: u64) -> Budget {
        let stats = Stats { disk_bytes: disk_mib * MIB, dead_bytes: dead_mib * MIB, ..Stats::default() };
        Budget::new(1_000 * MIB, &stats, 0, fetched_mib * MIB)
    }

    #[test]
    fn fetched_blocks_get_what_users_leave() {
        for (disk, dead, fetched, capacity) in
            [(0, 0, 0, 984), (500, 0, 500, 900), (500, 100, 100, 600), (850, 0, 10, 62)]
        {
            let budget = budget(disk, dead, fetched);
            assert_eq!(budget.capacity / MIB, capacity, "{budget:?}");
            assert_eq!(budget.limit, if capacity == 62 { budget.limit } else { 1_000 * MIB });
        }
    }

    #[test]
    fn minimum_is_kept_if_users_need_everything() {
        for users in [840, 1_000, 50_000] {
            let budget = budget(users + 10, 0, 10);
            assert!(budget.is_exceeded && budget.capacity >= 62 * MIB && budget.capacity < 64 * MIB, "{budget:?}");
            assert!(budget.limit > budget.used + 52 * MIB, "{budget:?}");
        }
        assert!(!budget(830, 0, 0).is_exceeded);
    }

    #[test]
    fn memory_counts_payload() {
        let stats = Stats { payload_bytes: 700 * MIB, ..Stats::default() };
        let budget = Budget::new(1_000 * MIB, &stats, 5, 600 * MIB);
        assert_eq!((budget.used, budget.capacity / MIB), (700 * MIB, 884));
    }
}

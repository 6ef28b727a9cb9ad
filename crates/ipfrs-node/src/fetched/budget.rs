//! How `store.max_bytes` is divided.

use ipfrs_store::Stats;

/// Part of the limit that fetched blocks get if the content of users leaves less: a 16th.
const LEAST_PART: u64 = 16;

/// Part of the limit that is left for dead bytes, which compaction has not removed yet: a tenth on a disk, a 64th in
/// memory.
const DEAD_PART: u64 = 10;
const DEAD_PART_IN_MEMORY: u64 = 64;

/// Bytes of fetched blocks that are put together, at most. A store within its budget has space for them.
pub(super) const PUT_BYTES: u64 = 4 << 20;

/// Dead share from which packs are compacted, because too much would be copied for what is freed otherwise: a fifth
/// while fetched blocks take all of their capacity, and in proportion less for fewer, down to a 20th. If all packs had
/// less than that, the store would be smaller than [`Budget::compact_to`].
const DEAD_SHARE: f64 = 0.2;
const LEAST_DEAD_SHARE: f64 = 0.05;

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
        let live = |limit: u64| limit.saturating_sub(PUT_BYTES.max(limit / dead_part));
        let least = max_bytes / LEAST_PART;
        let needed = others.saturating_add(least);
        let is_exceeded = needed > live(max_bytes);
        // Rounded up, so that `live(limit)` is enough.
        let spare = PUT_BYTES.max(needed / (dead_part - 1) + dead_part);
        let limit = if is_exceeded { needed.saturating_add(spare) } else { max_bytes };
        let compact_above = limit.saturating_sub(PUT_BYTES.max(limit / 32));
        Self {
            limit,
            capacity: live(limit) - others,
            compact_above,
            compact_to: compact_above.saturating_sub(limit / 64),
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

    /// Returns the dead share from which packs are compacted. If no pack has it, more blocks are evicted, but not all
    /// of them: the dead bytes may be spread over content of users.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no precision")]
    pub(super) fn min_dead_share(&self) -> f64 {
        (DEAD_SHARE * self.fetched as f64 / self.capacity.max(1) as f64).clamp(LEAST_DEAD_SHARE, DEAD_SHARE)
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
    fn dead_bytes_spread_over_content_of_users_leave_room_for_fetched_blocks() {
        for (users, dead_percent) in (1..30).flat_map(|percent| [(800, percent), (900, percent), (5_000, percent)]) {
            let share = |dead: u64| dead as f64 / (users + dead) as f64;
            let (mut dead, mut fetched) = (users * dead_percent / (100 - dead_percent), 62);
            // Evicted blocks are in packs of their own, of which nothing is left.
            loop {
                let budget = budget(users + dead + fetched, dead, fetched);
                match budget.needs_compaction() {
                    false => break assert!(budget.used + 20 * MIB < budget.limit, "{budget:?}"),
                    true if share(dead) >= budget.min_dead_share() => {
                        dead = (budget.compact_to / MIB).saturating_sub(users + fetched);
                    }
                    true => fetched -= 1,
                }
            }
            assert!(fetched >= 20, "{fetched} MiB are left at {dead_percent} % of {users} MiB");
        }
    }

    #[test]
    fn store_within_its_budget_has_space_for_a_put() {
        for (max, users) in [64, 85, 128, 256, 1_000].into_iter().flat_map(|max| [(max, 0), (max, 40), (max, 2_000)]) {
            let budget = |stats| Budget::new(max * MIB, &stats, 0, 0);
            let in_memory = budget(Stats { payload_bytes: users * MIB, ..Stats::default() });
            let on_disk = budget(Stats { disk_bytes: users * MIB + 1, ..Stats::default() });
            for budget in [in_memory, on_disk] {
                let most = (budget.used + budget.capacity).max(budget.compact_above);
                assert!(most + PUT_BYTES <= budget.limit && budget.compact_to < budget.compact_above, "{budget:?}");
                assert!(!budget.is_exceeded || budget.capacity >= max * MIB / LEAST_PART, "{budget:?}");
            }
        }
    }

    #[test]
    fn memory_counts_payload() {
        let stats = Stats { payload_bytes: 700 * MIB, ..Stats::default() };
        let budget = Budget::new(1_000 * MIB, &stats, 5, 600 * MIB);
        assert_eq!((budget.used, budget.capacity / MIB), (700 * MIB, 884));
    }
}

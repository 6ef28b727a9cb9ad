//! Table of the blocks that the ledger knows, by hash. A block costs 8 bytes, divided by the load of the table, which
//! is 3/8 to 3/4.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

/// Number of shards. A shard that grows delays only the accesses to itself.
const SHARDS: usize = 256;

/// Minimum capacity of a shard, in entries.
const MIN_CAPACITY: usize = 8;

/// Bits of a hash that an entry keeps, besides the eight that select the shard.
const TAG_BITS: u32 = 36;

/// Largest frequency of a block.
pub(super) const MAX_FREQUENCY: u8 = 3;

/// Queue that a block is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// New blocks.
    Small,
    /// Blocks that were read again.
    Main,
    /// Blocks that were evicted from the small queue and are not in the store.
    Ghost,
}

/// State of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) queue: Queue,
    /// Number of reads since the block entered its queue, at most [`MAX_FREQUENCY`].
    pub(super) frequency: u8,
    /// Whether the block was not read since it was fetched. The first read is the one that it was fetched for.
    pub(super) is_unread: bool,
    /// Whether the block was selected for eviction, and counts no longer in its queue.
    pub(super) is_selected: bool,
    /// Size of the block in bytes, below 2^22.
    pub(super) size: u32,
}

impl Entry {
    const QUEUE: u32 = 2;
    const UNREAD: u64 = 1 << 4;
    const SELECTED: u64 = 1 << 5;
    const SIZE: u32 = 6;
    const TAG: u32 = u64::BITS - TAG_BITS;

    /// Returns the entry as it is stored, which is never 0.
    fn pack(self, tag: u64) -> u64 {
        let queue: u64 = match self.queue {
            Queue::Small => 1,
            Queue::Main => 2,
            Queue::Ghost => 3,
        };
        u64::from(self.frequency)
            | queue << Self::QUEUE
            | if self.is_unread { Self::UNREAD } else { 0 }
            | if self.is_selected { Self::SELECTED } else { 0 }
            | (u64::from(self.size) & ((1 << (Self::TAG - Self::SIZE)) - 1)) << Self::SIZE
            | tag << Self::TAG
    }

    fn unpack(packed: u64) -> Self {
        let queue = match packed >> Self::QUEUE & 3 {
            1 => Queue::Small,
            2 => Queue::Main,
            _ => Queue::Ghost,
        };
        Self {
            queue,
            frequency: (packed & 3) as u8,
            is_unread: packed & Self::UNREAD != 0,
            is_selected: packed & Self::SELECTED != 0,
            size: (packed >> Self::SIZE) as u32 & ((1 << (Self::TAG - Self::SIZE)) - 1),
        }
    }
}

/// Map from the hash of a block to its [`Entry`]. Two blocks of which 44 bits of the hash are equal share an entry. The
/// ledger tolerates that: the second block counts as added by a user.
///
/// One thread at a time may change the table; [`Table::touch`] may run at any time.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[Shard]>,
}

/// On a cache line of its own, so that reads of different blocks do not contend.
#[derive(Debug)]
#[repr(align(64))]
struct Shard(RwLock<Slots>);

/// Open addressing with linear probing. The home of an entry follows from its tag.
#[derive(Debug)]
struct Slots {
    slots: Box<[AtomicU64]>,
    used: usize,
}

fn tag_of(packed: u64) -> u64 {
    packed >> Entry::TAG
}

impl Slots {
    fn new(capacity: usize) -> Self {
        Self { slots: (0..capacity).map(|_| AtomicU64::new(0)).collect(), used: 0 }
    }

    fn home(&self, tag: u64) -> usize {
        // The capacity is a power of two.
        let bits = self.slots.len().trailing_zeros();
        (tag >> (TAG_BITS - bits)) as usize
    }

    /// Returns the slot of a tag, or the empty slot where it belongs.
    fn find(&self, tag: u64) -> (usize, u64) {
        let mask = self.slots.len() - 1;
        let mut index = self.home(tag);
        loop {
            let packed = self.slots[index].load(Ordering::Relaxed);
            if packed == 0 || tag_of(packed) == tag {
                return (index, packed);
            }
            index = (index + 1) & mask;
        }
    }

    fn set(&mut self, tag: u64, entry: Entry) {
        let (index, before) = self.find(tag);
        self.slots[index].store(entry.pack(tag), Ordering::Relaxed);
        if before == 0 {
            self.used += 1;
            if self.used * 4 > self.slots.len() * 3 {
                self.resize(self.slots.len() * 2);
            }
        }
    }

    fn remove(&mut self, tag: u64) {
        let (mut hole, before) = self.find(tag);
        if before == 0 {
            return;
        }
        // Moves the entries behind the hole, so that no search ends early.
        let mask = self.slots.len() - 1;
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let packed = self.slots[next].load(Ordering::Relaxed);
            if packed == 0 {
                break;
            }
            let home = self.home(tag_of(packed));
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.slots[hole].store(packed, Ordering::Relaxed);
                hole = next;
            }
        }
        self.slots[hole].store(0, Ordering::Relaxed);
        self.used -= 1;
        if self.slots.len() > MIN_CAPACITY && self.used * 8 < self.slots.len() {
            self.resize(self.slots.len() / 2);
        }
    }

    fn resize(&mut self, capacity: usize) {
        let old = std::mem::replace(self, Self::new(capacity));
        for packed in old.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|packed| *packed != 0) {
            let (index, _) = self.find(tag_of(packed));
            self.slots[index].store(packed, Ordering::Relaxed);
        }
        self.used = old.used;
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard(RwLock::new(Slots::new(MIN_CAPACITY)))).collect() }
    }

    fn shard(&self, hash: u64) -> (&RwLock<Slots>, u64) {
        (&self.shards[(hash >> 56) as usize].0, hash & ((1 << TAG_BITS) - 1))
    }

    /// Returns the state of a block.
    pub(super) fn get(&self, hash: u64) -> Option<Entry> {
        let (shard, tag) = self.shard(hash);
        let (_, packed) = shard.read().find(tag);
        (packed != 0).then(|| Entry::unpack(packed))
    }

    /// Sets the state of a block.
    pub(super) fn set(&self, hash: u64, entry: Entry) {
        let (shard, tag) = self.shard(hash);
        shard.write().set(tag, entry);
    }

    /// Removes a block.
    pub(super) fn remove(&self, hash: u64) {
        let (shard, tag) = self.shard(hash);
        shard.write().remove(tag);
    }

    /// Counts a read of a block. Does nothing if the shard is being changed, because a read must not wait.
    pub(super) fn touch(&self, hash: u64) {
        let (shard, tag) = self.shard(hash);
        let Some(slots) = shard.try_read() else { return };
        let (index, packed) = slots.find(tag);
        if packed == 0 {
            return;
        }
        let touched = match packed {
            _ if packed & Entry::UNREAD != 0 => packed & !Entry::UNREAD,
            _ if packed as u8 & 3 < MAX_FREQUENCY => packed + 1,
            // A hot block is not written, so its cache line stays shared.
            _ => return,
        };
        // Another read of the same block may have won, which counts as well as this one.
        let _lost = slots.slots[index].compare_exchange(packed, touched, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the memory of the table, in bytes.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.shards.iter().map(|shard| size_of::<Shard>() + shard.0.read().slots.len() * size_of::<u64>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn entry(size: u32) -> Entry {
        Entry { queue: Queue::Small, frequency: 0, is_unread: true, is_selected: false, size }
    }

    #[test]
    fn entry_is_unchanged_by_packing() {
        for queue in [Queue::Small, Queue::Main, Queue::Ghost] {
            for (size, tag, frequency) in [(0, 0, 0), (1 << 21, (1 << TAG_BITS) - 1, 3), (12_345, 7, 2)] {
                for is_selected in [false, true] {
                    let entry = Entry { queue, frequency, is_selected, ..entry(size) };
                    let packed = entry.pack(tag);
                    assert_eq!((Entry::unpack(packed), tag_of(packed)), (entry, tag));
                    assert_ne!(packed, 0);
                }
            }
        }
    }

    #[test]
    fn first_touch_after_a_fetch_does_not_count() {
        let table = Table::new();
        table.set(1, entry(5));
        let counts = (0..6).map(|_| {
            table.touch(1);
            table.get(1).unwrap().frequency
        });
        assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 2, 3, 3, 3]);
        table.touch(2);
        assert_eq!(table.get(2), None);
    }

    #[test]
    fn memory_follows_the_number_of_blocks() {
        let table = Table::new();
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let empty = table.memory();
        let blocks = 300_000_u64;
        (0..blocks).for_each(|n| table.set(hash(n), entry(1)));
        assert!((table.memory() as u64) < 24 * blocks, "{} bytes", table.memory());
        (0..blocks).for_each(|n| table.remove(hash(n)));
        assert!(table.memory() < 4 * empty, "{} bytes of {empty}", table.memory());
    }

    proptest! {
        /// Few tags in few shards, so that probes collide and wrap.
        #[test]
        fn table_is_a_map(changes in prop::collection::vec((0..3_u64, 0..40_u64, 0..3_u8), 0..400)) {
            let (table, mut map) = (Table::new(), HashMap::new());
            for (shard, tag, change) in changes {
                // The high bits of a tag select its home.
                let hash = shard << 56 | tag << (TAG_BITS - 4) & ((1 << TAG_BITS) - 1) | tag;
                match change {
                    0 => {
                        table.remove(hash);
                        map.remove(&hash);
                    }
                    size => {
                        table.set(hash, entry(u32::from(size)));
                        map.insert(hash, entry(u32::from(size)));
                    }
                }
                prop_assert!(map.iter().all(|(hash, entry)| table.get(*hash) == Some(*entry)));
                let used: usize = table.shards.iter().map(|shard| shard.0.read().used).sum();
                prop_assert_eq!(used, map.len());
            }
        }
    }
}

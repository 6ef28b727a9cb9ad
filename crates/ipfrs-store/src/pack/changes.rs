//! Changes that commits make to the index, and the resulting statistics of each pack.

use super::record::{CAR_HEADER, KeyMap, Location};

/// A change of a block's location. `None` means absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Location in the index before the change.
    pub(super) from: Option<Location>,
    /// Location after the change.
    pub(super) to: Option<Location>,
}

/// Changes, accumulated in the order in which they apply. Only the last change of a block counts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Changes by block.
    pub(super) blocks: KeyMap<Change>,
    /// Length of the tombstones that were written, framing included, in bytes.
    pub(super) tombstone_bytes: u64,
    /// Length of the padding that was written, framing included, in bytes.
    pub(super) padding_bytes: u64,
}

impl Changes {
    /// Appends changes that apply after these.
    pub(super) fn append(&mut self, next: Self) {
        for (key, change) in next.blocks {
            // The location in the index stays the same until the changes are applied to the index.
            self.blocks.entry(key).and_modify(|known| known.to = change.to).or_insert(change);
        }
        self.tombstone_bytes += next.tombstone_bytes;
        self.padding_bytes += next.padding_bytes;
    }
}

/// Statistics of a pack in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PackUse {
    /// Length of the part of the pack that the index covers, from the start, in bytes.
    pub(super) covered: u32,
    /// Length of the sections whose blocks the index locates in this pack, in bytes.
    pub(super) live_bytes: u64,
    /// Length of its tombstones, framing included, in bytes.
    pub(super) tombstone_bytes: u64,
    /// Length of its padding, framing included, in bytes.
    pub(super) padding_bytes: u64,
}

impl PackUse {
    /// Returns the length of the sections whose blocks are no longer read from this pack, in bytes.
    pub(super) fn dead_block_bytes(self) -> u64 {
        // Without blocks, padding is of no use.
        let padding = if self.live_bytes == 0 { 0 } else { self.padding_bytes };
        let other = CAR_HEADER.len() as u64 + self.tombstone_bytes + padding;
        u64::from(self.covered).saturating_sub(other + self.live_bytes)
    }
}

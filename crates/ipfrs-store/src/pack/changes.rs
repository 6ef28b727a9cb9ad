//! What commits change in the index, and what follows for each pack.

use super::record::{CAR_HEADER, KeyMap, Location};

/// What becomes of a block. `None` is nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// Where the index has it before.
    pub(super) from: Option<Location>,
    /// Where it is from now on.
    pub(super) to: Option<Location>,
}

/// Changes, gathered in the order in which they apply: for each block the last one counts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// What becomes of blocks.
    pub(super) blocks: KeyMap<Change>,
    /// Length of the tombstones that were written, framing included, in bytes.
    pub(super) tombstone_bytes: u64,
}

impl Changes {
    /// Adds what changes after this.
    pub(super) fn append(&mut self, next: Self) {
        for (key, change) in next.blocks {
            // Where the index has it is the same, however often it changes until the index is told.
            self.blocks.entry(key).and_modify(|known| known.to = change.to).or_insert(change);
        }
        self.tombstone_bytes += next.tombstone_bytes;
    }
}

/// What the index knows of a pack as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PackUse {
    /// How many of its bytes the index covers, from the start.
    pub(super) covered: u32,
    /// Length of the sections whose blocks can be read there, in bytes.
    pub(super) live_bytes: u64,
    /// Length of its tombstones, framing included, in bytes.
    pub(super) tombstone_bytes: u64,
}

impl PackUse {
    /// Length of the sections whose blocks are not read there any more, in bytes.
    pub(super) fn dead_block_bytes(self) -> u64 {
        u64::from(self.covered).saturating_sub(CAR_HEADER.len() as u64 + self.live_bytes + self.tombstone_bytes)
    }
}

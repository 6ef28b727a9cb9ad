//! What commits change in the index, and what follows for each pack.

use std::collections::{HashMap, HashSet};

use super::record::{CAR_HEADER, Key, Location};

/// Changes, gathered in the order in which they apply: for each block the last one counts.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Where blocks are from now on; `None` is nowhere.
    pub(super) blocks: HashMap<Key, Option<Location>>,
    /// Those of them that were in another place before: their bytes were copied, or are lost there.
    pub(super) moved: HashSet<Key>,
    /// Length of the tombstones that were written, framing included, in bytes.
    pub(super) tombstone_bytes: u64,
}

impl Changes {
    /// Adds what changes after this.
    pub(super) fn append(&mut self, next: Self) {
        self.blocks.extend(next.blocks);
        self.moved.extend(next.moved);
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

impl From<(u32, u64, u64)> for PackUse {
    fn from((covered, live_bytes, tombstone_bytes): (u32, u64, u64)) -> Self {
        Self { covered, live_bytes, tombstone_bytes }
    }
}

impl PackUse {
    /// Length of the sections whose blocks are not read there any more, in bytes.
    pub(super) fn dead_block_bytes(self) -> u64 {
        u64::from(self.covered).saturating_sub(CAR_HEADER.len() as u64 + self.live_bytes + self.tombstone_bytes)
    }
}

//! Blocks and tombstones that compaction keeps of a part of a pack.

use bytes::Bytes;
use ipfrs_core::Cid;

use super::record::{Key, Location};

/// A block of a pack, verified and in memory.
#[derive(Debug)]
pub(super) struct Copied {
    /// CID under which the block was first put.
    pub(super) cid: Cid,
    /// Key of the block.
    pub(super) key: Key,
    /// Data of the block.
    pub(super) data: Bytes,
    /// Location of the block in the pack.
    pub(super) from: Location,
}

/// The needed content of one part of a pack.
#[derive(Debug, Default)]
pub(super) struct Needed {
    /// Blocks that the index locates there.
    pub(super) blocks: Vec<Copied>,
    /// Keys of its tombstones whose blocks are absent.
    pub(super) deleted: Vec<Key>,
}

impl Needed {
    /// Returns the keys of the blocks, then the keys of the tombstones.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(|block| &*block.key).chain(self.deleted.iter().map(|key| &**key))
    }
}

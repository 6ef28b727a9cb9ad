//! Blocks and tombstones that compaction keeps of a part of a pack.

use super::group::Copied;
use super::record::Key;

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

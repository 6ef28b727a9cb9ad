//! The result of a garbage collection.

use std::time::Duration;

use ipfrs_store::DamagedPack;

/// Result of [`Node::gc`](crate::Node::gc).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GcReport {
    /// Number of blocks that pins lead to.
    pub kept: u64,
    /// Number of blocks that were removed.
    pub removed: u64,
    /// Payload bytes of the removed blocks.
    pub removed_bytes: u64,
    /// Bytes of disk space that were reclaimed, including those of earlier deletions. Files that are still being read
    /// when gc ends are not counted: the disk reclaims their space when the reads end.
    pub freed_bytes: u64,
    /// Packs that should have been reclaimed but are damaged. They are kept with the data that is still readable.
    pub damaged: Vec<DamagedPack>,
    /// Duration of the run.
    pub duration: Duration,
}

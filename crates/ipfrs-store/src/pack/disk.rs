//! Size and free space of the disk that a store is on.

use std::path::Path;

/// Size and free space of a file system, in bytes.
pub(super) struct Space {
    pub(super) all: u64,
    pub(super) free: u64,
}

impl Space {
    /// Returns `None` if the file system does not report them.
    pub(super) fn of(dir: &Path) -> Option<Self> {
        let status = rustix::fs::statvfs(dir).ok().filter(|status| status.f_blocks > 0)?;
        let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
        Some(Self { all: bytes(status.f_blocks), free: bytes(status.f_bavail) })
    }
}

impl Space {
    /// Returns the free space besides `reserve`, as a share of the free space of a disk on which space is not short:
    /// 0 to 1.
    pub(super) fn free_share(&self, reserve: u64) -> f64 {
        let enough = (self.all / FREE_PART).max(1);
        self.free.saturating_sub(reserve).min(enough) as f64 / enough as f64
    }
}

/// Returns the number of bytes that can be written to the disk of `dir`, or `None` if the file system does not report
/// it.
pub(super) fn free_bytes(dir: &Path) -> Option<u64> {
    Space::of(dir).map(|space| space.free)
}

/// Divisor of the disk size. Space is not short while this part of the disk is free in addition to the reserve.
const FREE_PART: u64 = 2;

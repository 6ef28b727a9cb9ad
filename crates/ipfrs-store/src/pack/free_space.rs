//! Disk space that puts leave free for compactions, which need space before they free any.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ipfrs_core::Result;

use super::disk::{Space, free_bytes};
use super::lock::cannot;
use super::shared::Shared;
use crate::store::no_room;
use crate::{CompactOptions, Disk, Reserve};

/// Minimum space that puts leave for the live content of a pack, in bytes.
const LEAST_ROOM_TO_COMPACT: u32 = 12 * 1024 * 1024;
/// Space that compactions leave free for deletions and for writing the index, in bytes.
const KEEP_FREE_WHILE_COMPACTING: u64 = 4 * 1024 * 1024;
/// Space that other puts leave free for [`PutMode::Reserved`](crate::PutMode::Reserved), in bytes.
const KEEP_FREE_FOR_REMOVALS: u64 = 16 * 1024 * 1024;
/// Number of full packs that a disk must be able to hold. Limits the length of packs on small disks.
const PACKS_ON_A_DISK: u64 = 64;
/// Name of the file that is written to check whether a disk that failed accepts writes again.
const PROBE: &str = "write-probe";
/// Length of that file, in bytes.
const PROBE_BYTES: usize = 256 * 1024;

/// Returns the maximum length of packs on the disk of `dir`: `requested`, or less on a small disk.
pub(super) fn pack_bytes_for(dir: &Path, requested: u32) -> u32 {
    // If the file system does not report its size, the disk is assumed to be large.
    Space::of(dir).map_or(requested, |space| largest_pack(space.all, requested))
}

fn largest_pack(disk_bytes: u64, requested: u32) -> u32 {
    let part = u32::try_from(disk_bytes / PACKS_ON_A_DISK).unwrap_or(u32::MAX);
    requested.min(part.max(LEAST_ROOM_TO_COMPACT))
}

impl Reserve {
    /// Returns the number of bytes that must be free after another `bytes` of blocks were put: enough for compactions
    /// and for puts that free space. Returns 0 for engines without a disk.
    #[must_use]
    pub fn after(&self, bytes: u64) -> u64 {
        match self.pack_bytes {
            0 => 0,
            _ => self.for_compactions(bytes) + KEEP_FREE_FOR_REMOVALS,
        }
    }

    /// Returns the number of bytes that compactions need after another `bytes` of blocks were put: enough for the live
    /// content of the longest pack at that point and for what compactions leave free.
    fn for_compactions(&self, bytes: u64) -> u64 {
        let grown = self.longest_pack.saturating_add(bytes).min(self.pack_bytes);
        self.longest_pack.max(grown).max(u64::from(LEAST_ROOM_TO_COMPACT)) + KEEP_FREE_WHILE_COMPACTING
    }
}

impl Shared {
    /// Returns the reserve that puts leave free.
    pub(super) fn reserve(&self) -> Reserve {
        let longest_pack = self.packs().iter().map(|pack| u64::from(pack.end())).max().unwrap_or(0);
        Reserve { longest_pack, pack_bytes: u64::from(self.options.pack_bytes) }
    }

    /// Checks that another `bytes` can be written without using the reserve. A rejected put is easier to recover from
    /// than a store that cannot be compacted.
    pub(super) fn check_free_space(&self, bytes: u64) -> Result<()> {
        // No pack is longer than its 32-bit offsets allow. If the disk has that much space, the actual lengths do not
        // matter.
        let max_reserve = u64::from(u32::MAX) + KEEP_FREE_WHILE_COMPACTING + KEEP_FREE_FOR_REMOVALS;
        if self.check_free_above(bytes, max_reserve).is_ok() {
            return Ok(());
        }
        self.check_free_above(bytes, self.reserve().after(bytes))
    }

    /// Like [`check_free_space`](Self::check_free_space), for puts that may use the space for removals. They leave what
    /// compactions need.
    pub(super) fn check_space_for_removal(&self, bytes: u64) -> Result<()> {
        self.check_free_above(bytes, self.reserve().for_compactions(bytes))
    }

    /// Like [`check_free_space`](Self::check_free_space), for the copies made by a compaction.
    pub(super) fn check_room_to_compact(&self, bytes: u64) -> Result<()> {
        self.check_free_above(bytes, KEEP_FREE_WHILE_COMPACTING)
    }

    /// Returns the dead share from which packs are worth compacting. The fuller the disk, the lower it is.
    ///
    /// The threshold grows with the space that puts may use. A disk full of packs with the same small dead share is
    /// therefore compacted completely: by the time that all dead space is freed, the threshold has not yet risen to
    /// the share of the remaining packs.
    pub(super) fn dead_share_worth(&self, options: CompactOptions) -> f64 {
        let (roomy, full) = (options.min_dead_share, options.min_dead_share_if_full);
        let Some(space) = Space::of(&self.dir).filter(|_| roomy > full) else { return roomy };
        full + (roomy - full) * space.free_share(self.reserve().after(0))
    }

    /// Whether the index can be made durable without filling the disk.
    pub(super) fn has_room_for_index(&self) -> bool {
        self.check_room_to_compact(u64::from(LEAST_ROOM_TO_COMPACT)).is_ok()
    }

    fn check_free_above(&self, bytes: u64, reserved: u64) -> Result<()> {
        // If the file system does not report its free space, it is assumed to be sufficient.
        let Some(free) = free_bytes(&self.dir) else { return Ok(()) };
        if free >= bytes.saturating_add(reserved) {
            return Ok(());
        }
        Err(no_room(&self.dir, free, reserved, bytes))
    }

    /// Implements [`BlockStore::disk`](crate::BlockStore::disk). Waits for the disk.
    pub(super) fn disk(&self) -> Result<Option<Disk>> {
        self.check()?;
        let failed = |error: io::Error| cannot("inspect", &self.dir, error);
        if self.is_doubtful() {
            probe(&self.dir).map_err(|error| cannot("write to", &self.dir, error))?;
            self.note_write(true);
        }
        let device = fs::metadata(&self.dir).map_err(failed)?.dev();
        let Some(space) = Space::of(&self.dir) else { return Ok(None) };
        Ok(Some(Disk { dir: self.dir.clone(), device, free_bytes: space.free, reserve: self.reserve() }))
    }
}

/// Writes a file to the disk of `dir` and removes it.
fn probe(dir: &Path) -> io::Result<()> {
    let path = dir.join(PROBE);
    let written = OpenOptions::new().write(true).create(true).truncate(true).open(&path).and_then(|mut file| {
        file.write_all(&vec![0; PROBE_BYTES])?;
        file.sync_data()
    });
    let removed = fs::remove_file(&path);
    written.and(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn pack_length_is_limited_on_small_disk() {
        let requested = 1 << 30;
        for (disk, length) in [
            (1, LEAST_ROOM_TO_COMPACT),
            (GIB / 2, LEAST_ROOM_TO_COMPACT),
            (8 * GIB, 128 << 20),
            (64 * GIB, requested),
            (u64::MAX, requested),
        ] {
            assert_eq!(largest_pack(disk, requested), length, "on a disk of {disk} bytes");
        }
        assert_eq!(largest_pack(GIB / 2, 64 << 10), 64 << 10, "shorter ones are as they were wanted");
    }

    #[test]
    fn free_share_grows_from_the_reserve_to_half_of_the_disk() {
        for (free, share) in [(0, 0.0), (16, 0.0), (41, 0.5), (66, 1.0), (90, 1.0)] {
            let space = Space { all: 100 * MIB, free: free * MIB };
            assert!((space.free_share(16 * MIB) - share).abs() < 0.03, "{free} MiB are free");
        }
    }

    #[test]
    fn reserve_is_length_of_longest_pack_after_put() {
        for (longest_pack, put, left) in [
            (0, 0, 16 * MIB),
            (MIB, MIB, 16 * MIB),
            (100 * MIB, 10 * MIB, 114 * MIB),
            (GIB, 10 * MIB, GIB + 4 * MIB),
            (100 * MIB, 10 * GIB, GIB + 4 * MIB),
            (3 * GIB, MIB, 3 * GIB + 4 * MIB),
        ] {
            let reserve = Reserve { longest_pack, pack_bytes: GIB };
            assert_eq!(reserve.after(put), left + KEEP_FREE_FOR_REMOVALS);
            assert_eq!(
                reserve.for_compactions(put),
                left,
                "a put of {put} where the longest pack has {longest_pack} bytes"
            );
        }
        assert_eq!(Reserve::default().after(GIB), 0);
    }
}

//! How much of the disk puts leave to compactions, which need room before they make some.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ipfrs_core::Result;

use super::lock::cannot;
use super::shared::Shared;
use crate::store::no_room;
use crate::{CompactOptions, Disk, Reserve};

/// The least that puts leave for what is alive in a pack, in bytes.
const LEAST_ROOM_TO_COMPACT: u32 = 12 * 1024 * 1024;
/// What compactions leave, in bytes, for deletions and for an index that must be written back.
const KEEP_FREE_WHILE_COMPACTING: u64 = 4 * 1024 * 1024;
/// The part of a disk that a pack takes at most.
const PACKS_ON_A_DISK: u64 = 64;
/// Name of the file that is written to find out whether a disk that failed takes writes again.
const PROBE: &str = "write-probe";
/// Length of that file, in bytes.
const PROBE_BYTES: usize = 256 * 1024;

/// The length of packs on the disk of `dir`: `wanted`, or so much less that one is a small part of that disk.
pub(super) fn pack_bytes_for(dir: &Path, wanted: u32) -> u32 {
    // Where a file system does not tell, it is large.
    Space::of(dir).map_or(wanted, |space| largest_pack(space.all, wanted))
}

fn largest_pack(disk_bytes: u64, wanted: u32) -> u32 {
    let part = u32::try_from(disk_bytes / PACKS_ON_A_DISK).unwrap_or(u32::MAX);
    wanted.min(part.max(LEAST_ROOM_TO_COMPACT))
}

/// The part of a disk that is free, beside the reserve, where space is not short.
const FREE_PART: u64 = 2;

/// Of a file system, in bytes.
struct Space {
    all: u64,
    free: u64,
}

impl Space {
    /// `None` where the file system does not tell.
    fn of(dir: &Path) -> Option<Self> {
        let status = rustix::fs::statvfs(dir).ok().filter(|status| status.f_blocks > 0)?;
        let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
        Some(Self { all: bytes(status.f_blocks), free: bytes(status.f_bavail) })
    }
}

impl Space {
    /// Returns how much is free besides `reserve`, as a share of what is free where space is not short: from 0 to 1.
    fn free_share(&self, reserve: u64) -> f64 {
        let enough = (self.all / FREE_PART).max(1);
        self.free.saturating_sub(reserve).min(enough) as f64 / enough as f64
    }
}

/// Bytes that can be written to the disk of `dir`; `None` where the file system does not tell.
pub(super) fn free_bytes(dir: &Path) -> Option<u64> {
    Space::of(dir).map(|space| space.free)
}

impl Reserve {
    /// Bytes that are to be free after another `bytes` of blocks were put: what is alive in the longest pack then, and what
    /// compactions leave. 0 for engines without a disk.
    #[must_use]
    pub fn after(&self, bytes: u64) -> u64 {
        if self.pack_bytes == 0 {
            return 0;
        }
        let grown = self.longest_pack.saturating_add(bytes).min(self.pack_bytes);
        self.longest_pack.max(grown).max(u64::from(LEAST_ROOM_TO_COMPACT)) + KEEP_FREE_WHILE_COMPACTING
    }
}

impl Shared {
    /// What puts leave free.
    pub(super) fn reserve(&self) -> Reserve {
        let longest_pack = self.packs().iter().map(|pack| u64::from(pack.end())).max().unwrap_or(0);
        Reserve { longest_pack, pack_bytes: u64::from(self.options.pack_bytes) }
    }

    /// Refuses to fill the disk to the brim with another `bytes`: a store that cannot be compacted is worse to mend than a
    /// put that is refused.
    pub(super) fn check_free_space(&self, bytes: u64) -> Result<()> {
        // No pack is longer than its offsets tell: where there is room for that, nobody need know how long they are.
        let most = u64::from(u32::MAX) + KEEP_FREE_WHILE_COMPACTING;
        if self.check_free_above(bytes, most).is_ok() {
            return Ok(());
        }
        self.check_free_above(bytes, self.reserve().after(bytes))
    }

    /// As [`check_free_space`](Self::check_free_space), for copies that a compaction makes.
    pub(super) fn check_room_to_compact(&self, bytes: u64) -> Result<()> {
        self.check_free_above(bytes, KEEP_FREE_WHILE_COMPACTING)
    }

    /// Returns the dead share from which on packs are worth being rewritten: the fuller the disk, the less is enough.
    ///
    /// It grows with the space that puts may use. So a disk full of packs of which the same small share is dead
    /// gets all of it back: when that much is free, the share that counts has not yet grown to that of the packs
    /// that are left.
    pub(super) fn dead_share_worth(&self, options: CompactOptions) -> f64 {
        let (roomy, full) = (options.min_dead_share, options.min_dead_share_if_full);
        let Some(space) = Space::of(&self.dir).filter(|_| roomy > full) else { return roomy };
        full + (roomy - full) * space.free_share(self.reserve().after(0))
    }

    /// Whether the index can be made durable without filling the disk.
    pub(super) fn has_room_for_index(&self) -> bool {
        self.check_room_to_compact(u64::from(LEAST_ROOM_TO_COMPACT)).is_ok()
    }

    fn check_free_above(&self, bytes: u64, kept: u64) -> Result<()> {
        // A file system that does not tell is no reason to refuse.
        let Some(free) = free_bytes(&self.dir) else { return Ok(()) };
        if free >= bytes.saturating_add(kept) {
            return Ok(());
        }
        Err(no_room(&self.dir, free, kept, bytes))
    }

    /// For [`BlockStore::disk`](crate::BlockStore::disk). Waits for the disk.
    pub(super) fn disk(&self) -> Result<Option<Disk>> {
        self.check()?;
        let failed = |error: io::Error| cannot("look at", &self.dir, error);
        if self.is_doubtful() {
            probe(&self.dir).map_err(|error| cannot("write to", &self.dir, error))?;
            self.note_write(true);
        }
        let device = fs::metadata(&self.dir).map_err(failed)?.dev();
        let Some(space) = Space::of(&self.dir) else { return Ok(None) };
        Ok(Some(Disk { dir: self.dir.clone(), device, free_bytes: space.free, reserve: self.reserve() }))
    }
}

/// Writes a file to the disk of `dir`, and removes it.
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
    fn packs_are_a_small_part_of_a_small_disk_and_as_long_as_wanted_on_a_large_one() {
        let wanted = 1 << 30;
        for (disk, length) in [
            (1, LEAST_ROOM_TO_COMPACT),
            (GIB / 2, LEAST_ROOM_TO_COMPACT),
            (8 * GIB, 128 << 20),
            (64 * GIB, wanted),
            (u64::MAX, wanted),
        ] {
            assert_eq!(largest_pack(disk, wanted), length, "on a disk of {disk} bytes");
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
    fn as_much_is_left_free_as_the_longest_pack_takes_after_the_put() {
        for (longest_pack, put, left) in [
            (0, 0, 16 * MIB),
            (MIB, MIB, 16 * MIB),
            (100 * MIB, 10 * MIB, 114 * MIB),
            (GIB, 10 * MIB, GIB + 4 * MIB),
            (100 * MIB, 10 * GIB, GIB + 4 * MIB),
            (3 * GIB, MIB, 3 * GIB + 4 * MIB),
        ] {
            let reserve = Reserve { longest_pack, pack_bytes: GIB };
            assert_eq!(reserve.after(put), left, "a put of {put} where the longest pack has {longest_pack} bytes");
        }
        assert_eq!(Reserve::default().after(GIB), 0);
    }
}

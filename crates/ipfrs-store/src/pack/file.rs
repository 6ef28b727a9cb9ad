//! A pack file: creating, opening and appending.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipfrs_core::{Error, Result};
use parking_lot::Mutex;

use super::changes::PackUse;
#[cfg(test)]
use super::crash_recorder;
use super::lock::{cannot, sync_directory};
use super::record::CAR_HEADER;
use super::residency::Residency;
use crate::Mappings;
use crate::mapping::{Claim, FileSlice, MappedFile};

/// Maximum number of buffers of one `pwritev` call (`IOV_MAX` on Linux).
const MAX_SLICES: usize = 1_024;

/// Bytes of an append after which the disk begins to write them.
const WRITE_BACK_BYTES: usize = 2 * 1024 * 1024;

/// Length of the parts of a pack whose residency is known, in bytes. Their state takes 16 KiB per GiB.
const RESIDENCY_BYTES: usize = 256 * 1024;

/// Unit of `st_blocks`, whatever the block size of the file system (POSIX `stat` on Linux).
const STAT_BLOCK_BYTES: u64 = 512;

/// An open pack. The file ends with its last complete section and is never longer than what was written, so a copy of
/// it is a valid CAR at any time.
#[derive(Debug)]
pub(super) struct Pack {
    number: u32,
    path: PathBuf,
    map: Arc<MappedFile>,
    residency: Residency,
    /// Whether the log already reports that the pack was truncated.
    is_reported: AtomicBool,
    known: Mutex<PackUse>,
}

/// A pack found in the directory, before any of its content is trusted.
#[derive(Debug)]
pub(super) struct FoundPack {
    /// Number of the pack.
    pub(super) number: u32,
    /// Path of the file.
    pub(super) path: PathBuf,
    /// Open for reading, and for writing unless the store is read-only.
    pub(super) file: File,
    /// Length of the file, in bytes.
    pub(super) len: u32,
}

/// Returns the path of a pack.
pub(super) fn path_of(packs_dir: &Path, number: u32) -> PathBuf {
    packs_dir.join(format!("{number:08}.car"))
}

/// Returns the number of a pack from its file name, or `None` for any other file.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".car")?;
    let plain = digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl Pack {
    /// Creates pack `number` with a capacity of `capacity` bytes. The pack holds only its header, which is durable.
    pub(super) fn create(packs_dir: &Path, number: u32, capacity: u32, mappings: &Mappings) -> Result<Self> {
        let path = path_of(packs_dir, number);
        let failed = |error| cannot("create", &path, error);
        #[cfg(test)]
        crash_recorder::before(&path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        let begin = || {
            write_all_at(&file, &mut [IoSlice::new(CAR_HEADER)], 0)?;
            #[cfg(test)]
            let syncing = crash_recorder::before_sync(&file);
            file.sync_all()?;
            #[cfg(test)]
            drop(syncing);
            #[cfg(test)]
            crash_recorder::before(packs_dir);
            sync_directory(packs_dir)?;
            MappedFile::new(file, capacity as usize, CAR_HEADER.len() as u64, mappings)
        };
        // A partly created pack must not block the next attempt.
        let map = begin().inspect_err(|_| drop(fs::remove_file(&path))).map_err(failed)?;
        Ok(Self::of(number, path, map))
    }

    /// Maps a pack that was found sound, with a capacity of `capacity` bytes.
    pub(super) fn open(found: FoundPack, capacity: u32, mappings: &Mappings) -> Result<Self> {
        let FoundPack { number, path, file, len } = found;
        let map = MappedFile::new(file, capacity.max(len) as usize, u64::from(len), mappings)
            .map_err(|error| cannot("map", &path, error))?;
        Ok(Self::of(number, path, map))
    }

    fn of(number: u32, path: PathBuf, map: MappedFile) -> Self {
        let residency = Residency::new(usize::try_from(map.capacity()).unwrap_or(usize::MAX), RESIDENCY_BYTES);
        let (map, is_reported) = (Arc::new(map), AtomicBool::new(false));
        Self { number, path, map, residency, is_reported, known: Mutex::default() }
    }

    /// Stores the statistics of the pack in the index, for [`Self::known`].
    pub(super) fn set_known(&self, known: PackUse) {
        *self.known.lock() = known;
    }

    /// Returns the statistics of the pack in the index, as of the last commit.
    pub(super) fn known(&self) -> PackUse {
        *self.known.lock()
    }

    /// Whether the pack may contain a dead block: one that the index no longer locates there, or one after damage,
    /// which the index does not cover. In that case a later tombstone may be all that prevents the block from
    /// reappearing when the index is rebuilt.
    pub(super) fn may_hold_dead_blocks(&self) -> bool {
        let known = self.known();
        known.dead_block_bytes() > 0 || known.covered.max(CAR_HEADER.len() as u32) < self.end()
    }

    /// Returns the number of the pack.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &File {
        self.map.file()
    }

    /// Returns the claim on the file, to be cloned for another descriptor of it.
    pub(super) fn claim(&self) -> &Claim {
        self.map.claim()
    }

    /// Returns the disk space allocated to the file, in bytes, or 0 if the file system does not report it.
    pub(super) fn allocated_bytes(&self) -> u64 {
        let allocated = |status: rustix::fs::Stat| u64::try_from(status.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES;
        rustix::fs::fstat(self.file()).map_or(0, allocated)
    }

    /// Returns the length of the published part, in bytes.
    pub(super) fn end(&self) -> u32 {
        self.map.readable() as u32
    }

    /// Returns the number of bytes that can still be appended.
    pub(super) fn room(&self) -> u64 {
        self.map.capacity() - self.map.readable()
    }

    /// Whether slices of the pack can be returned. If another process truncated it or its disk failed, its blocks
    /// must be read with [`read_verified`](super::verified::read_verified) instead. Logs the damage once.
    pub(super) fn is_intact(&self) -> bool {
        if self.map.is_intact() {
            return true;
        }
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            let length = self.file().metadata().map_or(0, |metadata| metadata.len());
            tracing::error!(
                pack = %self.path.display(), length, written = self.end(),
                "part of this pack is missing: another program truncated it, or its disk is failing. The rest is \
                 verified on every read; connections that may have sent wrong bytes are reset. Restore the file \
                 from a copy, or restart to continue without the lost data"
            );
        }
        false
    }

    /// Stops returning slices of the pack. The kernel may have dropped pages that it could not write, so that the
    /// mapping shows older content.
    pub(super) fn distrust(&self) {
        self.map.distrust();
    }

    /// Checks that the file exists, and that its length is the number of bytes written. Otherwise another process has
    /// changed it, and nothing may be appended.
    pub(super) fn check_length(&self) -> Result<()> {
        let failed = |error| cannot("read the length of", &self.path, error);
        let metadata = self.file().metadata().map_err(failed)?;
        let (length, end) = (metadata.len(), u64::from(self.end()));
        if metadata.nlink() == 0 {
            return Err(Error::corrupt(format!(
                "{} was removed by another program: restore it from a copy, or restart to continue without it",
                self.path.display()
            )));
        }
        if length == end {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "{} has {length} bytes, but {end} were written: another program changed it; restore it from a copy, or \
             restart to continue with the remaining data",
            self.path.display()
        )))
    }

    /// Writes at the end without publishing. [`Self::cut`] removes the remains of a failed write. If it
    /// `begins_write_back`, the disk writes the first part of a long append while the rest is copied, so that
    /// [`Self::sync`] waits for less.
    pub(super) fn append(&self, mut slices: &mut [IoSlice<'_>], begins_write_back: bool) -> Result<()> {
        let mut end = self.end();
        while !slices.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            while count < slices.len() && bytes < WRITE_BACK_BYTES {
                bytes += slices[count].len();
                count += 1;
            }
            let (part, rest) = std::mem::take(&mut slices).split_at_mut(count);
            write_all_at(self.file(), part, u64::from(end)).map_err(|error| cannot("write", &self.path, error))?;
            if begins_write_back && !rest.is_empty() {
                self.begin_write_back(end, bytes as u64);
            }
            end += bytes as u32;
            slices = rest;
        }
        Ok(())
    }

    /// Starts writing `bytes` bytes from `start` to the disk, without waiting.
    pub(super) fn begin_write_back(&self, start: u32, bytes: u64) {
        self.map.begin_write_back(u64::from(start), bytes);
    }

    /// Waits until everything written is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        #[cfg(test)]
        let _syncing = crash_recorder::before_sync(self.file());
        self.file().sync_data().map_err(|error| cannot("sync", &self.path, error))
    }

    /// Makes appended bytes readable.
    pub(super) fn publish(&self, end: u32) {
        self.map.publish(u64::from(end));
    }

    /// Durably removes the bytes after `end`. The index must not refer to them.
    pub(super) fn cut(&self, end: u32) -> Result<()> {
        self.publish(end);
        // Extending a file that another process truncated would turn the missing part into zeros.
        if !self.is_intact() {
            return self.check_length();
        }
        let cut = self.file().set_len(u64::from(end)).and_then(|()| self.file().sync_data());
        cut.map_err(|error| cannot("cut", &self.path, error))
    }

    /// Whether a slice of this pack is in memory, or was a moment ago.
    pub(super) fn is_resident(&self, slice: &FileSlice) -> bool {
        self.residency.is_resident(&self.map, slice.range())
    }

    /// Returns `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the pack ends before that.
    pub(super) fn slice(&self, offset: u32, len: usize) -> Result<FileSlice> {
        self.map.slice(u64::from(offset), len).ok_or_else(|| {
            let (path, end) = (self.path.display(), self.end());
            Error::corrupt(format!("{path} ends at {end}, but a block of {len} bytes should be at {offset}"))
        })
    }
}

fn write_all_at(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let count = slices.len().min(MAX_SLICES);
        match rustix::io::pwritev(file, &slices[..count], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

//! One pack file: created, opened, appended to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::lock::{cannot, sync_directory};
use super::record::CAR_HEADER;
use crate::Mappings;
use crate::mapping::{FileSlice, MappedFile};

/// Most buffers that one `pwritev` takes (`IOV_MAX` on Linux).
const MAX_SLICES: usize = 1_024;

/// An open pack. It ends where its last complete section ends: the file is never longer than what was written, so that
/// a copy of it is a valid CAR at any time.
#[derive(Debug)]
pub(super) struct Pack {
    number: u32,
    path: PathBuf,
    map: Arc<MappedFile>,
}

/// A pack as it was found in the directory, before anything in it is trusted.
#[derive(Debug)]
pub(super) struct FoundPack {
    /// Its number.
    pub(super) number: u32,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Open for reading and writing.
    pub(super) file: File,
    /// Length of the file, in bytes.
    pub(super) len: u32,
}

/// The path of a pack.
pub(super) fn path_of(packs_dir: &Path, number: u32) -> PathBuf {
    packs_dir.join(format!("{number:08}.car"))
}

/// The number of a pack, from its file name; `None` for any other file.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".car")?;
    let plain = digits.len() >= 8 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

impl Pack {
    /// Creates pack `number`, empty but for its header and durable as such, with room for `capacity` bytes.
    pub(super) fn create(packs_dir: &Path, number: u32, capacity: u32, mappings: &Mappings) -> Result<Self> {
        let path = path_of(packs_dir, number);
        let failed = |error| cannot("create", &path, error);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed)?;
        let begin = || {
            write_all_at(&file, &mut [IoSlice::new(CAR_HEADER)], 0)?;
            file.sync_all()?;
            sync_directory(packs_dir)?;
            MappedFile::new(file, capacity as usize, CAR_HEADER.len() as u64, mappings)
        };
        // Half a pack must not stand in the way of the next try.
        let map = begin().inspect_err(|_| drop(fs::remove_file(&path))).map_err(failed)?;
        Ok(Self { number, path, map: Arc::new(map) })
    }

    /// Maps a pack that was found sound, with room for `capacity` bytes.
    pub(super) fn open(found: FoundPack, capacity: u32, mappings: &Mappings) -> Result<Self> {
        let FoundPack { number, path, file, len } = found;
        let map = MappedFile::new(file, capacity.max(len) as usize, u64::from(len), mappings)
            .map_err(|error| cannot("map", &path, error))?;
        Ok(Self { number, path, map: Arc::new(map) })
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        self.map.file()
    }

    /// Bytes written and published.
    pub(super) fn end(&self) -> u32 {
        self.map.readable() as u32
    }

    /// Bytes that can still be appended.
    pub(super) fn room(&self) -> u64 {
        self.map.capacity() - self.map.readable()
    }

    /// Writes at the end, without publishing. What a failed write left behind is for [`Self::cut`].
    pub(super) fn append(&self, slices: &mut [IoSlice<'_>]) -> Result<()> {
        write_all_at(self.file(), slices, u64::from(self.end())).map_err(|error| cannot("write", &self.path, error))
    }

    /// Waits until everything that was written is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        self.file().sync_data().map_err(|error| cannot("sync", &self.path, error))
    }

    /// Makes what was appended readable.
    pub(super) fn publish(&self, end: u32) {
        self.map.publish(u64::from(end));
    }

    /// Takes away what was appended after `end`, durably; the index must name nothing of it.
    pub(super) fn cut(&self, end: u32) -> Result<()> {
        self.publish(end);
        let cut = self.file().set_len(u64::from(end)).and_then(|()| self.file().sync_data());
        cut.map_err(|error| cannot("cut", &self.path, error))
    }

    /// `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) when the pack is shorter than that.
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

//! A run: an immutable file of sorted entries.

use std::cmp::Ordering;
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::decode::{unreadable, unseal};
use super::layout::{Family, Layout, START_BYTES, split_key};
use crate::Mappings;
use crate::mapping::{FileSlice, MappedFile};
use crate::pack::lock::cannot;
use crate::pack::record::Location;
use crate::pack::residency::Residency;

/// Maximum number of entries for a linear search. Larger ranges are bisected first.
const NEIGHBOURS: usize = 8;

/// Maximum number of entries of a bucket that are searched without waiting for the disk.
const MAX_RESIDENT_ENTRIES: usize = 1_024;

/// Entry of a block in a run: its location, or `None` if it was deleted.
pub(super) type Said = Option<Location>;

/// An open, mapped run. Readers keep it alive even if its file is removed.
#[derive(Debug)]
pub(super) struct Run {
    number: u64,
    path: PathBuf,
    layout: Layout,
    /// Checksum of the header. The header contains the checksums of the content.
    checksum: u32,
    file: Arc<MappedFile>,
    bytes: FileSlice,
    residency: Residency,
}

impl Run {
    /// Opens a run. Verifies only its header.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the file is not a valid run.
    pub(super) fn open(file: File, number: u64, path: &Path, mappings: &Mappings) -> Result<Self> {
        let damaged = |why: String| Error::corrupt(format!("{}: {why}", path.display()));
        let read = |at: u64, out: &mut [u8]| match file.read_exact_at(out, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged("it is too short".to_owned())),
            read => read.map_err(|error| unreadable("read", path, error)),
        };
        let mut start = [0; START_BYTES];
        read(0, &mut start)?;
        let mut header = vec![0; Layout::header_bytes_of(start).map_err(damaged)?];
        read(0, &mut header)?;
        let layout = Layout::decode(&header).map_err(damaged)?;
        let len = file.metadata().map_err(|error| cannot("read the length of", path, error))?.len();
        if len != layout.file_bytes() as u64 {
            return Err(damaged(format!("it has {len} bytes instead of {}", layout.file_bytes())));
        }
        let file = MappedFile::new(file, len as usize, len, mappings).map_err(|error| cannot("map", path, error))?;
        let file = Arc::new(file);
        let bytes = file.slice(0, len as usize).ok_or_else(|| damaged("it cannot be mapped".to_owned()))?;
        // Excludes the checksum at the end: the CRC-32 of any data followed by its own CRC-32 is a constant.
        let checksum = unseal(&header).map_or(0, crc32fast::hash);
        let residency = Residency::new(len as usize, rustix::param::page_size());
        Ok(Self { number, path: path.to_owned(), checksum, layout, file, bytes, residency })
    }

    /// Returns the number of the run.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the layout of the file.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns a checksum that identifies the content.
    pub(super) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Returns the length of the file, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Loads the content into memory. If the disk fails, that is an error, and no page is missing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn load(&self) -> Result<()> {
        self.bytes.populate().map_err(|error| cannot("read", &self.path, error))
    }

    /// Verifies the checksums of the content.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if they do not match.
    pub(super) fn verify(&self) -> Result<()> {
        let (fan, entries) = self.bytes.as_ref()[self.layout.header_bytes()..]
            .split_at(self.layout.entries_at() - self.layout.header_bytes());
        let is_right = crc32fast::hash(fan) == self.layout.fan_checksum
            && crc32fast::hash(entries) == self.layout.entries_checksum;
        if is_right { self.check() } else { Err(self.damaged("its checksums do not match")) }
    }

    /// Checks that everything read so far was the content of the file. A missing part of the file reads as zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if it was not.
    pub(super) fn check(&self) -> Result<()> {
        match self.file.has_faulted() {
            true => Err(self.damaged("part of it is missing, or its disk is failing")),
            false => Ok(()),
        }
    }

    /// Returns the error for a damaged run.
    pub(super) fn damaged(&self, why: &str) -> Error {
        let (path, dir) = (self.path.display(), self.path.parent().unwrap_or(&self.path).display());
        Error::corrupt(format!(
            "the index is damaged: {path}: {why} (stop the program, delete {dir} and restart: the index is rebuilt from the packs)"
        ))
    }

    /// Returns the entry of the block whose key is `prefix` followed by `digest`, or `None` if the run has no entry
    /// for it.
    pub(super) fn find(&self, prefix: &[u8], digest: &[u8]) -> Result<Option<Said>> {
        let Some(family) = self.layout.families.iter().find(|family| *family.prefix == *prefix) else {
            return Ok(None);
        };
        match self.place_of(family, digest)? {
            Ok(place) => self.said(family, place).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Same as [`find`](Self::find), but returns `None` if that would wait for the disk.
    pub(super) fn find_resident(&self, prefix: &[u8], digest: &[u8]) -> Result<Option<Option<Said>>> {
        let Some(family) = self.layout.families.iter().find(|family| *family.prefix == *prefix) else {
            return Ok(Some(None));
        };
        let bucket = family.bucket_of(digest);
        let table = family.fan_at + 4 * bucket.saturating_sub(1)..family.fan_at + 4 * (bucket + 1);
        if bucket >= family.buckets() || !self.residency.is_resident(&self.file, table) {
            return Ok(None);
        }
        let (low, high) = self.bucket(family, bucket)?;
        // Buckets have few entries, unless a client has stored blocks whose digests begin alike.
        if high - low > MAX_RESIDENT_ENTRIES {
            return Ok(None);
        }
        let entries = family.entries_at + low * family.entry_bytes..family.entries_at + high * family.entry_bytes;
        if !self.residency.is_resident(&self.file, entries) {
            return Ok(None);
        }
        self.search(family, digest, low..high).ok().map(|place| self.said(family, place)).transpose().map(Some)
    }

    /// Loads the entries of `keys` into the processor's cache, except those that are on the disk. The processor waits
    /// for all of them at the same time: no read depends on the one before.
    pub(super) fn preload<K: Deref<Target = [u8]>>(&self, keys: &[K]) {
        let start = |key: &K| {
            let (prefix, digest) = split_key(key);
            let family = self.layout.families.iter().find(|family| *family.prefix == *prefix)?;
            let bucket = family.bucket_of(digest);
            let at = family.fan_at + 4 * bucket.saturating_sub(1);
            let is_resident = bucket < family.buckets() && self.residency.is_resident(&self.file, at..at + 4);
            let place = if is_resident { self.bucket_start(family, bucket).ok()? } else { return None };
            Some(family.entries_at + place * family.entry_bytes)
        };
        let starts: Vec<usize> = keys.iter().filter_map(start).collect();
        let bytes = self.bytes.as_ref();
        let resident =
            starts.iter().filter(|at| **at < bytes.len() && self.residency.is_resident(&self.file, **at..**at + 1));
        black_box(resident.fold(0, |all, at| all ^ bytes[*at]));
    }

    /// Returns the position of the entry with this digest within its family, or, as the inner error, the position of
    /// the first entry after it.
    pub(super) fn place_of(&self, family: &Family, digest: &[u8]) -> Result<Result<usize, usize>> {
        let (low, high) = self.bucket(family, family.bucket_of(digest))?;
        Ok(self.search(family, digest, low..high))
    }

    /// Same as [`place_of`](Self::place_of), within the positions of the bucket of the digest.
    fn search(&self, family: &Family, digest: &[u8], bucket: Range<usize>) -> Result<usize, usize> {
        let Range { start: mut low, end: mut high } = bucket;
        let wanted = &digest[family.implied_bytes()..];
        let compare = |place| compare(&self.entry(family, place)[..wanted.len()], wanted);
        while high - low > NEIGHBOURS {
            let middle = low.midpoint(high);
            match compare(middle) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        // A linear search: the entries are adjacent, and no comparison waits for the memory access of the one before.
        for place in low..high {
            match compare(place) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(place),
                Ordering::Greater => return Err(place),
            }
        }
        Err(high)
    }

    /// Returns the position of the first entry of a bucket, and the position after its last entry.
    fn bucket(&self, family: &Family, bucket: usize) -> Result<(usize, usize)> {
        let (low, high) = (self.bucket_start(family, bucket)?, self.bucket_end(family, bucket)?);
        if low <= high { Ok((low, high)) } else { Err(self.damaged("its bucket table is out of order")) }
    }

    fn bucket_start(&self, family: &Family, bucket: usize) -> Result<usize> {
        bucket.checked_sub(1).map_or(Ok(0), |before| self.bucket_end(family, before))
    }

    /// Returns the position after the last entry of a bucket.
    pub(super) fn bucket_end(&self, family: &Family, bucket: usize) -> Result<usize> {
        let end = (bucket < family.buckets()).then(|| {
            let at = family.fan_at + 4 * bucket;
            self.bytes.as_ref()[at..].first_chunk().map(|end| u32::from_le_bytes(*end) as usize)
        });
        let end = end.flatten().filter(|end| *end <= family.count);
        end.ok_or_else(|| self.damaged("its bucket table is out of order"))
    }

    /// Returns the encoded entry: the digest without its [implied bytes](Family::implied_bytes), and the fields.
    pub(super) fn entry(&self, family: &Family, place: usize) -> &[u8] {
        let at = family.entries_at + place * family.entry_bytes;
        &self.bytes.as_ref()[at..at + family.entry_bytes]
    }

    /// Decodes an entry.
    pub(super) fn said(&self, family: &Family, place: usize) -> Result<Said> {
        let fields = &self.entry(family, place)[family.digest_bytes - family.implied_bytes()..];
        self.layout.location(fields).map_err(|why| self.damaged(&why))
    }
}

/// Compares two digests, or suffixes of digests, of the same length. Nearly all differ in their first bytes.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.split_first_chunk(), b.split_first_chunk()) {
        (Some((a, more_a)), Some((b, more_b))) => {
            u64::from_be_bytes(*a).cmp(&u64::from_be_bytes(*b)).then_with(|| more_a.cmp(more_b))
        }
        _ => a.cmp(b),
    }
}

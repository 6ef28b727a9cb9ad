//! A run: sorted entries in a file that never changes.

use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::decode::unseal;
use super::layout::{Family, Layout, START_BYTES};
use super::place::unreadable;
use crate::Mappings;
use crate::mapping::{FileSlice, MappedFile};
use crate::pack::lock::cannot;
use crate::pack::record::Location;

/// So many entries are looked through, where more are bisected.
const NEIGHBOURS: usize = 8;

/// What a run says of a block: where it is, or `None`: that it was deleted.
pub(super) type Said = Option<Location>;

/// An open run, mapped. Readers keep it, whatever becomes of its file.
#[derive(Debug)]
pub(super) struct Run {
    number: u64,
    path: PathBuf,
    layout: Layout,
    /// Of the whole header, and so of the whole content.
    checksum: u32,
    file: Arc<MappedFile>,
    bytes: FileSlice,
}

impl Run {
    /// Opens a run. Of its content, only the header is verified.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) when it is none.
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
        // Not of all of it: with its own checksum at the end, anything has the same.
        let checksum = unseal(&header).map_or(0, crc32fast::hash);
        Ok(Self { number, path: path.to_owned(), checksum, layout, file, bytes })
    }

    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How its file is laid out.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What tells it from any other.
    pub(super) fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Length of its file, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Compares the content with its checksums.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) when they differ.
    pub(super) fn verify(&self) -> Result<()> {
        let (fan, entries) = self.bytes.as_ref()[self.layout.header_bytes()..]
            .split_at(self.layout.entries_at() - self.layout.header_bytes());
        let is_right = crc32fast::hash(fan) == self.layout.fan_checksum
            && crc32fast::hash(entries) == self.layout.entries_checksum;
        if is_right { self.check() } else { Err(self.damaged("its checksums do not match")) }
    }

    /// Whether what was read until now was what is in the file: a part that is gone reads as zeros.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) when it was not.
    pub(super) fn check(&self) -> Result<()> {
        match self.file.has_faulted() {
            true => Err(self.damaged("a part of it is gone, or its disk fails")),
            false => Ok(()),
        }
    }

    /// The error of a run that is damaged.
    pub(super) fn damaged(&self, why: &str) -> Error {
        let (path, dir) = (self.path.display(), self.path.parent().unwrap_or(&self.path).display());
        Error::corrupt(format!(
            "the index is damaged: {path}: {why} (stop the program, delete {dir} and start again: it is rebuilt from the packs)"
        ))
    }

    /// What it says of the block whose key is `prefix` and `digest`; `None` when that is nothing.
    pub(super) fn find(&self, prefix: &[u8], digest: &[u8]) -> Result<Option<Said>> {
        let Some(family) = self.layout.families.iter().find(|family| *family.prefix == *prefix) else {
            return Ok(None);
        };
        match self.place_of(family, digest)? {
            Ok(place) => self.said(family, place).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The place of the entry with this digest among those of its family, or that of the first after it.
    pub(super) fn place_of(&self, family: &Family, digest: &[u8]) -> Result<Result<usize, usize>> {
        let bucket = family.bucket_of(digest);
        let (mut low, mut high) = (self.bucket_start(family, bucket)?, self.bucket_end(family, bucket)?);
        if low > high {
            return Err(self.damaged("its fan-out table is not in order"));
        }
        let wanted = &digest[family.implied_bytes()..];
        let compare = |place| compare(&self.entry(family, place)[..wanted.len()], wanted);
        while high - low > NEIGHBOURS {
            let middle = low.midpoint(high);
            match compare(middle) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Ok(middle)),
                Ordering::Greater => high = middle,
            }
        }
        // One after the other: they lie next to each other, and none waits for the one before to be read.
        for place in low..high {
            match compare(place) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Ok(place)),
                Ordering::Greater => return Ok(Err(place)),
            }
        }
        Ok(Err(high))
    }

    fn bucket_start(&self, family: &Family, bucket: usize) -> Result<usize> {
        bucket.checked_sub(1).map_or(Ok(0), |before| self.bucket_end(family, before))
    }

    /// The place after the last entry of a bucket.
    pub(super) fn bucket_end(&self, family: &Family, bucket: usize) -> Result<usize> {
        let end = (bucket < family.buckets()).then(|| {
            let at = family.fan_at + 4 * bucket;
            self.bytes.as_ref()[at..].first_chunk().map(|end| u32::from_le_bytes(*end) as usize)
        });
        let end = end.flatten().filter(|end| *end <= family.count);
        end.ok_or_else(|| self.damaged("its fan-out table is not in order"))
    }

    /// The digest of an entry, but for the [bytes](Family::implied_bytes) that are left out, and its fields.
    pub(super) fn entry(&self, family: &Family, place: usize) -> &[u8] {
        let at = family.entries_at + place * family.entry_bytes;
        &self.bytes.as_ref()[at..at + family.entry_bytes]
    }

    /// What an entry says.
    pub(super) fn said(&self, family: &Family, place: usize) -> Result<Said> {
        let fields = &self.entry(family, place)[family.digest_bytes - family.implied_bytes()..];
        self.layout.location(fields).map_err(|why| self.damaged(&why))
    }
}

/// Compares digests of the same length, or what is left of them. Nearly all differ at their beginning.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    match (a.split_first_chunk(), b.split_first_chunk()) {
        (Some((a, more_a)), Some((b, more_b))) => {
            u64::from_be_bytes(*a).cmp(&u64::from_be_bytes(*b)).then_with(|| more_a.cmp(more_b))
        }
        _ => a.cmp(b),
    }
}

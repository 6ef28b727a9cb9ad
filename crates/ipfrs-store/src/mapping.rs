//! Files mapped into memory, and the table that tells which memory is a view of which file, so that a socket can send
//! from the file instead of from memory.
//!
//! All `unsafe` of this crate is here and in `fault`. It rests on these facts:
//!
//! 1. A [`MappedFile`] maps its file once, at full capacity, and lets go of it when it is dropped. Every slice that is
//!    handed out ([`FileSlice`]) holds an `Arc` of it, so the memory outlives the slice.
//! 2. Slices are handed out of the first [`MappedFile::readable`] bytes only. Those bytes exist in the file, and nobody
//!    changes them: packs are append-only, and the lock on the store keeps other processes of this program away. (The
//!    mapping reaches beyond the end of the file; touching that part would raise SIGBUS, so nothing does.)
//! 3. A mapped file is in the table of [`Mappings`] from before its first slice until after its last one.
//!
//! What no program can exclude is that somebody else truncates or rewrites the file. A page that is gone is noticed when
//! it is read ([`fault`]), a length that shrank when a slice is asked for ([`MappedFile::is_intact`]). See
//! `docs/DESIGN.md`, "Hazards".
#![allow(unsafe_code)]

mod fault;
mod release;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::RwLock;

pub use self::fault::Sending;
use self::fault::{Faults, Region as Protected};
pub(crate) use self::release::{wait_for_released, wait_until};

/// The mapped files of a store: a shared table from address ranges to files. Cloning shares the table.
#[derive(Debug, Clone, Default)]
pub struct Mappings {
    by_start: Arc<RwLock<BTreeMap<usize, Region>>>,
    faults: Arc<Faults>,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    end: usize,
    fd: RawFd,
}

/// Where in a file a slice of memory comes from.
#[derive(Debug)]
pub struct MappedSlice<'a> {
    /// The file, open for at least as long as the slice that was looked up.
    pub file: BorrowedFd<'a>,
    /// Offset of the slice's first byte in the file.
    pub offset: u64,
}

impl Mappings {
    /// The file that `slice` is a view of, or `None` when it lies in ordinary memory or is empty. Costs a read lock and
    /// a search among the mapped files.
    #[must_use]
    pub fn locate<'a>(&self, slice: &'a [u8]) -> Option<MappedSlice<'a>> {
        // An empty slice keeps nothing alive: `Bytes::slice(n..n)` points into the map without holding its owner.
        if slice.is_empty() {
            return None;
        }
        let start = slice.as_ptr().addr();
        let end = start.checked_add(slice.len())?;
        let regions = self.by_start.read();
        let (base, region) = regions.range(..=start).next_back()?;
        if end > region.end {
            return None;
        }
        // SAFETY: the fd must be open for all of 'a. Memory in a region of this table is reachable only through a
        // `FileSlice` (fact 1), so whoever holds `slice` for 'a keeps a `FileSlice`, hence the `MappedFile`, hence its
        // `File` for 'a. The region cannot be a stale one at an address that was mapped anew: it leaves the table
        // before the memory is unmapped (fact 3).
        let file = unsafe { BorrowedFd::borrow_raw(region.fd) };
        Some(MappedSlice { file, offset: (start - base) as u64 })
    }

    /// A number that changes when bytes of a mapped file turn out to be gone, because somebody truncated it or its disk
    /// failed. In slices that were taken before, zeros may be in their place from then on. Whoever compares the number
    /// after copying or decoding bytes with what it was before they were asked for knows whether they can be trusted.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.count()
    }

    /// Announces that slices will be handed to the kernel, from where nothing can be taken back: as long as the answer
    /// lives, nothing that they show turns to zeros. `None` when [`faults`](Self::faults) is not `seen` any more; then
    /// they may show zeros already. To be held for a system call that does not block, and while no slice is read.
    #[must_use]
    pub fn sending(&self, seen: u64) -> Option<Sending<'_>> {
        self.faults.sending(seen)
    }

    fn register(&self, start: usize, region: Region) {
        self.by_start.write().insert(start, region);
    }

    fn unregister(&self, start: usize) {
        self.by_start.write().remove(&start);
    }
}

/// A file that is mapped once, read-only, at its full capacity, and grows under the mapping.
#[derive(Debug)]
pub(crate) struct MappedFile {
    view: ManuallyDrop<View>,
    readable: AtomicU64,
    mappings: Mappings,
}

/// A file, its mapping, and what makes that safe. Fields are dropped in this order.
#[derive(Debug)]
struct View {
    protected: Protected,
    map: MmapRaw,
    file: File,
    /// The last, so that the file is closed when no claim is left.
    claim: Claim,
}

/// A reason why a file is still open: it is mapped, or open once more. A file that was removed keeps its space on the
/// disk until the last claim is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim(Arc<()>);

impl Claim {
    /// Returns a way to see whether any claim on the same file is left.
    pub(crate) fn watch(&self) -> Claimed {
        Claimed(Arc::downgrade(&self.0))
    }
}

/// Tells whether any claim on a file is left.
#[derive(Debug)]
pub(crate) struct Claimed(Weak<()>);

impl Claimed {
    /// Whether the file is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl MappedFile {
    /// Maps the first `capacity` bytes of `file`, of which `readable` are there now and will never change.
    pub(crate) fn new(file: File, capacity: usize, readable: u64, mappings: &Mappings) -> io::Result<Self> {
        let map = MmapOptions::new().len(capacity.max(1)).map_raw_read_only(&file)?;
        // SAFETY: the mapping begins there, has that length, and is dropped after `protected`. Its readers know that a
        // slice may show zeros once `faults` has changed.
        let protected = unsafe { Protected::protect(map.as_ptr(), map.len(), &mappings.faults)? };
        let start = map.as_ptr().addr();
        mappings.register(start, Region { end: start + map.len(), fd: file.as_raw_fd() });
        let view = ManuallyDrop::new(View { protected, map, file, claim: Claim::default() });
        Ok(Self { view, readable: AtomicU64::new(readable), mappings: mappings.clone() })
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &File {
        &self.view.file
    }

    /// Returns the claim on the file, for another descriptor of it.
    pub(crate) fn claim(&self) -> &Claim {
        &self.view.claim
    }

    /// Most bytes that the mapping can show.
    pub(crate) fn capacity(&self) -> u64 {
        self.view.map.len() as u64
    }

    /// Length of the part that slices may be taken of, in bytes.
    pub(crate) fn readable(&self) -> u64 {
        self.readable.load(Ordering::Acquire)
    }

    /// Whether the readable part is still there, as far as is known: nobody has met a page that is gone, and the file is
    /// not shorter than it should be. (Within its last page, a file that was truncated shows zeros and raises nothing.)
    /// Once `false`, it stays so.
    pub(crate) fn is_intact(&self) -> bool {
        if self.view.protected.is_hurt() {
            return false;
        }
        if self.is_too_short() && self.is_too_short() {
            self.view.protected.hurt();
            return false;
        }
        true
    }

    /// Whether somebody has met a page that is gone. Costs no system call, where [`is_intact`](Self::is_intact) asks for the
    /// file's length as well.
    pub(crate) fn has_faulted(&self) -> bool {
        self.view.protected.is_hurt()
    }

    /// Notes that what it shows may not be what was written, as if a part were gone.
    pub(crate) fn distrust(&self) {
        self.view.protected.hurt();
    }

    /// Whether the file is shorter than its readable part. The writer may lengthen both, or shorten both, meanwhile;
    /// doing both at once makes this wrong, but not twice in a row.
    fn is_too_short(&self) -> bool {
        let before = self.readable();
        // A file whose length cannot be asked for is not known to be hurt.
        let Ok(status) = rustix::fs::fstat(&self.view.file) else { return false };
        u64::try_from(status.st_size).unwrap_or(0) < before.min(self.readable())
    }

    /// Has the system begin to write `len` bytes from `offset` on to the disk, so that less is left to wait for when they are
    /// synced. Only a hint.
    pub(crate) fn begin_write_back(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // SAFETY: a system call that takes no memory, on a descriptor that is open.
        unsafe { libc::sync_file_range(self.view.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    /// Lets slices be taken of the first `end` bytes. They must have been written, and must not change any more. A
    /// length that was published may be taken back only while no slice beyond the new one can exist.
    pub(crate) fn publish(&self, end: u64) {
        self.readable.store(end, Ordering::Release);
    }

    /// `len` bytes at `offset`, or `None` when they are not all in the readable part.
    pub(crate) fn slice(self: &Arc<Self>, offset: u64, len: usize) -> Option<FileSlice> {
        let end = offset.checked_add(len as u64)?;
        let inside = end <= self.readable().min(self.capacity());
        inside.then(|| FileSlice { file: Arc::clone(self), offset: offset as usize, len })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Out of the table first, unmapped and closed then.
        self.mappings.unregister(self.view.map.as_ptr().addr());
        // SAFETY: it is taken once, here, and nothing uses it afterwards.
        release::release(unsafe { ManuallyDrop::take(&mut self.view) });
    }
}

/// A readable part of a [`MappedFile`], which it keeps mapped and open.
#[derive(Debug, Clone)]
pub(crate) struct FileSlice {
    file: Arc<MappedFile>,
    offset: usize,
    len: usize,
}

/// Pages asked about in one `mincore`: 2 MiB of them.
const PAGES_AT_ONCE: usize = 512;

impl FileSlice {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// This slice without its first `count` bytes.
    pub(crate) fn skip(mut self, count: usize) -> Self {
        let count = count.min(self.len);
        self.offset += count;
        self.len -= count;
        self
    }

    /// Whether all of it is in memory now, so that reading it waits for no disk. It may be evicted later; that is as
    /// rare as it is for any page of a program, and costs one wait.
    pub(crate) fn is_resident(&self) -> bool {
        let page = rustix::param::page_size();
        let mut at = self.offset - self.offset % page;
        let end = self.offset + self.len;
        let mut pages = [0_u8; PAGES_AT_ONCE];
        while at < end {
            let len = (end - at).min(PAGES_AT_ONCE * page);
            let count = len.div_ceil(page);
            // SAFETY: `at` is a multiple of the page size and the map starts on a page, so the address is aligned;
            // `at + len` is within the map; `pages` has a byte for each of the `count <= PAGES_AT_ONCE` pages.
            let status = unsafe {
                libc::mincore(self.file.view.map.as_ptr().add(at).cast_mut().cast(), len, pages.as_mut_ptr())
            };
            // Nearly always all are: looking at every one of them takes fewer instructions than stopping at the first that is not.
            if status != 0 || pages[..count].iter().fold(1, |all, page| all & page) & 1 == 0 {
                return false;
            }
            at += len;
        }
        true
    }

    /// Reads it from the disk, if need be, and waits for that. A page that cannot be read is an error here, where
    /// touching it would raise SIGBUS.
    pub(crate) fn populate(&self) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        // One large read ahead rather than one per fault; only a hint, so its failure says nothing.
        let _ = self.file.view.map.advise_range(Advice::WillNeed, self.offset, self.len);
        match self.file.view.map.advise_range(Advice::PopulateRead, self.offset, self.len) {
            // Kernels before 5.14 do not know the advice: reading the file fills the same pages.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.read_through(),
            other => other,
        }
    }

    fn read_through(&self) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let mut scratch = [0_u8; 64 * 1024];
        let mut done = 0;
        while done < self.len {
            let want = scratch.len().min(self.len - done);
            self.file.view.file.read_exact_at(&mut scratch[..want], (self.offset + done) as u64)?;
            done += want;
        }
        Ok(())
    }
}

impl AsRef<[u8]> for FileSlice {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `MappedFile::slice` checked that `offset + len` is within the map and within the readable part, whose
        // bytes are in the file and never change (fact 2); the map lives as long as `self` (fact 1). Where somebody else
        // truncated the file, zeros are mapped in its place, so the memory stays readable (`fault`).
        unsafe { std::slice::from_raw_parts(self.file.view.map.as_ptr().add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use bytes::Bytes;

    use super::*;

    fn mapped(content: &[u8], capacity: usize, mappings: &Mappings) -> Arc<MappedFile> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(MappedFile::new(file, capacity, content.len() as u64, mappings).unwrap())
    }

    #[test]
    fn slices_are_located_with_their_offset_until_the_last_of_them_is_gone() {
        let mappings = Mappings::default();
        let content: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
        let file = mapped(&content, 1 << 20, &mappings);
        let fd = file.file().as_raw_fd();
        let bytes = Bytes::from_owner(file.slice(5_000, 10_000).unwrap());
        drop(file);

        let part = bytes.slice(100..200);
        drop(bytes);
        assert_eq!(part, content[5_100..5_200]);
        let found = mappings.locate(&part).unwrap();
        assert_eq!((found.file.as_raw_fd(), found.offset), (fd, 5_100));

        assert!(mappings.locate(&content).is_none());
        assert!(mappings.locate(&part.slice(7..7)).is_none());
        drop(part);
        assert!(mappings.by_start.read().is_empty());
    }

    #[test]
    fn a_file_that_grows_under_its_mapping_is_readable_as_far_as_it_was_published() {
        let mappings = Mappings::default();
        let file = mapped(b"abc", 1 << 20, &mappings);
        assert!(file.slice(0, 4).is_none());
        file.file().write_all(&[7; 9_000]).unwrap();
        file.publish(9_003);
        let slice = file.slice(3, 9_000).unwrap();
        assert_eq!(slice.as_ref(), [7; 9_000]);
        assert!(file.slice(9_000, 4).is_none());
        assert!(file.slice(u64::MAX, 2).is_none());
    }

    #[test]
    fn populated_slices_are_resident_and_unreadable_ones_are_an_error_instead_of_a_signal() {
        let mappings = Mappings::default();
        let file = mapped(&vec![1; 3 << 20], 4 << 20, &mappings);
        let slice = file.slice(4_097, (3 << 20) - 4_097).unwrap();
        slice.populate().unwrap();
        assert!(slice.is_resident());
        slice.read_through().unwrap();

        assert!(file.is_intact());
        file.file().set_len(4_096).unwrap();
        assert!(!slice.is_resident());
        assert!(slice.populate().is_err());
        assert!(!file.is_intact());
    }
}

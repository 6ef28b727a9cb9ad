//! Memory-mapped files, and the table from memory addresses to files that lets a socket send from the file instead of
//! from memory.
//!
//! All `unsafe` code of this crate is here and in `fault`. It relies on these facts:
//!
//! 1. A [`MappedFile`] maps its file once, at full capacity, and unmaps it when it is dropped. Every slice that it
//!    returns ([`FileSlice`]) holds an `Arc` of it, so the memory outlives the slice.
//! 2. Slices cover only the first [`MappedFile::readable`] bytes. Those bytes exist in the file and do not change:
//!    packs are append-only, and the store lock excludes other processes of this program. (The mapping extends past
//!    the end of the file. Accessing that part would raise SIGBUS, so no code does.)
//! 3. A mapped file is in the table of [`Mappings`] from before its first slice is created until after its last slice
//!    is dropped.
//!
//! The program cannot prevent another process from truncating or rewriting the file. A missing page is detected when
//! it is read ([`fault`]); a file that became shorter is detected when a slice is requested
//! ([`MappedFile::is_intact`]). See `docs/design/store.md`, "Hazards".
#![allow(unsafe_code)]

mod fault;
mod release;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::RwLock;

pub use self::fault::Sending;
use self::fault::{Faults, Region as Protected};
pub(crate) use self::release::{wait_for_released, wait_until};

/// The mapped files of a store: a table from address ranges to files. Clones share the table.
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

/// Location in a file that a slice of memory is a view of.
#[derive(Debug)]
pub struct MappedSlice<'a> {
    /// The file. It stays open for at least as long as the slice that was looked up.
    pub file: BorrowedFd<'a>,
    /// Offset of the slice's first byte in the file.
    pub offset: u64,
}

impl Mappings {
    /// Returns the file that `slice` is a view of, or `None` if `slice` is empty or in ordinary memory. Costs a read
    /// lock and a search among the mapped files.
    #[must_use]
    pub fn locate<'a>(&self, slice: &'a [u8]) -> Option<MappedSlice<'a>> {
        // An empty slice keeps nothing alive: `Bytes::slice(n..n)` points into the mapping without holding its owner.
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
        // `FileSlice` (fact 1). The holder of `slice` therefore keeps a `FileSlice` for 'a, and with it the
        // `MappedFile` and its `File`. The region cannot be a stale one at an address that was mapped again: it is
        // removed from the table before the memory is unmapped (fact 3).
        let file = unsafe { BorrowedFd::borrow_raw(region.fd) };
        Some(MappedSlice { file, offset: (start - base) as u64 })
    }

    /// Whether `slice` is [whole](Self::is_whole) and in memory, so that reading it does not wait for the disk.
    /// Ordinary memory always is.
    #[must_use]
    pub fn is_resident(&self, slice: &[u8]) -> bool {
        if self.locate(slice).is_none() {
            return true;
        }
        // SAFETY: the holder of `slice` keeps the mapping, as in `locate`.
        self.is_whole(slice) && unsafe { are_pages_resident(slice.as_ptr().addr(), slice.len()) }
    }

    /// Whether the file of `slice` is long enough to contain it. Within its last page, a truncated file reads as zeros
    /// and raises no signal.
    #[must_use]
    pub fn is_whole(&self, slice: &[u8]) -> bool {
        let Some(MappedSlice { file, offset }) = self.locate(slice) else { return true };
        let end = offset + slice.len() as u64;
        rustix::fs::fstat(file).is_ok_and(|status| u64::try_from(status.st_size).is_ok_and(|len| len >= end))
    }

    /// Returns a counter that changes when bytes of a mapped file turn out to be missing, because another process
    /// truncated the file or its disk failed. From then on, slices that were taken before may show zeros in place of
    /// those bytes. A reader that copies or decodes bytes reads the counter before it requests them and compares it
    /// afterwards: the bytes are valid if the counter is unchanged.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.count()
    }

    /// Announces that slices will be passed to the kernel, which cannot take bytes back once they are sent. While the
    /// returned guard is alive, no byte of the slices is replaced by zeros. Returns `None` if
    /// [`faults`](Self::faults) is no longer `seen`: the slices may then show zeros already. The guard must be held
    /// only for a system call that does not block, and while no slice is read.
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

/// A file that is mapped once, read-only, at its full capacity. The file can grow under the mapping.
#[derive(Debug)]
pub(crate) struct MappedFile {
    view: ManuallyDrop<View>,
    readable: AtomicU64,
    mappings: Mappings,
}

/// A file, its mapping, and the state that makes the mapping safe. Fields are dropped in this order.
#[derive(Debug)]
struct View {
    protected: Protected,
    map: MmapRaw,
    file: File,
    /// Last, so that the file is already closed when no claim is left.
    claim: Claim,
}

/// Proof that a file is still open, because it is mapped or has another descriptor. A removed file occupies its disk
/// space until the last claim is dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim(Arc<()>);

impl Claim {
    /// Returns a handle that reports whether any claim on the file is left.
    pub(crate) fn watch(&self) -> Claimed {
        Claimed(Arc::downgrade(&self.0))
    }
}

/// A weak handle that reports whether any claim on a file is left.
#[derive(Debug)]
pub(crate) struct Claimed(Weak<()>);

impl Claimed {
    /// Whether the file is still open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl MappedFile {
    /// Maps the first `capacity` bytes of `file`. The first `readable` bytes exist now and must never change.
    pub(crate) fn new(file: File, capacity: usize, readable: u64, mappings: &Mappings) -> io::Result<Self> {
        let map = MmapOptions::new().len(capacity.max(1)).map_raw_read_only(&file)?;
        // SAFETY: the mapping begins there, has that length, and is dropped after `protected`. Its readers know that
        // a slice may show zeros once `faults` has changed.
        let protected = unsafe { Protected::protect(map.as_ptr(), map.len(), &mappings.faults)? };
        let start = map.as_ptr().addr();
        mappings.register(start, Region { end: start + map.len(), fd: file.as_raw_fd() });
        let view = ManuallyDrop::new(View { protected, map, file, claim: Claim::default() });
        Ok(Self { view, readable: AtomicU64::new(readable), mappings: mappings.clone() })
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        &self.view.file
    }

    /// Returns the claim on the file, to be cloned for another descriptor of it.
    pub(crate) fn claim(&self) -> &Claim {
        &self.view.claim
    }

    /// Returns the length of the mapping, in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.view.map.len() as u64
    }

    /// Returns the length of the part that slices may cover, in bytes.
    pub(crate) fn readable(&self) -> u64 {
        self.readable.load(Ordering::Acquire)
    }

    /// Whether the readable part is still complete, as far as is known: no read has hit a missing page, and the file
    /// is not shorter than expected. (Within its last page, a truncated file reads as zeros and raises no signal.)
    /// Once `false`, the result stays `false`.
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

    /// Whether a read has hit a missing page. Makes no system call, whereas [`is_intact`](Self::is_intact) also reads
    /// the file's length.
    pub(crate) fn has_faulted(&self) -> bool {
        self.view.protected.is_hurt()
    }

    /// Marks the file as damaged, because the mapping may not show the bytes that were written.
    pub(crate) fn distrust(&self) {
        self.view.protected.hurt();
    }

    /// Whether the file is shorter than its readable part. The writer may concurrently lengthen both or shorten both.
    /// If it does both during one call, the result may be wrong, but not twice in a row.
    fn is_too_short(&self) -> bool {
        let before = self.readable();
        // A file whose length cannot be read is not known to be damaged.
        let Ok(status) = rustix::fs::fstat(&self.view.file) else { return false };
        u64::try_from(status.st_size).unwrap_or(0) < before.min(self.readable())
    }

    /// Asks the kernel to start writing `len` bytes from `offset` to the disk, so that a later sync has less to wait
    /// for. This is only a hint.
    pub(crate) fn begin_write_back(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // SAFETY: the system call accesses no memory of the process, and the descriptor is open.
        unsafe { libc::sync_file_range(self.view.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    /// Allows slices of the first `end` bytes. These bytes must have been written and must no longer change. The
    /// published length may be reduced only while no slice beyond the new length can exist.
    pub(crate) fn publish(&self, end: u64) {
        self.readable.store(end, Ordering::Release);
    }

    /// Returns `len` bytes at `offset`, or `None` if they are not entirely within the readable part.
    pub(crate) fn slice(self: &Arc<Self>, offset: u64, len: usize) -> Option<FileSlice> {
        let end = offset.checked_add(len as u64)?;
        let inside = end <= self.readable().min(self.capacity());
        inside.then(|| FileSlice { file: Arc::clone(self), offset: offset as usize, len })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Removed from the table first; then unmapped and closed.
        self.mappings.unregister(self.view.map.as_ptr().addr());
        // SAFETY: `view` is taken only here, and nothing uses it afterwards.
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

/// Pages checked by one `mincore` call: 2 MiB.
const PAGES_AT_ONCE: usize = 512;

/// Whether all pages with bytes of a range are in memory.
///
/// # Safety
/// The range must be within a mapping that exists during the call.
unsafe fn are_pages_resident(start: usize, len: usize) -> bool {
    let page = rustix::param::page_size();
    let mut at = start - start % page;
    let end = start + len;
    let mut pages = [0_u8; PAGES_AT_ONCE];
    while at < end {
        let len = (end - at).min(PAGES_AT_ONCE * page);
        let count = len.div_ceil(page);
        // SAFETY: `at` is a multiple of the page size. A mapping consists of whole pages, so `at + len`, rounded up to
        // a page, is within it. `pages` has a byte for each of the `count <= PAGES_AT_ONCE` pages. The call accesses
        // no memory of the mapping.
        let status = unsafe { libc::mincore(std::ptr::without_provenance_mut(at), len, pages.as_mut_ptr()) };
        // Nearly always all pages are resident. Checking every page takes fewer instructions than stopping at the
        // first that is not.
        if status != 0 || pages[..count].iter().fold(1, |all, page| all & page) & 1 == 0 {
            return false;
        }
        at += len;
    }
    true
}

impl FileSlice {
    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the position of this slice in its file.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Returns this slice without its first `count` bytes.
    pub(crate) fn skip(mut self, count: usize) -> Self {
        let count = count.min(self.len);
        self.offset += count;
        self.len -= count;
        self
    }

    /// Whether all pages of the slice are in memory, so that reading it does not wait for the disk. A page may be
    /// evicted later. That is as rare as for any page of the process, and costs one wait.
    pub(crate) fn is_resident(&self) -> bool {
        let start = self.file.view.map.as_ptr().addr() + self.offset;
        // SAFETY: the slice is within the mapping, which `self` keeps.
        unsafe { are_pages_resident(start, self.len) }
    }

    /// Reads the missing pages from the disk and waits for them. A page that cannot be read is an error here;
    /// accessing it would raise SIGBUS.
    pub(crate) fn populate(&self) -> io::Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        // Causes one large readahead instead of one per page fault. It is only a hint, so a failure is ignored.
        let _ = self.file.view.map.advise_range(Advice::WillNeed, self.offset, self.len);
        match self.file.view.map.advise_range(Advice::PopulateRead, self.offset, self.len) {
            // Kernels before 5.14 do not know this advice. Reading the file populates the same pages.
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
        // SAFETY: `MappedFile::slice` checked that `offset + len` is within the mapping and within the readable part,
        // whose bytes are in the file and never change (fact 2). The mapping lives as long as `self` (fact 1). If
        // another process truncates the file, the handler maps zeros in place of the missing pages, so the memory
        // stays readable (`fault`).
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
    fn slices_are_located_until_last_one_is_dropped() {
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
    fn slice_of_a_file_that_became_shorter_is_not_resident() {
        let mappings = Mappings::default();
        let file = mapped(b"content", 4096, &mappings);
        let slice = file.slice(0, 7).unwrap();
        assert!(slice.is_resident() && mappings.is_resident(slice.as_ref()));
        file.file().set_len(3).unwrap();
        assert!(!mappings.is_whole(slice.as_ref()) && !mappings.is_resident(slice.as_ref()));
        assert!(mappings.is_resident(&[1, 2, 3]), "ordinary memory");
    }

    #[test]
    fn growing_mapped_file_is_readable_up_to_published_length() {
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
    fn populate_makes_slice_resident_or_returns_error() {
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

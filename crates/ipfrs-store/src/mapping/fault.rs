//! Recovery from missing pages of mapped files.
//!
//! Reading a page that is missing, because another process truncated the file or the disk failed, raises SIGBUS. The
//! handler installed here finds the address in a table of the mapped files, *records the fault*, maps zeros in place
//! of the missing pages, and lets the read continue. Any other SIGBUS is passed to the previous handler.
//!
//! The zeros are not content, and no reader may treat them as content. Two facts ensure this:
//!
//! 1. [`Faults::count`] changes *before* the zeros appear. A reader that compares the count before and after reading
//!    therefore knows whether the bytes are valid. A file with a fault returns no more slices.
//! 2. A thread that passes memory to the kernel compares the count first; comparing afterwards would be too late,
//!    because bytes in a socket's buffer cannot be taken back. The thread announces itself ([`Faults::sending`]), and
//!    the handler maps the zeros only after all threads that announced themselves at an older count are done.
//!    Meanwhile the kernel finds no page when it reads the memory itself, and returns `EFAULT`. Handlers wait one after
//!    the other, so those who announced themselves before an earlier fault are done when a later one is handled.
//!
//! **Restrictions on the handler.** It may run at any point, including in the middle of an allocation. It uses
//! atomics that are lock-free on every supported target, and `mmap` and `sched_yield`, which are bare system calls on
//! Linux. It uses nothing that allocates, blocks or unwinds. It saves `errno`. Waiting in the handler is safe: the
//! threads that it waits for do not access slices in user space (they are in `sendmsg` or `sendfile` on a nonblocking
//! socket), so they neither fault nor wait for the faulting thread. Another handler that it waits for waits only for
//! such threads.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use libc::{c_int, c_void, siginfo_t};
use parking_lot::Mutex;

/// Maximum number of files mapped at the same time by all stores of the process. Equal to the system's default limit
/// of mappings per process (`vm.max_map_count`). The pages of the table occupy no memory before their first use.
const MAX_REGIONS: usize = 65_536;

/// Unit in which regions are measured, in bytes: the smallest page size on Linux.
const UNIT: usize = 4_096;

/// Bits of [`Slot::region`] for the length: up to 8 GiB. A pack has at most 4 GiB.
const LEN_BITS: u32 = 21;

/// Number of times that memory of a store's mapped files turned out to be missing.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Number of times, and from [`EPOCH`] on how many of them the handler has mended.
    count: AtomicU64,
    /// Threads that are passing memory to the kernel, by the parity of the epoch in the count that they saw.
    sending: [AtomicU64; 2],
    /// Whether a handler waits for such threads.
    is_waiting: AtomicBool,
}

/// Unit of the epoch in [`Faults::count`].
const EPOCH: u64 = 1 << 32;

/// A guard that prevents the handler from mapping zeros in place of missing pages.
#[derive(Debug)]
pub struct Sending<'a>(&'a AtomicU64);

impl Faults {
    /// Returns a counter that changes when memory is found missing, before the zeros can be read there.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Announces that memory will be passed to the kernel. Returns `None` if the count is no longer `seen`.
    pub(super) fn sending(&self, seen: u64) -> Option<Sending<'_>> {
        let sending = Sending(&self.sending[parity(seen)]);
        // All of this is sequentially consistent: either the load sees the addition in `wait_for_senders`, or that sees
        // this one.
        sending.0.fetch_add(1, Ordering::SeqCst);
        (self.count.load(Ordering::SeqCst) == seen).then_some(sending)
    }

    /// Increments the count. The memory is not replaced, so no thread is waited for.
    fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Increments the count and its epoch, and waits for all threads that announced themselves before. Later threads
    /// use the other counter, which is zero: the handler before has waited for it.
    fn wait_for_senders(&self) {
        while self.is_waiting.swap(true, Ordering::SeqCst) {
            pause();
        }
        let before = self.count.fetch_add(EPOCH + 1, Ordering::SeqCst);
        while self.sending[parity(before)].load(Ordering::SeqCst) != 0 {
            pause();
        }
        self.is_waiting.store(false, Ordering::SeqCst);
    }
}

/// Lets other threads run.
fn pause() {
    // SAFETY: a system call without arguments.
    unsafe { libc::sched_yield() };
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn parity(count: u64) -> usize {
    (count / EPOCH % 2) as usize
}

/// A mapped file, as the handler sees it.
struct Slot {
    /// First unit and number of units in one word, so that readers never see a half-written value; 0 while the slot
    /// is free.
    region: AtomicU64,
    /// Whether part of the file is missing.
    is_hurt: AtomicBool,
    faults: AtomicPtr<Faults>,
}

static SLOTS: [Slot; MAX_REGIONS] = [const {
    Slot { region: AtomicU64::new(0), is_hurt: AtomicBool::new(false), faults: AtomicPtr::new(ptr::null_mut()) }
}; MAX_REGIONS];

/// Number of leading slots that have been used at least once.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Held while a slot is allocated or freed. The handler does not take it.
static TABLE: Mutex<()> = Mutex::new(());

/// The previous handler of SIGBUS.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Page size in bytes, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(UNIT);

/// A mapped region whose missing pages do not end the process.
#[derive(Debug)]
pub(super) struct Region {
    slot: usize,
    faults: Arc<Faults>,
}

impl Region {
    /// Protects `len` bytes from `start`. The first call installs the handler.
    ///
    /// # Errors
    /// If [`MAX_REGIONS`] regions are protected already, or the mapping is too large for the table.
    ///
    /// # Safety
    /// `start` is the beginning of a mapping of at least `len` bytes. The mapping exists until the returned value is
    /// dropped, and its owner accepts that pages that cannot be read are replaced by zeros.
    pub(super) unsafe fn protect(start: *const u8, len: usize, faults: &Arc<Faults>) -> io::Result<Self> {
        install();
        let units = len.div_ceil(UNIT);
        let word = encode(start.addr(), units).ok_or_else(|| io::Error::other("the mapping is too large"))?;
        let _table = TABLE.lock();
        let slot = SLOTS.iter().position(|slot| slot.region.load(Ordering::Relaxed) == 0).ok_or_else(|| {
            io::Error::other(format!(
                "{MAX_REGIONS} packs and index runs are open in this process, which is the maximum"
            ))
        })?;
        SLOTS[slot].is_hurt.store(false, Ordering::Relaxed);
        SLOTS[slot].faults.store(Arc::as_ptr(faults).cast_mut(), Ordering::Relaxed);
        USED.fetch_max(slot + 1, Ordering::Release);
        // Last: the handler can find the slot from now on, and sees everything stored above.
        SLOTS[slot].region.store(word, Ordering::Release);
        Ok(Self { slot, faults: Arc::clone(faults) })
    }

    /// Whether part of the region is missing.
    pub(super) fn is_hurt(&self) -> bool {
        SLOTS[self.slot].is_hurt.load(Ordering::SeqCst)
    }

    /// Records that part of the region is missing.
    pub(super) fn hurt(&self) {
        if !SLOTS[self.slot].is_hurt.swap(true, Ordering::SeqCst) {
            self.faults.note();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _table = TABLE.lock();
        SLOTS[self.slot].region.store(0, Ordering::Release);
    }
}

/// Encodes a region as one word. Returns `None` if it does not fit or does not begin on a page.
fn encode(start: usize, units: usize) -> Option<u64> {
    let fits =
        start.is_multiple_of(UNIT) && units < 1 << LEN_BITS && start as u64 / (UNIT as u64) < 1 << (64 - LEN_BITS);
    fits.then(|| (start / UNIT) as u64 * (1 << LEN_BITS) + units as u64)
}

/// Returns the first address of the region and the first address after it.
fn decode(word: u64) -> (usize, usize) {
    let start = (word >> LEN_BITS) as usize * UNIT;
    (start, start + (word & ((1 << LEN_BITS) - 1)) as usize * UNIT)
}

/// Installs the handler once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: `sigaction` is plain data for which zeros are valid. The pointers point to it or are null. The
        // handler has the signature required by SA_SIGINFO. The previous handler is stored before the new one can
        // run.
        let installed = unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            // On the alternate stack, as expected by the handlers that may be called from here.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            let queried = libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous);
            let _ = PREVIOUS.set(previous);
            queried == 0 && libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0
        };
        if !installed {
            tracing::warn!("cannot install the SIGBUS handler: truncating a pack terminates the process");
        }
    });
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the C library keeps the `errno` of each thread at a fixed address.
    let errno = unsafe { &mut *libc::__errno_location() };
    let saved = *errno;
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`. It contains an address if the kernel raised the
    // signal itself, which positive codes indicate.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if !(is_fault && mend(address)) {
        pass_on(signal, is_fault, info, context);
    }
    *errno = saved;
}

/// Maps zeros over the part of the region that cannot be read, from the page of `address` to the end. Returns `false`
/// if the address is in no region or the mapping fails.
///
/// The faulting thread holds a slice of the region, so the region and its slot exist until this returns. Other slots
/// may change concurrently, but only one word of them is read, and no two regions overlap.
fn mend(address: usize) -> bool {
    let contains = |slot: &&Slot| {
        let (start, end) = decode(slot.region.load(Ordering::Acquire));
        (start..end).contains(&address)
    };
    let used = USED.load(Ordering::Acquire).min(MAX_REGIONS);
    let Some(slot) = SLOTS[..used].iter().find(contains) else { return false };
    let (_, end) = decode(slot.region.load(Ordering::Acquire));
    // SAFETY: the pointer was stored from an `Arc` that the region holds.
    let Some(faults) = (unsafe { slot.faults.load(Ordering::Acquire).as_ref() }) else { return false };
    slot.is_hurt.store(true, Ordering::SeqCst);
    faults.wait_for_senders();
    let page = address - address % PAGE.load(Ordering::Relaxed);
    // A truncation removes everything up to the end of the file, so the rest is replaced at once.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: `page..end` is within the region, whose owner agreed to the replacement. Slices of it stay readable.
    // Their bytes change, as they did in the file, and the count reports that to their readers (fact 1).
    let zeros = unsafe { libc::mmap(ptr::without_provenance_mut(page), end - page, libc::PROT_READ, flags, -1, 0) };
    zeros != libc::MAP_FAILED
}

/// Does what would have happened without this handler.
fn pass_on(signal: c_int, is_fault: bool, info: *mut siginfo_t, context: *mut c_void) {
    let handler = PREVIOUS.get().map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let wants_info = PREVIOUS.get().is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    match handler {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data, as in `install`; both calls are async-signal-safe. The faulting read is repeated
            // and ends the process. A signal sent by a process is raised again and delivered after this handler
            // returns.
            unsafe {
                let action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: it is neither the default nor ignored, so it is a handler with the signature that its flags
        // indicate.
        handler => unsafe {
            if wants_info {
                let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = std::mem::transmute(handler);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::Barrier;

    use memmap2::{MmapOptions, MmapRaw};

    use super::*;

    /// Returns a mapping of a file with `pages` pages of ones, and the file.
    fn ones(pages: usize) -> (MmapRaw, std::fs::File) {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; pages * UNIT], 0).unwrap();
        (MmapOptions::new().len(pages * UNIT).map_raw_read_only(&file).unwrap(), file)
    }

    fn read(map: &MmapRaw, offset: usize) -> u8 {
        // SAFETY: within the mapping; volatile, because the file changes under the mapping.
        unsafe { map.as_ptr().add(offset).read_volatile() }
    }

    #[test]
    fn missing_pages_read_as_zeros_after_count_changes() {
        let (map, file) = ones(8);
        let (other, _other_file) = ones(1);
        let (faults, others) = (Arc::new(Faults::default()), Arc::new(Faults::default()));
        // SAFETY: the mappings outlive their regions.
        let (region, _other_region) = unsafe {
            (
                Region::protect(map.as_ptr(), map.len(), &faults).unwrap(),
                Region::protect(other.as_ptr(), other.len(), &others).unwrap(),
            )
        };
        file.set_len(4 * UNIT as u64).unwrap();
        let count = || faults.count() % EPOCH;
        assert_eq!((read(&map, 0), count(), region.is_hurt()), (1, 0, false));
        assert_eq!((read(&map, 6 * UNIT + 5), count(), region.is_hurt()), (0, 1, true));
        // Everything after the fault is missing; the bytes before it are unchanged.
        assert_eq!((read(&map, 7 * UNIT), count()), (0, 1));
        assert_eq!((read(&map, 4 * UNIT - 1), count()), (1, 1));
        assert_eq!((read(&map, 4 * UNIT), count()), (0, 2));
        assert_eq!((read(&other, 0), others.count()), (1, 0));
    }

    #[test]
    fn zeros_are_mapped_after_pending_sends() {
        let (map, file) = ones(2);
        let faults = Arc::new(Faults::default());
        let (other, _other_file) = ones(1);
        // SAFETY: the mappings outlive the regions.
        let (_region, other) = unsafe {
            (
                Region::protect(map.as_ptr(), map.len(), &faults).unwrap(),
                Region::protect(other.as_ptr(), other.len(), &faults).unwrap(),
            )
        };
        file.set_len(0).unwrap();
        let sending = faults.sending(faults.count()).unwrap();
        // A loss that another reader has found since does not hide the sender.
        other.hurt();
        let seen = faults.count();
        let (barrier, is_read) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(read(&map, 0), 0);
                is_read.store(true, Ordering::SeqCst);
            });
            barrier.wait();
            while faults.count() == seen {
                std::hint::spin_loop();
            }
            assert!(faults.sending(seen).is_none());
            assert!(!is_read.load(Ordering::SeqCst));
            // A sender that starts now has seen the fault, so the handler does not wait for it.
            let _later = faults.sending(faults.count()).unwrap();
            drop(sending);
            while !is_read.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
        });
    }

    #[test]
    fn a_fault_elsewhere_ends_the_process_as_it_always_did() {
        const CHILD: &str = "IPFRS_STORE_TEST_FAULT_CHILD";
        if std::env::var_os(CHILD).is_some() {
            let (ours, _file) = ones(1);
            // SAFETY: the mapping outlives the region.
            let _region = unsafe { Region::protect(ours.as_ptr(), ours.len(), &Arc::default()).unwrap() };
            let (map, file) = ones(1);
            file.set_len(0).unwrap();
            read(&map, 0);
            unreachable!("the process should have ended");
        }
        let name = "mapping::fault::tests::a_fault_elsewhere_ends_the_process_as_it_always_did";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", name]).env(CHILD, "1").output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }

    #[test]
    fn a_region_fits_in_a_word() {
        for (start, units) in [(UNIT, 1), (0x7fff_ffff_f000, 1 << 20), (0x7f_ffff_ffff_f000, 3)] {
            assert_eq!(encode(start, units).map(decode), Some((start, start + units * UNIT)), "{start:x}");
        }
        assert_eq!(encode(UNIT + 1, 1), None);
        assert_eq!(encode(UNIT, 1 << LEN_BITS), None);
    }
}

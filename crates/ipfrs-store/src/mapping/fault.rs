//! Living on when a page of a mapped file is gone.
//!
//! Reading such a page, because somebody else truncated the file or the disk failed, raises SIGBUS. The handler that is
//! installed here finds the address in a table of the mapped files, *notes the fault*, puts zeros in place of what is
//! gone, and lets the read go on. A SIGBUS anywhere else is passed on to whoever handled the signal before.
//!
//! The zeros are nobody's content, and nobody may take them for it. Two facts see to that:
//!
//! 1. [`Faults::count`] changes *before* there are zeros. So whoever compares it after reading with what it was before
//!    knows whether what was read can be trusted; and a file with a fault gives no more slices.
//! 2. A thread that hands memory to the kernel compares first and is not in time to compare afterwards: what is in a
//!    socket's buffer cannot be taken back. It announces itself ([`Faults::sending`]), and the handler waits with the
//!    zeros until those who announced themselves at the old count are done. Meanwhile the kernel finds no page, where it
//!    reads for itself, and gives `EFAULT`.
//!
//! **What the handler may do.** It may run anywhere, in the middle of an allocation too. It uses atomics that are lock-free
//! on every target that this builds for, `mmap` and `sched_yield`, which are bare system calls on Linux, and nothing that
//! allocates, locks or unwinds. It saves `errno`. Waiting in it is safe: those who are waited for hold no slice by
//! reference in user space (they are in `sendmsg` or `sendfile` on a socket that does not block), so they neither fault nor
//! wait for the faulting thread.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use libc::{c_int, c_void, siginfo_t};
use parking_lot::Mutex;

/// Most files that are mapped at the same time, by all stores of the process: as many as the system lets a process map
/// (`vm.max_map_count`) unless it is told otherwise. The table is in memory that is never touched until it is used.
const MAX_REGIONS: usize = 65_536;

/// What regions are measured in; the smallest page that Linux has.
const UNIT: usize = 4_096;

/// Bits of [`Slot::region`] for the length: up to 8 GiB, where a pack has at most 4.
const LEN_BITS: u32 = 21;

/// How often memory of a store's mapped files turned out to be gone.
#[derive(Debug, Default)]
pub(super) struct Faults {
    count: AtomicU64,
    /// Threads that hand memory to the kernel at the moment, by the parity of the count that they saw.
    sending: [AtomicU64; 2],
}

/// While this lives, no zeros are put in place of what is gone.
#[derive(Debug)]
pub struct Sending<'a>(&'a AtomicU64);

impl Faults {
    /// A number that changes when memory is gone, before anything else can be read there.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Announces that memory will be handed to the kernel; `None` when the count is not `seen` any more.
    pub(super) fn sending(&self, seen: u64) -> Option<Sending<'_>> {
        let sending = Sending(&self.sending[parity(seen)]);
        // All of this is sequentially consistent: either the load sees what `begin` added, or `begin` sees this.
        sending.0.fetch_add(1, Ordering::SeqCst);
        (self.count.load(Ordering::SeqCst) == seen).then_some(sending)
    }

    /// Changes the count; gives what it was.
    fn begin(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    /// Waits for those who announced themselves at the count `before`. Those who come later count in the other place.
    fn wait_for_senders(&self, before: u64) {
        while self.sending[parity(before)].load(Ordering::SeqCst) != 0 {
            // SAFETY: a system call without arguments.
            unsafe { libc::sched_yield() };
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn parity(count: u64) -> usize {
    (count % 2) as usize
}

/// One mapped file, as the handler sees it.
struct Slot {
    /// First unit and number of units in one word, so that it is never seen half-written; 0 while the slot is free.
    region: AtomicU64,
    /// Whether something of it is gone.
    is_hurt: AtomicBool,
    faults: AtomicPtr<Faults>,
}

static SLOTS: [Slot; MAX_REGIONS] = [const {
    Slot { region: AtomicU64::new(0), is_hurt: AtomicBool::new(false), faults: AtomicPtr::new(ptr::null_mut()) }
}; MAX_REGIONS];

/// Slots from here on have never been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Held by whoever takes or frees a slot. The handler does not.
static TABLE: Mutex<()> = Mutex::new(());

/// Who handled SIGBUS before.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Bytes of a page, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(UNIT);

/// A mapped region whose loss the process survives.
#[derive(Debug)]
pub(super) struct Region {
    slot: usize,
    faults: Arc<Faults>,
}

impl Region {
    /// Protects `len` bytes from `start` on; installs the handler the first time.
    ///
    /// # Errors
    /// When [`MAX_REGIONS`] are protected already.
    ///
    /// # Safety
    /// `start` is the beginning of a mapping of at least `len` bytes, which stays until this is dropped, and which
    /// nobody minds to see replaced by zeros where it cannot be read.
    pub(super) unsafe fn protect(start: *const u8, len: usize, faults: &Arc<Faults>) -> io::Result<Self> {
        install();
        let units = len.div_ceil(UNIT);
        let word = encode(start.addr(), units).ok_or_else(|| io::Error::other("the mapping is too large"))?;
        let _table = TABLE.lock();
        let slot = SLOTS.iter().position(|slot| slot.region.load(Ordering::Relaxed) == 0).ok_or_else(|| {
            io::Error::other(format!(
                "{MAX_REGIONS} packs and runs of indexes are open in this process: more cannot be"
            ))
        })?;
        SLOTS[slot].is_hurt.store(false, Ordering::Relaxed);
        SLOTS[slot].faults.store(Arc::as_ptr(faults).cast_mut(), Ordering::Relaxed);
        USED.fetch_max(slot + 1, Ordering::Release);
        // Last: from now on the slot is found, with everything that was stored before.
        SLOTS[slot].region.store(word, Ordering::Release);
        Ok(Self { slot, faults: Arc::clone(faults) })
    }

    /// Whether something of it is gone.
    pub(super) fn is_hurt(&self) -> bool {
        SLOTS[self.slot].is_hurt.load(Ordering::SeqCst)
    }

    /// Notes that something of it is gone.
    pub(super) fn hurt(&self) {
        if !SLOTS[self.slot].is_hurt.swap(true, Ordering::SeqCst) {
            self.faults.begin();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let _table = TABLE.lock();
        SLOTS[self.slot].region.store(0, Ordering::Release);
    }
}

/// A region as one word; `None` where it does not fit, or does not begin on a page.
fn encode(start: usize, units: usize) -> Option<u64> {
    let fits =
        start.is_multiple_of(UNIT) && units < 1 << LEN_BITS && start as u64 / (UNIT as u64) < 1 << (64 - LEN_BITS);
    fits.then(|| (start / UNIT) as u64 * (1 << LEN_BITS) + units as u64)
}

/// First address of the region, and the first one behind it.
fn decode(word: u64) -> (usize, usize) {
    let start = (word >> LEN_BITS) as usize * UNIT;
    (start, start + (word & ((1 << LEN_BITS) - 1)) as usize * UNIT)
}

/// Installs the handler, once.
fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
        // SAFETY: `sigaction` is plain data for which zeros are valid; the pointers are to it or null; the handler has
        // the type that SA_SIGINFO asks for. Whoever handled the signal before is known before the handler runs.
        let installed = unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_sigbus as *const () as usize;
            // On the alternate stack, as the handlers that may be called from here expect it.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            let known = libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous);
            let _ = PREVIOUS.set(previous);
            known == 0 && libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0
        };
        if !installed {
            tracing::warn!("SIGBUS cannot be handled: a pack that somebody truncates ends the process");
        }
    });
}

extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the C library keeps `errno` of each thread at an address that stays.
    let errno = unsafe { &mut *libc::__errno_location() };
    let saved = *errno;
    // SAFETY: with SA_SIGINFO the kernel gives a valid `info`, which has an address when the kernel raised the signal
    // itself: its codes are positive.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    if !(is_fault && mend(address)) {
        pass_on(signal, is_fault, info, context);
    }
    *errno = saved;
}

/// Puts zeros where a region cannot be read, from the page of `address` on; `false` when it is not in a region, or that
/// cannot be done.
///
/// The thread that faulted holds a slice of the region, so the region and its slot stay until this returns. Of other
/// slots, which may change meanwhile, nothing is read but one word; and no two regions overlap.
fn mend(address: usize) -> bool {
    let contains = |slot: &&Slot| {
        let (start, end) = decode(slot.region.load(Ordering::Acquire));
        (start..end).contains(&address)
    };
    let used = USED.load(Ordering::Acquire).min(MAX_REGIONS);
    let Some(slot) = SLOTS[..used].iter().find(contains) else { return false };
    let (_, end) = decode(slot.region.load(Ordering::Acquire));
    // SAFETY: it was stored from an `Arc` that the region holds.
    let Some(faults) = (unsafe { slot.faults.load(Ordering::Acquire).as_ref() }) else { return false };
    slot.is_hurt.store(true, Ordering::SeqCst);
    faults.wait_for_senders(faults.begin());
    let page = address - address % PAGE.load(Ordering::Relaxed);
    // A truncation takes everything up to the end, so that is replaced at once.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: `page..end` is within the region, whose owner agreed to this. Slices of it stay readable; what they show
    // changes, as it did in the file, and whoever reads it is told by the count (fact 1).
    let zeros = unsafe { libc::mmap(ptr::without_provenance_mut(page), end - page, libc::PROT_READ, flags, -1, 0) };
    zeros != libc::MAP_FAILED
}

/// Does what would have been done without us.
fn pass_on(signal: c_int, is_fault: bool, info: *mut siginfo_t, context: *mut c_void) {
    let handler = PREVIOUS.get().map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let wants_info = PREVIOUS.get().is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    match handler {
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: plain data, as in `install`; both calls are async-signal-safe. The read that faulted is tried again
            // and ends the process; a signal that somebody sent is sent again, for after this handler.
            unsafe {
                let action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                if !is_fault {
                    libc::raise(signal);
                }
            }
        }
        // SAFETY: neither default nor ignore, so it is a handler of the type that its flags say.
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

    /// A mapping of a file with `pages` pages of ones, and the file.
    fn ones(pages: usize) -> (MmapRaw, std::fs::File) {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; pages * UNIT], 0).unwrap();
        (MmapOptions::new().len(pages * UNIT).map_raw_read_only(&file).unwrap(), file)
    }

    fn read(map: &MmapRaw, offset: usize) -> u8 {
        // SAFETY: within the mapping; volatile, because the file changes under it.
        unsafe { map.as_ptr().add(offset).read_volatile() }
    }

    #[test]
    fn pages_that_are_gone_read_as_zeros_after_the_count_has_changed() {
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
        assert_eq!((read(&map, 0), faults.count(), region.is_hurt()), (1, 0, false));
        assert_eq!((read(&map, 6 * UNIT + 5), faults.count(), region.is_hurt()), (0, 1, true));
        // Everything behind went with it, what is before it did not.
        assert_eq!((read(&map, 7 * UNIT), faults.count()), (0, 1));
        assert_eq!((read(&map, 4 * UNIT - 1), faults.count()), (1, 1));
        assert_eq!((read(&map, 4 * UNIT), faults.count()), (0, 2));
        assert_eq!((read(&other, 0), others.count()), (1, 0));
    }

    #[test]
    fn zeros_wait_for_those_who_hand_memory_to_the_kernel() {
        let (map, file) = ones(2);
        let faults = Arc::new(Faults::default());
        // SAFETY: the mapping outlives the region.
        let _region = unsafe { Region::protect(map.as_ptr(), map.len(), &faults).unwrap() };
        file.set_len(0).unwrap();
        let seen = faults.count();
        let sending = faults.sending(seen).unwrap();
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
            // Who begins now knows of the fault, and is not waited for.
            let _later = faults.sending(seen + 1).unwrap();
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

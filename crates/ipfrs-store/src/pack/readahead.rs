//! Long sequential reads: adjacent blocks of a pack are read into the page cache in order, a few reads at a time.
//!
//! Kernel readahead for a file that is read sequentially uses large requests and large folios. Pages requested with
//! `MADV_WILLNEED` are loaded one by one, which costs several times the CPU time, both on loading and on each send.
//! The kernel keeps readahead state per open file. Therefore each long read of a pack uses its own open file, a
//! [`Reading`], which the next read finds by its position. Short reads and random reads have no such file, and load
//! only their own blocks.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::{Errno, retry_on_intr};

use super::record::Location;
use super::shared::Shared;
use crate::mapping::Claim;

/// Bytes loaded ahead of the consumer. A read of at least this many adjacent bytes is a long read.
pub(super) const AHEAD_BYTES: usize = 2 * 1024 * 1024;

/// Maximum gap between two adjacent blocks, in bytes: the nodes above the leaves of a file are stored between the
/// leaves.
const GAP_BYTES: u64 = 64 * 1024;

/// Maximum number of concurrent long reads. Two keep a disk busy, because the kernel reads ahead for each. More would
/// only take CPU time from the runtime's workers.
const MAX_RUNNING: usize = 4;

/// Time that a thread waits for another long read before it exits.
const THREAD_IDLE: Duration = Duration::from_secs(10);

/// Maximum number of readings kept, each with an open file.
const MAX_READINGS: usize = 64;

/// Time after which a reading that is not continued is dropped.
const IDLE: Duration = Duration::from_secs(10);

/// Adjacent blocks of one pack, as a range of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pack: u32,
    start: u64,
    end: u64,
    is_long: bool,
}

impl Run {
    /// Returns the run of adjacent blocks at the start of `locations`, up to [`AHEAD_BYTES`] of data.
    pub(super) fn of(locations: impl IntoIterator<Item = Location>) -> Option<Self> {
        let mut locations = locations.into_iter();
        let first = locations.next()?;
        let mut bytes = first.len as usize;
        let mut run = Self { pack: first.pack, start: first.start() as u64, end: first.end() as u64, is_long: false };
        while bytes < AHEAD_BYTES {
            let Some(next) = locations.next().filter(|next| run.is_followed_by(next.pack, next.start() as u64)) else {
                break;
            };
            bytes += next.len as usize;
            run.end = next.end() as u64;
        }
        run.is_long = bytes >= AHEAD_BYTES;
        Some(run)
    }

    /// Returns the number of the pack.
    pub(super) fn pack(&self) -> u32 {
        self.pack
    }

    fn is_followed_by(&self, pack: u32, start: u64) -> bool {
        self.pack == pack && (self.end..=self.end + GAP_BYTES).contains(&start)
    }
}

/// A file that is being read sequentially.
#[derive(Debug)]
struct Reading {
    /// Last run that was read.
    last: Run,
    file: File,
    /// Lets compactions see that the file is open.
    _claim: Claim,
    used: Instant,
}

/// A queued long read.
type Job = Box<dyn FnOnce(&Shared) + Send>;

/// Queued long reads, and the threads that execute them.
#[derive(Default)]
struct ReadQueue {
    threads: usize,
    /// Number of threads that are waiting for a read.
    idle: usize,
    waiting: VecDeque<Job>,
    is_closed: bool,
}

/// The long reads of a store.
#[derive(Default)]
pub(super) struct LongReads {
    /// Ordered by last use; the most recently used is last.
    readings: Mutex<Vec<Reading>>,
    /// Number of readings, for a check without the lock.
    count: AtomicUsize,
    queue: Mutex<ReadQueue>,
    /// Notified when there is a read for an idle thread, and when the store is closed.
    wake: Condvar,
}

impl std::fmt::Debug for LongReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongReads").field("readings", &self.readings).finish_non_exhaustive()
    }
}

impl LongReads {
    /// Whether the store has recent long reads.
    pub(super) fn are_under_way(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether `run` belongs to a long read: it is long itself, or it continues one.
    pub(super) fn want(&self, run: Run) -> bool {
        run.is_long || self.continue_with(run)
    }

    /// Whether `run` continues a long read.
    pub(super) fn continue_with(&self, run: Run) -> bool {
        if !self.are_under_way() {
            return false;
        }
        let mut readings = self.readings.lock();
        readings.retain(|reading| reading.used.elapsed() < IDLE);
        self.count.store(readings.len(), Ordering::Relaxed);
        readings.iter().any(|reading| reading.goes_on_with(run))
    }

    /// Has the kernel load `run` of the pack at `path`, and read ahead of it. Waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be read in this way. Reading the blocks themselves may still succeed.
    pub(super) fn read(&self, run: Run, path: &Path, claim: &Claim) -> io::Result<()> {
        // Cloned before the file is opened again, so that a compaction that removes the file sees it.
        let claim = claim.clone();
        let file = match self.take(run) {
            Some(reading) => reading.file,
            None => File::open(path)?,
        };
        read_into_cache(&file, run.start, run.end)?;
        let mut readings = self.readings.lock();
        if readings.len() == MAX_READINGS {
            readings.remove(0);
        }
        readings.push(Reading { last: run, file, _claim: claim, used: Instant::now() });
        self.count.store(readings.len(), Ordering::Relaxed);
        Ok(())
    }

    fn take(&self, run: Run) -> Option<Reading> {
        let mut readings = self.readings.lock();
        let place = readings.iter().position(|reading| reading.goes_on_with(run))?;
        Some(readings.remove(place))
    }

    /// Closes the files of packs for which `is_kept` is false. Open files would keep occupying disk space.
    pub(super) fn retain(&self, is_kept: impl Fn(u32) -> bool) {
        let mut readings = self.readings.lock();
        readings.retain(|reading| is_kept(reading.last.pack));
        self.count.store(readings.len(), Ordering::Relaxed);
    }

    /// Queues a job. Returns `true` if it needs another thread, which the caller must [start](Worker::start).
    pub(super) fn push(&self, job: Job) -> bool {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(job);
        if queue.idle >= queue.waiting.len() {
            self.wake.notify_one();
            return false;
        }
        let is_free = queue.threads < MAX_RUNNING;
        queue.threads += usize::from(is_free);
        is_free
    }

    /// Releases what a closed store does not need: open files and idle threads.
    pub(super) fn close(&self) {
        self.retain(|_| false);
        self.queue.lock().is_closed = true;
        self.wake.notify_all();
    }
}

impl Reading {
    fn goes_on_with(&self, run: Run) -> bool {
        self.last.is_followed_by(run.pack, run.start) && self.used.elapsed() < IDLE
    }
}

/// A thread that executes long reads one after another. It belongs to the store and not to a runtime, which could
/// shut down while callers of another runtime wait.
pub(super) struct Worker {
    shared: Arc<Shared>,
    is_done: bool,
}

impl Worker {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
        let worker = Self { shared, is_done: false };
        thread::Builder::new().name("ipfrs-read".to_owned()).spawn(move || worker.work()).map(drop)
    }

    fn work(mut self) {
        while let Some(job) = self.next() {
            // After a panic, the caller sees that the channel was closed without a result.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| job(&self.shared)));
        }
    }

    /// Returns the next read, or `None` if there was none for [`THREAD_IDLE`].
    fn next(&mut self) -> Option<Job> {
        let reads = &self.shared.long_reads;
        let mut queue = reads.queue.lock();
        loop {
            if let Some(job) = queue.waiting.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            let is_over = queue.is_closed || reads.wake.wait_for(&mut queue, THREAD_IDLE).timed_out();
            queue.idle -= 1;
            if is_over && queue.waiting.is_empty() {
                queue.threads -= 1;
                self.is_done = true;
                return None;
            }
        }
    }
}

impl Drop for Worker {
    /// Unregisters the thread. A thread that failed to start has executed no read; if there is no other thread, the
    /// queued reads fail.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut queue = self.shared.long_reads.queue.lock();
        queue.threads -= 1;
        if queue.threads == 0 {
            queue.waiting.clear();
        }
    }
}

/// Has the kernel load a part of a file into the page cache as a sequential read, and waits for it. The data is not
/// copied; it is sent to `/dev/null`.
fn read_into_cache(file: &File, start: u64, end: u64) -> io::Result<()> {
    let nowhere = File::options().write(true).open("/dev/null")?;
    let mut at = start;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        match retry_on_intr(|| rustix::fs::sendfile(&nowhere, file, Some(&mut at), left)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(Errno::INVAL) => return Err(io::ErrorKind::Unsupported.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use futures::future::join_all;
    use ipfrs_core::{ErrorKind, Result};

    use super::*;
    use tokio::sync::oneshot;

    use crate::{PackOptions, PackStore};

    const LEAF: u32 = 256 * 1024;

    fn block(pack: u32, offset: u32, len: u32) -> Location {
        Location { pack, offset, len, prefix: 40, codec: 0x55 }
    }

    /// Returns the locations of `count` adjacent leaves, the first at `offset`.
    fn leaves(offset: u32, count: u32) -> impl Iterator<Item = Location> {
        (0..count).map(move |n| block(1, offset + n * (LEAF + 40), LEAF))
    }

    fn run(start: u64, len: usize) -> Run {
        Run { pack: 1, start, end: start + len as u64, is_long: len >= AHEAD_BYTES }
    }

    #[test]
    fn run_covers_adjacent_blocks_up_to_read_ahead_limit() {
        let section = u64::from(LEAF + 40);
        let all = Run::of(leaves(1_000, 100)).unwrap();
        assert_eq!((all.start, all.end, all.is_long), (960, 960 + 8 * section, true));
        // The run ends with the requested blocks.
        let last = Run::of(leaves(1_000, 3)).unwrap();
        assert_eq!((last.end, last.is_long), (960 + 3 * section, false));
        assert_eq!(Run::of([]), None);

        for elsewhere in [
            block(2, 1_000 + LEAF + 40, LEAF),
            block(1, 1_000 + LEAF + 40 + 1 + GAP_BYTES as u32, LEAF),
            block(1, 1_000, LEAF),
        ] {
            let one = Run::of(leaves(1_000, 1).chain([elsewhere]).chain(leaves(9_000_000, 50))).unwrap();
            assert_eq!((one.end, one.is_long), (960 + section, false), "{elsewhere:?}");
        }
        // A node between the leaves does not end the run.
        let over = Run::of([block(1, 1_000, LEAF), block(1, 1_000 + LEAF + 40 + 8_000, LEAF)]).unwrap();
        assert_eq!(over.end, 960 + 2 * section + 8_000);
    }

    #[test]
    fn long_read_is_continued_and_short_read_starts_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        let reads = LongReads::default();
        assert!(!reads.want(run(0, 1_024)) && !reads.are_under_way());
        assert!(reads.want(run(0, AHEAD_BYTES)));

        reads.read(run(0, AHEAD_BYTES), file.path(), &Claim::default()).unwrap();
        let end = AHEAD_BYTES as u64;
        assert!(reads.want(run(end, 1_024)) && reads.want(run(end + GAP_BYTES, 1_024)));
        for jump in [end + GAP_BYTES + 1, end - 1, 0, 32 << 20] {
            assert!(!reads.want(run(jump, 1_024)), "{jump}");
        }
        assert!(!reads.want(Run { pack: 2, ..run(end, 1_024) }));
        // The same reading is continued.
        reads.read(run(end, 1_024), file.path(), &Claim::default()).unwrap();
        assert!(!reads.want(run(end, 1_024)) && reads.want(run(end + 1_024, 1)));
        assert_eq!(reads.readings.lock().len(), 1);

        for start in 0..2 * MAX_READINGS as u64 {
            reads.read(Run { pack: 3, ..run(start * (GAP_BYTES + 2), 1) }, file.path(), &Claim::default()).unwrap();
        }
        assert_eq!(reads.readings.lock().len(), MAX_READINGS);
        reads.retain(|pack| pack != 3);
        assert!(!reads.are_under_way());
        assert!(reads.read(run(64 << 20, AHEAD_BYTES), file.path(), &Claim::default()).is_err());
        assert!(!reads.are_under_way());
    }

    fn store() -> (tempfile::TempDir, PackStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = PackStore::open(&dir.path().join("store"), PackOptions::default()).unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn concurrent_long_reads_are_limited() {
        let (_dir, store) = store();
        let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(MAX_RUNNING)));
        let jobs = (0..5 * MAX_RUNNING).map(|number| {
            let counts = Arc::clone(&counts);
            store.in_turn(move |_| {
                let (running, most, all_run) = &*counts;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                all_run.wait();
                running.fetch_sub(1, Ordering::SeqCst);
                all_run.wait();
                Ok(number)
            })
        });
        let results: Result<Vec<_>> = join_all(jobs).await.into_iter().collect();
        assert_eq!(results.unwrap(), (0..5 * MAX_RUNNING).collect::<Vec<_>>());
        assert_eq!(counts.1.load(Ordering::SeqCst), MAX_RUNNING);
        store.close().await.unwrap();
    }

    /// Returns a runtime with one thread for blocking work, which waits at `begin`.
    fn busy_runtime(begin: &Arc<Barrier>) -> tokio::runtime::Runtime {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).max_blocking_threads(1).build();
        let (runtime, begin) = (runtime.unwrap(), Arc::clone(begin));
        runtime.spawn_blocking(move || begin.wait());
        runtime
    }

    #[tokio::test]
    async fn long_reads_continue_after_other_runtime_shuts_down() {
        let (_dir, store) = store();
        let begin = Arc::new(Barrier::new(2));
        let ending = busy_runtime(&begin);
        // More reads than may run at once, all from a runtime that shuts down before any of them starts.
        for _ in 0..2 * MAX_RUNNING {
            let store = store.clone();
            ending.spawn(async move { store.in_turn(|_| Ok(())).await });
        }
        let (sender, receiver) = oneshot::channel();
        ending.spawn(async move { sender.send(()) });
        receiver.await.unwrap();
        let mut other = Box::pin(store.in_turn(|_| Ok(7)));
        let first = futures::poll!(&mut other);
        ending.shutdown_background();
        begin.wait();
        let read = if let std::task::Poll::Ready(read) = first { read } else { other.await };
        assert_eq!(read.unwrap(), 7);
        store.close().await.unwrap();
    }

    #[tokio::test]
    async fn dropped_long_read_is_skipped_and_panic_fails_only_its_read() {
        let (_dir, store) = store();
        let begin = Arc::new(Barrier::new(MAX_RUNNING + 1));
        let hold: Vec<_> = (0..MAX_RUNNING)
            .map(|_| {
                let (store, begin) = (store.clone(), Arc::clone(&begin));
                tokio::spawn(async move {
                    store
                        .in_turn(move |_| {
                            begin.wait();
                            Ok(())
                        })
                        .await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let was_read = Arc::new(AtomicUsize::new(0));
        let read = Arc::clone(&was_read);
        let mut gone = Box::pin(store.in_turn(move |_| Ok(read.fetch_add(1, Ordering::SeqCst))));
        assert!(futures::poll!(&mut gone).is_pending());
        drop(gone);
        begin.wait();
        let panics = store.in_turn(|_| -> Result<()> { panic::resume_unwind(Box::new(())) }).await;
        assert_eq!(panics.unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(store.in_turn(|_| Ok(7)).await.unwrap(), 7);
        for held in hold {
            held.await.unwrap().unwrap();
        }
        assert_eq!(was_read.load(Ordering::SeqCst), 0);
        store.close().await.unwrap();
    }
}

//! Records the points at which a crash or power failure may occur, for tests: the content of a store's directory
//! before each relevant step, and which part of it is certainly on the disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use ipfrs_core::Cid;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// The active recorders.
static RECORDERS: Mutex<Vec<Arc<Recorder>>> = Mutex::new(Vec::new());

/// Records that a name is about to be created, changed, removed or made durable.
pub(super) fn before(path: &Path) {
    let _ = passed(path, false);
}

/// Records that the content of `file` is about to be made durable. It is durable when the returned value is dropped.
pub(super) fn before_sync(file: &File) -> Syncing {
    Syncing(passed(&fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap(), true))
}

fn passed(path: &Path, is_sync: bool) -> Option<Arc<Recorder>> {
    let recorder = RECORDERS.lock().iter().find(|recorder| path.starts_with(&recorder.dir)).cloned()?;
    recorder.record(is_sync.then_some(path));
    Some(recorder)
}

/// A sync in progress.
pub(super) struct Syncing(Option<Arc<Recorder>>);

impl Drop for Syncing {
    fn drop(&mut self) {
        if let Some(recorder) = &self.0 {
            let recorded = &mut *recorder.recorded.lock();
            recorded.durable.extend(recorded.syncing.remove(&thread::current().id()));
        }
    }
}

/// Blocks that a store must hold, and blocks that it may hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    /// Acknowledged blocks.
    pub(super) there: BTreeSet<Cid>,
    /// Blocks being put or deleted, which may be present or absent.
    pub(super) open: BTreeSet<Cid>,
}

/// The files of a store, by their relative paths.
pub(super) type Files = BTreeMap<PathBuf, Arc<[u8]>>;

/// State of a directory at one point in time.
struct Instant {
    files: Files,
    /// Number of leading bytes of a file that are certainly on the disk, if that is not the whole file.
    durable: BTreeMap<PathBuf, usize>,
    /// File that is about to be synced.
    syncing: Option<PathBuf>,
    expected: Arc<Expected>,
}

#[derive(Default)]
struct Recorded {
    instants: Vec<Instant>,
    expected: Arc<Expected>,
    /// Synced content of each file, by inode.
    durable: HashMap<u64, Arc<[u8]>>,
    /// Content that each thread is about to sync.
    syncing: HashMap<ThreadId, (u64, Arc<[u8]>)>,
}

/// Records the states of one store.
pub(super) struct Recorder {
    dir: PathBuf,
    /// Number of steps started.
    steps: AtomicU64,
    recorded: Mutex<Recorded>,
}

impl Recorder {
    /// Records the store in `dir` until [`Self::end`].
    pub(super) fn start(dir: &Path) -> Arc<Self> {
        let dir = dir.canonicalize().unwrap();
        let recorder = Arc::new(Self { dir, steps: AtomicU64::new(0), recorded: Mutex::default() });
        // Existing files count as durable.
        let mut found = BTreeMap::new();
        read(&recorder.dir, &recorder.dir, &mut found).unwrap();
        recorder.recorded.lock().durable = found.into_values().map(|(inode, bytes)| (inode, bytes.into())).collect();
        RECORDERS.lock().push(Arc::clone(&recorder));
        recorder
    }

    /// Sets the expected content from now on.
    pub(super) fn expect(&self, there: &BTreeSet<Cid>, open: impl IntoIterator<Item = Cid>) {
        let open: BTreeSet<Cid> = open.into_iter().collect();
        self.recorded.lock().expected = Arc::new(Expected { there: there - &open, open });
    }

    /// Records the current state, and which file is about to be synced.
    pub(super) fn record(&self, syncing: Option<&Path>) {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let recorded = &mut *self.recorded.lock();
        let mut found = BTreeMap::new();
        read(&self.dir, &self.dir, &mut found).unwrap();
        if self.steps.load(Ordering::SeqCst) != step + 1 {
            // Another step ran concurrently, so these files may never have existed together. The other step records
            // its own state.
            let whole = found.iter().find(|(path, _)| syncing.is_some_and(|syncing| syncing == self.dir.join(path)));
            if let Some((_, (inode, bytes))) = whole {
                recorded.syncing.insert(thread::current().id(), (*inode, bytes.as_slice().into()));
            }
            return;
        }
        let last = recorded.instants.last();
        let (mut files, mut durable) = (Files::new(), BTreeMap::new());
        let mut synced = std::mem::take(&mut recorded.durable);
        for (path, (inode, bytes)) in found {
            let same = last.and_then(|last| last.files.get(&path)).filter(|known| ***known == *bytes);
            let bytes: Arc<[u8]> = same.cloned().unwrap_or_else(|| bytes.into());
            let sure = synced.remove(&inode).filter(|synced| bytes.starts_with(synced)).unwrap_or_default();
            if sure.len() < bytes.len() {
                durable.insert(path.clone(), sure.len());
            }
            if syncing.is_some_and(|syncing| syncing == self.dir.join(&path)) {
                recorded.syncing.insert(thread::current().id(), (inode, Arc::clone(&bytes)));
            }
            recorded.durable.insert(inode, sure);
            files.insert(path, bytes);
        }
        let syncing = syncing.and_then(|syncing| syncing.strip_prefix(&self.dir).ok()).map(Path::to_owned);
        let expected = Arc::clone(&recorded.expected);
        recorded.instants.push(Instant { files, durable, syncing, expected });
    }

    /// Returns the current files.
    pub(super) fn now(&self) -> Files {
        let mut found = BTreeMap::new();
        read(&self.dir, &self.dir, &mut found).unwrap();
        found.into_iter().map(|(path, (_, bytes))| (path, bytes.into())).collect()
    }

    /// Stops recording. Returns every state in which a crash may have left the store, and the expected content of
    /// each.
    pub(super) fn end(&self) -> Vec<(Files, Arc<Expected>)> {
        let mut crashes = Vec::new();
        let mut before = None;
        for instant in &self.stop() {
            crashes.extend(instant.crashes(before).into_iter().map(|files| (files, Arc::clone(&instant.expected))));
            before = Some(instant);
        }
        let mut seen = std::collections::HashSet::new();
        crashes.retain(|crash| seen.insert(crash.clone()));
        crashes
    }

    /// Stops recording. Returns `count` random states in which a power failure may have left the store, and the
    /// expected content of each. The more was not synced at a time, the more states are of that time.
    pub(super) fn end_by_power_failures(&self, count: usize, random: &mut StdRng) -> Vec<(Files, Arc<Expected>)> {
        let instants = self.stop();
        let unsynced = instants.iter().flat_map(|instant| std::iter::repeat_n(instant, instant.unsynced_sectors()));
        let unsynced: Vec<&Instant> = unsynced.collect();
        let failure = |_| {
            let instant = unsynced[random.random_range(0..unsynced.len())];
            (instant.power_failure(random), Arc::clone(&instant.expected))
        };
        (0..count).map(failure).collect()
    }

    fn stop(&self) -> Vec<Instant> {
        RECORDERS.lock().retain(|recorder| recorder.dir != self.dir);
        std::mem::take(&mut *self.recorded.lock()).instants
    }
}

/// Reads the files below `dir` with their inodes, by their paths relative to `root`.
fn read(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, (u64, Vec<u8>)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read(root, &path, found)?;
            continue;
        }
        // A file that was removed concurrently is skipped.
        if let (Ok(metadata), Ok(bytes)) = (fs::metadata(&path), fs::read(&path)) {
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (metadata.ino(), bytes));
        }
    }
    Ok(())
}

impl Instant {
    fn crashes(&self, before: Option<&Self>) -> Vec<Files> {
        // The process is killed.
        let mut crashes = vec![self.files.clone()];
        // Power failure: everything not synced is lost, except part of the data being written.
        let mut lost = self.files.clone();
        for (path, sure) in &self.durable {
            lost.insert(path.clone(), self.files[path][..*sure].into());
        }
        crashes.push(lost);
        if let Some((path, sure)) = self.syncing.as_ref().and_then(|path| self.durable.get_key_value(path)) {
            let bytes = &self.files[path];
            let with = |bytes: Vec<u8>| {
                let mut files = self.files.clone();
                files.insert(path.clone(), bytes.into());
                files
            };
            for start in (sure - sure % SECTOR..bytes.len()).step_by(SECTOR) {
                let sector = start.max(*sure)..bytes.len().min(start + SECTOR);
                crashes.push(with(bytes[..sector.start].to_vec()));
                let mut torn = bytes.to_vec();
                torn[sector].fill(0);
                crashes.push(with(torn));
            }
        }
        // A file that was just removed reappears.
        if let Some(before) = before.filter(|before| before.files.keys().any(|path| !self.files.contains_key(path))) {
            let mut back = before.files.clone();
            back.extend(self.files.clone());
            crashes.push(back);
        }
        crashes
    }

    fn unsynced_sectors(&self) -> usize {
        let sectors = self.durable.iter().map(|(path, sure)| (self.files[path].len() - sure).div_ceil(SECTOR));
        sectors.sum()
    }

    /// Returns the files after a power failure: of each, a random part of the sectors that were not synced is lost, and
    /// the length may be any between the synced and the new one.
    fn power_failure(&self, random: &mut StdRng) -> Files {
        let mut files = self.files.clone();
        for (path, sure) in &self.durable {
            let bytes = &self.files[path];
            let len = match random.random_range(0..4) {
                0 => *sure,
                1 => random.random_range(*sure..=bytes.len()).next_multiple_of(SECTOR).min(bytes.len()),
                _ => bytes.len(),
            };
            let mut left = bytes[..len].to_vec();
            // Number of lost sectors in each eight.
            let lost = random.random_range(0..=8);
            let mut start = *sure;
            while start < len {
                let end = len.min(start - start % SECTOR + SECTOR);
                if random.random_range(0..8) < lost {
                    left[start..end].fill(0);
                }
                start = end;
            }
            files.insert(path.clone(), left.into());
        }
        files
    }
}

/// Writes `files` into the directory `dir`.
pub(super) fn restore(dir: &Path, files: &Files) {
    fs::create_dir_all(dir.join("packs")).unwrap();
    for (path, bytes) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

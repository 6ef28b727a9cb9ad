//! The instants at which a store may be killed, or lose its power: what its directory holds before each step that counts there, and
//! what of that is on the disk for certain. For tests.

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

/// What a disk writes whole, or not at all.
const SECTOR: usize = 512;

/// All that watch now.
static RECORDERS: Mutex<Vec<Arc<Recorder>>> = Mutex::new(Vec::new());

/// Says that a name is about to be made, changed, removed or made durable.
pub(super) fn before(path: &Path) {
    let _ = passed(path, false);
}

/// Says that what was written to `file` is about to be made durable, and that it is when this is dropped.
pub(super) fn before_sync(file: &File) -> Syncing {
    Syncing(passed(&fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap(), true))
}

fn passed(path: &Path, is_sync: bool) -> Option<Arc<Recorder>> {
    let recorder = RECORDERS.lock().iter().find(|recorder| path.starts_with(&recorder.dir)).cloned()?;
    recorder.record(is_sync.then_some(path));
    Some(recorder)
}

/// A sync that goes on.
pub(super) struct Syncing(Option<Arc<Recorder>>);

impl Drop for Syncing {
    fn drop(&mut self) {
        if let Some(recorder) = &self.0 {
            let recorded = &mut *recorder.recorded.lock();
            recorded.durable.extend(recorded.syncing.remove(&thread::current().id()));
        }
    }
}

/// What a store must hold, and what it may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Expected {
    /// Acknowledged.
    pub(super) there: BTreeSet<Cid>,
    /// Being put or deleted: both are right.
    pub(super) open: BTreeSet<Cid>,
}

/// The files of a store, by their paths in it.
pub(super) type Files = BTreeMap<PathBuf, Arc<[u8]>>;

/// What a directory held at one time.
struct Instant {
    files: Files,
    /// How many of a file's first bytes are on the disk whatever happens, where that is not all of them.
    durable: BTreeMap<PathBuf, usize>,
    /// What is about to be synced.
    syncing: Option<PathBuf>,
    expected: Arc<Expected>,
}

#[derive(Default)]
struct Recorded {
    instants: Vec<Instant>,
    expected: Arc<Expected>,
    /// What was synced of each file, by its inode.
    durable: HashMap<u64, Arc<[u8]>>,
    /// What the threads are about to sync.
    syncing: HashMap<ThreadId, (u64, Arc<[u8]>)>,
}

/// Watches a store.
pub(super) struct Recorder {
    dir: PathBuf,
    /// Steps that were begun.
    steps: AtomicU64,
    recorded: Mutex<Recorded>,
}

impl Recorder {
    /// Watches the store in `dir` until [`Self::end`].
    pub(super) fn start(dir: &Path) -> Arc<Self> {
        let dir = dir.canonicalize().unwrap();
        let recorder = Arc::new(Self { dir, steps: AtomicU64::new(0), recorded: Mutex::default() });
        // What is there has been for long.
        let mut found = BTreeMap::new();
        read(&recorder.dir, &recorder.dir, &mut found).unwrap();
        recorder.recorded.lock().durable = found.into_values().map(|(inode, bytes)| (inode, bytes.into())).collect();
        RECORDERS.lock().push(Arc::clone(&recorder));
        recorder
    }

    /// Says what is to be expected from now on.
    pub(super) fn expect(&self, there: &BTreeSet<Cid>, open: impl IntoIterator<Item = Cid>) {
        let open: BTreeSet<Cid> = open.into_iter().collect();
        self.recorded.lock().expected = Arc::new(Expected { there: there - &open, open });
    }

    /// Notes what there is now, and which file is about to be synced.
    pub(super) fn record(&self, syncing: Option<&Path>) {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let recorded = &mut *self.recorded.lock();
        let mut found = BTreeMap::new();
        read(&self.dir, &self.dir, &mut found).unwrap();
        if self.steps.load(Ordering::SeqCst) != step + 1 {
            // Something has happened meanwhile, so that this may never have been all at once. Whoever did it is next.
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

    /// What there is now.
    pub(super) fn now(&self) -> Files {
        let mut found = BTreeMap::new();
        read(&self.dir, &self.dir, &mut found).unwrap();
        found.into_iter().map(|(path, (_, bytes))| (path, bytes.into())).collect()
    }

    /// Watches no more. Gives every state in which a crash may have left the store, and what must be in it.
    pub(super) fn end(&self) -> Vec<(Files, Arc<Expected>)> {
        RECORDERS.lock().retain(|recorder| recorder.dir != self.dir);
        let recorded = std::mem::take(&mut *self.recorded.lock());
        let mut crashes = Vec::new();
        let mut before = None;
        for instant in &recorded.instants {
            crashes.extend(instant.crashes(before).into_iter().map(|files| (files, Arc::clone(&instant.expected))));
            before = Some(instant);
        }
        let mut seen = std::collections::HashSet::new();
        crashes.retain(|crash| seen.insert(crash.clone()));
        crashes
    }
}

/// The files below `dir`, by their paths below `root`, and their inodes.
fn read(root: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, (u64, Vec<u8>)>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read(root, &path, found)?;
            continue;
        }
        // What goes away meanwhile is gone.
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
        // The power goes, and all that was not waited for; or part of what is just being written.
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
        // What was just removed comes back.
        if let Some(before) = before.filter(|before| before.files.keys().any(|path| !self.files.contains_key(path))) {
            let mut back = before.files.clone();
            back.extend(self.files.clone());
            crashes.push(back);
        }
        crashes
    }
}

/// Puts `files` into the directory `dir`.
pub(super) fn restore(dir: &Path, files: &Files) {
    fs::create_dir_all(dir.join("packs")).unwrap();
    for (path, bytes) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

//! Logs of what is written to database files, for tests of power failures.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use redb::StorageBackend;

/// The logs, by the paths of the files.
static LOGS: Mutex<BTreeMap<PathBuf, Vec<Step>>> = Mutex::new(BTreeMap::new());

/// A step in the life of a file.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    SetLen(u64),
    /// Everything before is on the disk.
    Sync,
    /// The test begins the change with this number.
    Begun(usize),
    /// The change was acknowledged.
    Acknowledged,
}

/// Begins the log of a file.
pub(crate) fn start(path: &Path) {
    LOGS.lock().insert(path.to_owned(), Vec::new());
}

/// Adds a step to the log of a file, if there is one.
pub(crate) fn note(path: &Path, step: impl FnOnce() -> Step) {
    if let Some(log) = LOGS.lock().get_mut(path) {
        log.push(step());
    }
}

/// Ends the log of a file.
pub(crate) fn end(path: &Path) -> Vec<Step> {
    LOGS.lock().remove(path).unwrap_or_default()
}

/// A file whose changes are logged.
#[derive(Debug)]
pub(super) struct Recorded<B> {
    backend: B,
    path: PathBuf,
}

impl<B> Recorded<B> {
    pub(super) fn new(backend: B, path: &Path) -> Self {
        Self { backend, path: path.to_owned() }
    }
}

impl<B: StorageBackend> StorageBackend for Recorded<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        note(&self.path, || Step::SetLen(len));
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()?;
        note(&self.path, || Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        note(&self.path, || Step::Write { offset, data: data.to_vec() });
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

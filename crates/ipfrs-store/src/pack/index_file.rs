//! The file under the index, which can be sealed.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{BackendError, StorageBackend};

/// Passes everything on, until it is sealed: then nothing is written any more. redb makes durable all that it was told
/// when it is closed; what the packs may not hold must not get there.
#[derive(Debug)]
pub(super) struct IndexFile<F> {
    file: F,
    sealed: Arc<AtomicBool>,
}

/// Which bytes are locked.
type Edge = Bound<u64>;

impl<F> IndexFile<F> {
    /// `file`, until `sealed` is set.
    pub(super) fn new(file: F, sealed: Arc<AtomicBool>) -> Self {
        Self { file, sealed }
    }

    fn writable(&self) -> io::Result<&F> {
        match self.sealed.load(Ordering::Acquire) {
            false => Ok(&self.file),
            true => Err(io::Error::other("the index is sealed, because its packs failed")),
        }
    }
}

impl<F: StorageBackend> StorageBackend for IndexFile<F> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

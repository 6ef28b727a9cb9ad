//! Detection of failed syncs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;

/// A file that notes when a sync fails. It is not locked: the caller holds the lock of the store.
#[derive(Debug)]
pub(super) struct NotingSyncs {
    file: FileBackend,
    has_failed_sync: Arc<AtomicBool>,
}

impl NotingSyncs {
    /// Sets `has_failed_sync` when a sync of `file` fails.
    pub(super) fn new(file: FileBackend, has_failed_sync: Arc<AtomicBool>) -> Self {
        Self { file, has_failed_sync }
    }
}

impl StorageBackend for NotingSyncs {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        self.has_failed_sync.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

//! Injected sync failures and a simulated full disk, for tests of the index.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

/// Effect on a sync of the index.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::pack) enum Fault {
    /// The sync fails.
    #[default]
    Error,
    /// The sync panics.
    Panic,
    /// The sync and all later ones fail because the disk is full.
    Full,
}

/// Determines which sync fails, namely the one that finds the count at 0, and how much space the disk has.
#[derive(Debug, Clone)]
pub(in crate::pack) struct Countdown(Arc<(AtomicI64, Mutex<Fault>, Mutex<Option<u64>>)>);

impl Default for Countdown {
    fn default() -> Self {
        Self(Arc::new((AtomicI64::new(-1), Mutex::default(), Mutex::default())))
    }
}

impl Countdown {
    /// Triggers `fault` after another `syncs` successful syncs, or never if `syncs` is negative. [`Fault::Full`] lasts
    /// until the next call.
    pub(in crate::pack) fn set(&self, syncs: i64, fault: Fault) {
        *self.0.1.lock() = fault;
        self.0.0.store(syncs, Ordering::SeqCst);
    }

    /// Sets the simulated free space of the disk. `None` restores the real one.
    pub(super) fn set_free_bytes(&self, free: Option<u64>) {
        *self.0.2.lock() = free;
    }

    /// Returns the simulated free space of the disk.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        *self.0.2.lock()
    }

    /// Counts a sync, and triggers the fault if the count was 0.
    pub(super) fn step(&self) -> io::Result<()> {
        let fault = *self.0.1.lock();
        match (self.0.0.fetch_sub(1, Ordering::SeqCst), fault) {
            (0, Fault::Error) => Err(io::Error::other("this sync was made to fail")),
            (0, Fault::Panic) => panic!("this sync was made to panic"),
            (count, Fault::Full) if count <= 0 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

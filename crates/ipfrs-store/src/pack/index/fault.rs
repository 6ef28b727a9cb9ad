//! Syncs of the index that fail, and a disk that is full, for tests.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

/// What happens at a sync of the index.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::pack) enum Fault {
    /// It fails.
    #[default]
    Error,
    /// It panics.
    Panic,
}

/// Says which sync fails: that which finds the count at 0. And how much room there is.
#[derive(Debug, Clone)]
pub(in crate::pack) struct Countdown(Arc<(AtomicI64, Mutex<Fault>, Mutex<Option<u64>>)>);

impl Default for Countdown {
    fn default() -> Self {
        Self(Arc::new((AtomicI64::new(-1), Mutex::default(), Mutex::default())))
    }
}

impl Countdown {
    /// Has `fault` happen after another `syncs`; never, if that is below 0.
    pub(in crate::pack) fn set(&self, syncs: i64, fault: Fault) {
        *self.0.1.lock() = fault;
        self.0.0.store(syncs, Ordering::SeqCst);
    }

    /// Has the disk have so much room; what it has, for `None`.
    pub(super) fn set_free_bytes(&self, free: Option<u64>) {
        *self.0.2.lock() = free;
    }

    /// The room that the disk is to have.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        *self.0.2.lock()
    }

    /// Counts a sync.
    pub(super) fn step(&self) -> io::Result<()> {
        let fault = *self.0.1.lock();
        match (self.0.0.fetch_sub(1, Ordering::SeqCst), fault) {
            (0, Fault::Error) => Err(io::Error::other("this sync was made to fail")),
            (0, Fault::Panic) => panic!("this sync was made to panic"),
            _ => Ok(()),
        }
    }
}

//! The process-wide Tokio runtime, the handling of forks, and the objects to close at exit.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ipfrs_core::{Error, Result};
use ipfrs_interface::runtime_builder;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;

/// The runtime, created on first use. It is never dropped, because Python threads may use it until the process ends.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Whether this process is the child of one that had imported the module.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Backings to close when the interpreter exits, and tokens that cancel their running imports.
static OPEN: Mutex<Vec<(Weak<dyn Backing>, CancellationToken)>> = Mutex::new(Vec::new());

/// Returns the runtime, and creates it on first use.
///
/// # Errors
/// Returns an error if the system cannot start threads.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = runtime_builder().thread_name("ipfrs").build();
    let made = made.map_err(|e| Error::io("cannot start the threads of ipfrs", e))?;
    if let Err(unneeded) = RUNTIME.set(made) {
        // Another thread was faster. Nothing runs on this runtime, but a runtime must not be dropped within another
        // one.
        unneeded.shutdown_background();
    }
    RUNTIME.get().ok_or_else(|| Error::internal("the runtime is gone"))
}

/// Records that the process was forked. It must not use anything that its parent opened: the parent's threads do not
/// exist here, and its locks and files are shared.
pub(crate) fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether [`note_fork`] was called.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Registers a backing to be closed at exit, and the token that cancels its imports.
pub(crate) fn close_at_exit(backing: &Arc<dyn Backing>, ending: &CancellationToken) {
    let mut open = OPEN.lock();
    open.retain(|(backing, _)| backing.strong_count() > 0);
    open.push((Arc::downgrade(backing), ending.clone()));
}

/// Returns all open backings and cancels their imports. Closing would wait for imports that can no longer be
/// finished.
pub(crate) fn take_open() -> Vec<Arc<dyn Backing>> {
    let open = mem::take(&mut *OPEN.lock());
    open.iter().for_each(|(_, ending)| ending.cancel());
    open.iter().filter_map(|(backing, _)| backing.upgrade()).collect()
}

/// A value that a forked child does not drop, because it belongs to the parent, whose threads do not exist in the
/// child.
#[derive(Debug)]
pub(crate) struct Kept<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Kept<T> {
    /// Wraps `shared`.
    pub(crate) fn new(shared: Arc<T>) -> Self {
        Self(shared)
    }

    /// Returns a reference for a call.
    pub(crate) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T: ?Sized> Drop for Kept<T> {
    fn drop(&mut self) {
        if is_forked() {
            // A leaked reference keeps the count above zero, so the value is never dropped.
            mem::forget(self.share());
        }
    }
}

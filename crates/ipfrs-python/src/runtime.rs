//! The one Tokio runtime of the process, what happens to it when the process forks, and what is open at the end.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ipfrs_core::{Error, Result};
use ipfrs_interface::runtime_builder;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;

/// Made when it is first needed, and never dropped: threads of Python may be within it until the process ends.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Whether this is the child of a process that had imported the module.
static FORKED: AtomicBool = AtomicBool::new(false);

/// What is to be closed when the interpreter ends, and what ends its imports that are under way.
static OPEN: Mutex<Vec<(Weak<dyn Backing>, CancellationToken)>> = Mutex::new(Vec::new());

/// The runtime.
///
/// # Errors
/// When the system gives no threads.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = runtime_builder().thread_name("ipfrs").build();
    let made = made.map_err(|e| Error::io("cannot start the threads of ipfrs", e))?;
    if let Err(unneeded) = RUNTIME.set(made) {
        // Another thread was faster. Nothing runs on this one, but a runtime may not be dropped where one is entered.
        unneeded.shutdown_background();
    }
    RUNTIME.get().ok_or_else(|| Error::internal("the runtime is gone"))
}

/// From now on this process uses nothing that its parent opened: of the parent's threads none is here, and its locks and
/// files are shared.
pub(crate) fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether [`note_fork`] was called.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Remembers something that is to be closed, and what its imports end with.
pub(crate) fn close_at_exit(backing: &Arc<dyn Backing>, ending: &CancellationToken) {
    let mut open = OPEN.lock();
    open.retain(|(backing, _)| backing.strong_count() > 0);
    open.push((Arc::downgrade(backing), ending.clone()));
}

/// Everything that is left. Its imports end: closing would wait for them, and nobody is there to finish them.
pub(crate) fn take_open() -> Vec<Arc<dyn Backing>> {
    let open = mem::take(&mut *OPEN.lock());
    open.iter().for_each(|(_, ending)| ending.cancel());
    open.iter().filter_map(|(backing, _)| backing.upgrade()).collect()
}

/// Something that the child of a fork does not drop: it is the parent's to end, and its threads are not there.
#[derive(Debug)]
pub(crate) struct Kept<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Kept<T> {
    /// Keeps `shared`.
    pub(crate) fn new(shared: Arc<T>) -> Self {
        Self(shared)
    }

    /// The same, for a call.
    pub(crate) fn share(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T: ?Sized> Drop for Kept<T> {
    fn drop(&mut self) {
        if is_forked() {
            // With one reference that nobody gives back it is never the last one.
            mem::forget(self.share());
        }
    }
}

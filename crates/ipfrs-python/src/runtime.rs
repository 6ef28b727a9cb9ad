//! State of one process: the Tokio runtime, and the objects to close at exit.
//!
//! After a fork, the child has none of the threads of its parent, but copies of its memory. It therefore gets a
//! [`Process`] of its own, and neither uses nor drops what its parent made. Only the memory of those objects is leaked.

use std::mem;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use ipfrs_core::{Error, Result};
use ipfrs_interface::runtime_builder;
use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::backing::Backing;
use crate::error::Failure;
use crate::python_thread::PythonThread;
use crate::running_daemon::RunningDaemon;

/// The process that imported the module.
static FIRST: Process = Process::new();

/// State of a process.
#[derive(Debug)]
pub(crate) struct Process {
    /// Created on first use. It is never dropped, because Python threads may use it until the process ends.
    runtime: OnceLock<Runtime>,
    /// Backings to close when the interpreter exits, and tokens that cancel their running imports.
    open: Mutex<Vec<(Weak<dyn Backing>, CancellationToken)>>,
    /// Daemons that have not stopped. The interpreter waits for them when it exits.
    pub(crate) daemons: Mutex<Vec<Arc<RunningDaemon>>>,
    /// The thread that takes the GIL.
    pub(crate) python_thread: Mutex<PythonThread>,
    /// The forked process, in the child.
    child: OnceLock<Box<Process>>,
}

impl Process {
    const fn new() -> Self {
        Self {
            runtime: OnceLock::new(),
            open: Mutex::new(Vec::new()),
            daemons: Mutex::new(Vec::new()),
            python_thread: Mutex::new(PythonThread::Idle),
            child: OnceLock::new(),
        }
    }

    /// Returns the state of the running process.
    pub(crate) fn current() -> &'static Self {
        let mut process = &FIRST;
        while let Some(child) = process.child.get() {
            process = child;
        }
        process
    }

    /// Starts the state of a forked child. Called by the only thread that the child has.
    pub(crate) fn fork() {
        Self::current().child.get_or_init(|| Box::new(Self::new()));
    }

    /// Registers a backing to be closed at exit, and the token that cancels its imports.
    pub(crate) fn close_at_exit(&self, backing: &Arc<dyn Backing>, ending: &CancellationToken) {
        let mut open = self.open.lock();
        open.retain(|(backing, _)| backing.strong_count() > 0);
        open.push((Arc::downgrade(backing), ending.clone()));
    }

    /// Returns all open backings and cancels their imports. Closing would wait for imports that can no longer be
    /// finished.
    pub(crate) fn take_open(&self) -> Vec<Arc<dyn Backing>> {
        let open = mem::take(&mut *self.open.lock());
        open.iter().for_each(|(_, ending)| ending.cancel());
        open.iter().filter_map(|(backing, _)| backing.upgrade()).collect()
    }
}

/// Returns the runtime of the process, and creates it on first use.
///
/// # Errors
/// Returns an error if the system cannot start threads.
pub(crate) fn runtime() -> Result<&'static Runtime> {
    let process = Process::current();
    if let Some(runtime) = process.runtime.get() {
        return Ok(runtime);
    }
    let made = runtime_builder().thread_name("ipfrs").build();
    let made = made.map_err(|e| Error::io("cannot start the threads of ipfrs", e))?;
    if let Err(unneeded) = process.runtime.set(made) {
        // Another thread was faster. Nothing runs on this runtime, but a runtime must not be dropped within another
        // one.
        unneeded.shutdown_background();
    }
    process.runtime.get().ok_or_else(|| Error::internal("the runtime is gone"))
}

/// The process that made an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin(&'static Process);

impl Origin {
    /// Returns the running process.
    pub(crate) fn here() -> Self {
        Self(Process::current())
    }

    /// Whether the running process is another one, forked from this one.
    pub(crate) fn is_foreign(self) -> bool {
        !ptr::eq(self.0, Process::current())
    }

    /// Returns an error in another process.
    ///
    /// # Errors
    /// `ForkedError`.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_foreign() { Err(Failure::Forked.into_exception(py)) } else { Ok(()) }
    }
}

/// A shared value that a forked child neither uses nor drops, because it belongs to the parent, whose threads do not
/// exist in the child.
#[derive(Debug)]
pub(crate) struct Kept<T: ?Sized> {
    value: Arc<T>,
    origin: Origin,
}

impl<T: ?Sized> Kept<T> {
    /// Wraps `value`, which was made in this process.
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self { value, origin: Origin::here() }
    }

    /// Returns the process that made the value.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Returns a reference for a call.
    ///
    /// # Errors
    /// `ForkedError` in a child of the process that made the value.
    pub(crate) fn share(&self, py: Python<'_>) -> PyResult<Arc<T>> {
        self.origin.check(py).map(|()| Arc::clone(&self.value))
    }

    /// Returns a reference, or `None` in a child of the process that made the value.
    pub(crate) fn here(&self) -> Option<&Arc<T>> {
        (!self.origin.is_foreign()).then_some(&self.value)
    }
}

impl<T: ?Sized> Drop for Kept<T> {
    fn drop(&mut self) {
        if self.origin.is_foreign() {
            // A leaked reference keeps the count above zero, so the value is never dropped.
            mem::forget(Arc::clone(&self.value));
        }
    }
}

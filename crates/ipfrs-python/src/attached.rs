//! The thread that takes the GIL on behalf of runtime tasks. Runtime workers must not wait for the GIL. When the
//! interpreter exits, no thread of this crate may be in Python, because CPython terminates threads that take the GIL
//! then.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use ipfrs_core::{Error, Result};
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::python_thread::{Job, PythonThread};
use crate::runtime::Process;

thread_local! {
    /// Whether this thread holds the GIL while it polls.
    static HAS_GIL: Cell<bool> = const { Cell::new(false) };
}

/// Runs `poll`. Within it, [`call`] and [`send`] run jobs on the current thread.
pub(crate) fn with_gil<T>(_: Python<'_>, poll: impl FnOnce() -> T) -> T {
    let before = HAS_GIL.replace(true);
    let polled = poll();
    HAS_GIL.set(before);
    polled
}

/// Queues `job` for the thread, after earlier jobs. It must be short and must not block. It is dropped if Python is
/// exiting, or if the system cannot start the thread.
pub(crate) fn send(job: impl FnOnce(Python<'_>) + Send + 'static) {
    if HAS_GIL.get() {
        return Python::attach(job);
    }
    let mut state = Process::current().python_thread.lock();
    if matches!(*state, PythonThread::Idle) {
        let (jobs, receiver) = channel();
        let started = thread::Builder::new().name("ipfrs-python".to_owned()).spawn(move || work(&receiver));
        if let Ok(thread) = started {
            *state = PythonThread::Running { jobs, thread };
        }
    }
    if let PythonThread::Running { jobs, .. } = &*state {
        // The receiver exists as long as the sender, because the thread ends only after the sender is dropped.
        let _ = jobs.send(Box::new(job));
    }
}

/// Runs a job as [`send`] does, and returns its result.
///
/// # Errors
/// Returns an error if Python is exiting.
pub(crate) async fn call<T: Send + 'static>(job: impl FnOnce(Python<'_>) -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    // If the task was cancelled, the receiver no longer exists.
    send(move |py| drop(sender.send(job(py))));
    receiver.await.map_err(|e| Error::internal("Python is shutting down").with_source(e))
}

/// Waits until the thread has run all queued jobs, and stops it. Called when the interpreter exits.
pub(crate) fn end(py: Python<'_>) {
    let before = std::mem::replace(&mut *Process::current().python_thread.lock(), PythonThread::Ended);
    if let PythonThread::Running { jobs, thread } = before {
        drop(jobs);
        // The thread returns no value.
        let _ = py.detach(|| thread.join());
    }
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        Python::attach(|py| {
            // Run all queued jobs, so that they need the GIL only once.
            for job in std::iter::once(first).chain(jobs.try_iter()) {
                // If a job panics, its sender is dropped, and its waiting task receives an error.
                let _ = catch_unwind(AssertUnwindSafe(|| job(py)));
            }
        });
    }
}

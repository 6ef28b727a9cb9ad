//! The one thread that holds the GIL for tasks of the runtime. Workers must not wait for it, and at the end of the
//! interpreter nobody may be within Python any more: CPython ends threads that come back to it then.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use ipfrs_core::{Error, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::sync::oneshot;

use crate::runtime::is_forked;

type Job = Box<dyn FnOnce(Python<'_>) + Send>;

static STATE: Mutex<State> = Mutex::new(State::Idle);

enum State {
    /// Nobody has needed it yet.
    Idle,
    Running {
        /// Its bound is the calls of Python that are under way: each has one job at a time, and one for each buffer that it
        /// gives back.
        jobs: Sender<Job>,
        thread: JoinHandle<()>,
    },
    /// The interpreter is ending.
    Ended,
}

thread_local! {
    /// Whether this thread holds the GIL while it polls.
    static HAS_GIL: Cell<bool> = const { Cell::new(false) };
}

/// Does `poll`, in which [`call`] and [`send`] need no other thread.
pub(crate) fn with_gil<T>(_: Python<'_>, poll: impl FnOnce() -> T) -> T {
    let before = HAS_GIL.replace(true);
    let polled = poll();
    HAS_GIL.set(before);
    polled
}

/// Has the thread do `job`, after those that came before. It must be short, and wait for nothing. Dropped where Python is
/// ending, the process was forked, or the system gives no thread.
pub(crate) fn send(job: impl FnOnce(Python<'_>) + Send + 'static) {
    if is_forked() {
        return;
    }
    if HAS_GIL.get() {
        return Python::attach(job);
    }
    let mut state = STATE.lock();
    if matches!(*state, State::Idle) {
        let (jobs, receiver) = channel();
        let started = thread::Builder::new().name("ipfrs-python".to_owned()).spawn(move || work(&receiver));
        if let Ok(thread) = started {
            *state = State::Running { jobs, thread };
        }
    }
    if let State::Running { jobs, .. } = &*state {
        // The thread ends after the sender only.
        let _ = jobs.send(Box::new(job));
    }
}

/// The same for a job with an outcome.
///
/// # Errors
/// When Python is ending.
pub(crate) async fn call<T: Send + 'static>(job: impl FnOnce(Python<'_>) -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    // Nobody waits for it where the task was cancelled meanwhile.
    send(move |py| drop(sender.send(job(py))));
    receiver.await.map_err(|e| Error::internal("Python is ending").with_source(e))
}

/// Waits until the thread has done what there is, and ends it. For the end of the interpreter.
pub(crate) fn end(py: Python<'_>) {
    let before = std::mem::replace(&mut *STATE.lock(), State::Ended);
    if let State::Running { jobs, thread } = before {
        drop(jobs);
        // It has nothing to say.
        let _ = py.detach(|| thread.join());
    }
}

fn work(jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        Python::attach(|py| {
            // Whatever has come meanwhile costs no other wait for the GIL.
            for job in std::iter::once(first).chain(jobs.try_iter()) {
                // Who waits for a job that failed is told that nothing comes: its sender is gone.
                let _ = catch_unwind(AssertUnwindSafe(|| job(py)));
            }
        });
    }
}

//! State of the thread that takes the GIL on behalf of runtime tasks.

use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use pyo3::Python;

/// Work that needs the GIL.
pub(crate) type Job = Box<dyn FnOnce(Python<'_>) + Send>;

/// State of the thread that takes the GIL.
#[derive(Debug)]
pub(crate) enum PythonThread {
    /// The thread has not been needed yet.
    Idle,
    Running {
        /// Queue of jobs. It is unbounded, but its length is limited by the running calls from Python: each has one
        /// job at a time, and one for each buffer that it releases.
        jobs: Sender<Job>,
        thread: JoinHandle<()>,
    },
    /// The interpreter is exiting.
    Ended,
}

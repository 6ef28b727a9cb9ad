//! Native part of the Python package `ipfrs`: a node in the process, a client of a daemon, and the transfer of their
//! bytes to and from Python without copies.

mod attached;
mod awaitable;
mod backend;
mod backing;
mod buffer;
mod error;
mod gateway;
mod handles;
mod local;
mod options;
mod panics;
mod payload;
mod progress;
mod python_thread;
mod remote;
mod run;
mod running_daemon;
mod runtime;

/// `ipfrs._native`, the interface that the Python classes of `ipfrs` call.
#[pyo3::pymodule(name = "_native")]
mod native {
    use pyo3::prelude::*;

    use crate::error::Failure;
    use crate::runtime::Process;

    #[pymodule_export]
    use crate::backend::Backend;
    #[pymodule_export]
    use crate::gateway::Gateway;
    #[pymodule_export]
    use crate::handles::{Chunks, Writer};

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "the name that Python looks for")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Registers an exit handler, so that no thread of this crate is in Python when the interpreter exits.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let end = wrap_pyfunction!(_end, module)?;
        module.py().import("atexit")?.call_method1("register", (end,)).map(drop)
    }

    #[pyfunction]
    fn _end(py: Python<'_>) -> PyResult<()> {
        let closed = close_all(py);
        crate::attached::end(py);
        closed
    }

    /// Separates a forked child from its parent. Called in the child of a process that had imported the module.
    #[pyfunction]
    fn after_fork_in_child() {
        Process::fork();
    }

    /// Closes all backends that are still open, and stops all daemons.
    fn close_all(py: Python<'_>) -> PyResult<()> {
        let mut outcome = Ok(());
        for backing in Process::current().take_open() {
            let closed = crate::run::wait(py, async move { Ok(backing.close().await?) }, None);
            outcome = outcome.and(closed);
        }
        // Stop daemons last. Clients may have left responses unread, and a daemon would wait for these transfers.
        crate::gateway::stop_all(py);
        outcome.map_err(|failure: Failure| failure.into_exception(py))
    }
}

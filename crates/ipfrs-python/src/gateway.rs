//! A daemon inside the process, for notebooks and tests. It uses the shared runtime and does not log.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use ipfrs_core::{Error, Result};
use ipfrs_interface::{Config, Gateway as Daemon, Settings, Sources};
use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::{Failure, Outcome};
use crate::local::repo_at;
use crate::run::{breathe, wait};
use crate::runtime::{Kept, Process, runtime};

/// A daemon that was started. Dropping this object asks it to stop.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Gateway {
    running: Kept<Running>,
    #[pyo3(get)]
    urls: Vec<String>,
    #[pyo3(get)]
    grpc_addresses: Vec<String>,
    #[pyo3(get)]
    repo: String,
}

/// State of a daemon until it has stopped.
#[derive(Debug)]
pub(crate) struct Running {
    stopping: CancellationToken,
    has_ended: watch::Receiver<bool>,
    /// The error with which the daemon stopped, until it has been reported.
    failure: Arc<Mutex<Option<Error>>>,
    /// Disconnected when the daemon has stopped, for threads that wait.
    ending: Mutex<Receiver<Infallible>>,
}

impl Running {
    /// Runs `daemon` until it is stopped through this object or by a request.
    fn keep(mut daemon: Daemon) -> Result<Arc<Self>> {
        let stopping = CancellationToken::new();
        let (teller, has_ended) = watch::channel(false);
        let (until_end, ending) = mpsc::channel();
        let failure = Arc::new(Mutex::new(None));
        let (stop_requested, failed) = (stopping.clone(), Arc::clone(&failure));
        runtime()?.spawn(async move {
            let joined = tokio::select! {
                joined = daemon.join() => joined,
                () = stop_requested.cancelled() => {
                    daemon.shutdown();
                    daemon.join().await
                }
            };
            *failed.lock() = joined.err();
            teller.send_replace(true);
            drop(until_end);
        });
        Ok(Arc::new(Self { stopping, has_ended, failure, ending: Mutex::new(ending) }))
    }

    fn is_running(&self) -> bool {
        !*self.has_ended.borrow()
    }

    /// Asks the daemon to stop, and waits until it has stopped.
    async fn stop(&self) -> Result<()> {
        self.stopping.cancel();
        // The sender is dropped only after it has sent `true`.
        let _ = self.has_ended.clone().wait_for(|has_ended| *has_ended).await;
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Stops the daemon like [`Self::stop`], but blocks the thread and cannot be interrupted.
    fn stop_now(&self) {
        self.stopping.cancel();
        let _ = self.ending.lock().recv();
    }
}

#[pymethods]
impl Gateway {
    /// Opens the repo and starts listening. Returns when requests are served. `config` is TOML and overrides the
    /// environment, which overrides the TOML in `file`, by default `config.toml` of the repo if it exists. Unless
    /// configured otherwise, the system chooses the port, and gRPC is off.
    #[staticmethod]
    #[pyo3(signature = (repo, file, config))]
    fn start(py: Python<'_>, repo: Option<PathBuf>, file: Option<PathBuf>, config: Option<String>) -> PyResult<Self> {
        let started = wait(py, start(repo, file, config), None);
        started.map_err(|failure| failure.into_exception(py))
    }

    /// Reads the configuration, without starting anything.
    #[staticmethod]
    #[pyo3(signature = (repo, file, config))]
    fn check(py: Python<'_>, repo: Option<PathBuf>, file: Option<PathBuf>, config: Option<String>) -> PyResult<()> {
        let checked = repo_at(repo).and_then(|repo| configuration(&repo, file, config));
        checked.map(drop).map_err(|e| Failure::from(e).into_exception(py))
    }

    #[getter]
    fn running(&self) -> bool {
        self.running.here().is_some_and(|running| running.is_running())
    }

    /// Stops the daemon. Running transfers may finish first. Stopping twice is not an error.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.share(py)?;
        let stopped = wait(py, async { Ok(running.stop().await?) }, None);
        stopped.map_err(|failure| failure.into_exception(py))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Do not wait: any thread may collect the object, including one whose own transfer the daemon would wait for.
        if let Some(running) = self.running.here() {
            running.stopping.cancel();
        }
    }
}

/// Stops all running daemons when the interpreter exits.
pub(crate) fn stop_all(py: Python<'_>) {
    let running = std::mem::take(&mut *Process::current().daemons.lock());
    for running in &running {
        running.stopping.cancel();
    }
    py.detach(|| running.iter().for_each(|running| running.stop_now()));
}

async fn start(repo: Option<PathBuf>, file: Option<PathBuf>, config: Option<String>) -> Outcome<Gateway> {
    breathe().await;
    let repo = repo_at(repo)?;
    let config = configuration(&repo, file, config)?;
    let (place, configured) = (repo.clone(), config.clone());
    // A separate task runs to its end even if this future is dropped, and then closes everything that it opened.
    let bound = runtime()?.spawn(async move { Daemon::bind(&configured, &place).await });
    let daemon = bound.await.map_err(|e| Error::internal("the gateway did not start").with_source(e))??;
    let grpc_addresses = daemon.grpc_addresses().iter().map(ToString::to_string).collect();
    let urls = daemon.urls();
    let running = Running::keep(daemon)?;
    let mut started = Process::current().daemons.lock();
    started.retain(|running| running.is_running());
    started.push(Arc::clone(&running));
    let repo = std::fs::canonicalize(&repo).unwrap_or(repo).display().to_string();
    Ok(Gateway { running: Kept::new(running), urls, grpc_addresses, repo })
}

/// Returns the configuration of a daemon that serves a single program, and that can run beside others on a free port.
fn configuration(repo: &Path, file: Option<PathBuf>, text: Option<String>) -> Result<Config> {
    let file = match file {
        Some(file) => Some(file),
        None => Some(repo.join("config.toml")).filter(|file| file.exists()),
    };
    let settings = Settings::read(&Sources { text, ..Sources::of_process(file) })?;
    let mut config = settings.config()?;
    if !settings.names("server", "port") {
        config.server.port = 0;
    }
    if !["enabled", "host", "port"].iter().any(|key| settings.names("api", key)) {
        config.api.enabled = false;
    }
    if !["enabled", "host", "port"].iter().any(|key| settings.names("grpc", key)) {
        config.grpc.enabled = false;
    }
    Ok(config)
}

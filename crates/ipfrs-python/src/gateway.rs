//! The daemon inside the process, for notebooks and tests: on the runtime of everything else, without a log.

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
use crate::runtime::{Kept, is_forked, runtime};

/// Those that have not ended, which the end of the interpreter waits for.
static STARTED: Mutex<Vec<Arc<Running>>> = Mutex::new(Vec::new());

/// A daemon that was started. It is asked to end with this object at the latest.
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

/// What goes on until it is stopped.
#[derive(Debug)]
struct Running {
    stopping: CancellationToken,
    has_ended: watch::Receiver<bool>,
    /// Why it did not end well, until somebody is told.
    failure: Arc<Mutex<Option<Error>>>,
    /// Disconnected by its end, for a thread that waits.
    ending: Mutex<Receiver<Infallible>>,
}

impl Running {
    /// Lets `daemon` run until it is stopped from here, or by a request.
    fn keep(mut daemon: Daemon) -> Result<Arc<Self>> {
        let stopping = CancellationToken::new();
        let (teller, has_ended) = watch::channel(false);
        let (until_end, ending) = mpsc::channel();
        let failure = Arc::new(Mutex::new(None));
        let (asked, failed) = (stopping.clone(), Arc::clone(&failure));
        runtime()?.spawn(async move {
            let joined = tokio::select! {
                joined = daemon.join() => joined,
                () = asked.cancelled() => {
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

    /// Asks it to stop, and waits until it has.
    async fn stop(&self) -> Result<()> {
        self.stopping.cancel();
        // Whoever would tell is gone only when there is nothing left to wait for.
        let _ = self.has_ended.clone().wait_for(|has_ended| *has_ended).await;
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// The same for whoever cannot be interrupted.
    fn stop_now(&self) {
        self.stopping.cancel();
        let _ = self.ending.lock().recv();
    }
}

#[pymethods]
impl Gateway {
    /// Opens the repo and listens; returns once requests are answered. `config` is TOML, and wins over the environment, which
    /// wins over the TOML in `file`; without one, over `config.toml` of the repo where it is there. Where nobody says
    /// otherwise, the system chooses the port, and there is no gRPC.
    #[staticmethod]
    #[pyo3(signature = (repo, file, config))]
    fn start(py: Python<'_>, repo: Option<PathBuf>, file: Option<PathBuf>, config: Option<String>) -> PyResult<Self> {
        if is_forked() {
            return Err(Failure::Forked.into_exception(py));
        }
        let started = wait(py, start(repo, file, config), None);
        started.map_err(|failure| failure.into_exception(py))
    }

    #[getter]
    fn running(&self) -> bool {
        !is_forked() && self.running.share().is_running()
    }

    /// Running transfers may end first. Stopping what was stopped is no error.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        if is_forked() {
            return Err(Failure::Forked.into_exception(py));
        }
        let running = self.running.share();
        let stopped = wait(py, async { Ok(running.stop().await?) }, None);
        stopped.map_err(|failure| failure.into_exception(py))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        // Not waited for: whoever collects it may be any thread, and the one whose transfer it would wait for.
        self.running.share().stopping.cancel();
    }
}

/// Stops all that run, at the end of the interpreter.
pub(crate) fn stop_all(py: Python<'_>) {
    let running = std::mem::take(&mut *STARTED.lock());
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
    // A task of its own: given up in the middle, it ends in order, and what it opened with it.
    let bound = runtime()?.spawn(async move { Daemon::bind(&configured, &place).await });
    let daemon = bound.await.map_err(|e| Error::internal("the gateway did not start").with_source(e))??;
    let grpc_addresses = daemon.grpc_addresses().iter().map(ToString::to_string).collect();
    let urls = daemon.urls();
    let running = Running::keep(daemon)?;
    let mut started = STARTED.lock();
    started.retain(|running| running.is_running());
    started.push(Arc::clone(&running));
    let repo = std::fs::canonicalize(&repo).unwrap_or(repo).display().to_string();
    Ok(Gateway { running: Kept::new(running), urls, grpc_addresses, repo })
}

/// The configuration of a daemon that is there for one program: beside another one, on whatever port is free.
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
    if !["enabled", "host", "port"].iter().any(|key| settings.names("grpc", key)) {
        config.grpc.enabled = false;
    }
    Ok(config)
}

//! A daemon inside the process, for notebooks and tests. It uses the shared runtime and does not log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Error, Result};
use ipfrs_interface::{Config, Gateway as Daemon, Settings, Sources};
use pyo3::prelude::*;

use crate::error::{Failure, Outcome};
use crate::local::repo_at;
use crate::run::{breathe, wait};
use crate::running_daemon::RunningDaemon;
use crate::runtime::{Kept, Process, runtime};

/// A daemon that was started. Dropping this object asks it to stop.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Gateway {
    running: Kept<RunningDaemon>,
    #[pyo3(get)]
    urls: Vec<String>,
    #[pyo3(get)]
    grpc_addresses: Vec<String>,
    #[pyo3(get)]
    repo: String,
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

    /// Stops the daemon. RunningDaemon transfers may finish first. Stopping twice is not an error.
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
            running.ask_to_stop();
        }
    }
}

/// Stops all running daemons when the interpreter exits.
pub(crate) fn stop_all(py: Python<'_>) {
    let running = std::mem::take(&mut *Process::current().daemons.lock());
    for running in &running {
        running.ask_to_stop();
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
    let running = RunningDaemon::keep(daemon, runtime()?);
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

//! The runtime that a command runs on.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use ipfrs_interface::{ServerConfig, runtime_builder};
use tokio::signal::unix::{SignalKind, signal};

/// Time that blocking threads have to finish after the command has ended.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// The error for an interrupted command. It describes the state in which the command left its work.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) &'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Waits for the user or the system to interrupt the command: SIGINT or SIGTERM.
///
/// # Errors
/// If the signals cannot be received.
pub(crate) async fn interrupted() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("cannot listen for signals"),
        _ = terminate.recv() => Ok(()),
    }
}

/// Runs `command` on `server.workers` threads.
pub(crate) fn run<T>(server: &ServerConfig, command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime_builder()
        .worker_threads(server.worker_threads())
        .thread_name("ipfrs-worker")
        .build()
        .context("the threads that serve requests could not be started")?;
    let outcome = runtime.block_on(command);
    runtime.shutdown_timeout(STRAGGLERS);
    outcome
}

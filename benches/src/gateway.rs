//! A gateway in this process, on a port of its own and a repo that is removed with it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use ipfrs_interface::{Config, runtime_builder};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The default configuration on a free port, with `workers` threads that serve requests (`None`: one per core).
#[must_use]
pub fn config(workers: Option<usize>) -> Config {
    let mut config = Config::default();
    config.server.port = 0;
    config.grpc.port = Some(0);
    config.server.workers = workers;
    // Whoever measures is the only client, and has got all that it asked for.
    config.server.shutdown_grace_seconds = 1;
    config
}

/// A running gateway. Dropping it stops it and removes its repo.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    gateway: ipfrs_interface::Gateway,
    runtime: Runtime,
    /// Removed last, when nothing writes there any more.
    _repo: TempDir,
}

impl Gateway {
    /// Starts it with the default configuration on a repo within `directory`.
    ///
    /// # Errors
    /// When the repo cannot be made or no port be bound.
    pub fn start(directory: &Path) -> Result<Self> {
        Self::start_with(directory, &config(None))
    }

    /// Starts it with another configuration, which must leave the port open as [`config`] does.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(directory: &Path, config: &Config) -> Result<Self> {
        let repo = TempDir::new_in(directory).context("the repo could not be made")?;
        let runtime = runtime_builder().worker_threads(config.server.worker_threads()).build()?;
        let gateway = runtime.block_on(ipfrs_interface::Gateway::bind(config, repo.path()))?;
        let address = *gateway.addresses().first().context("the gateway listens nowhere")?;
        Ok(Self { address, gateway, runtime, _repo: repo })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.gateway.shutdown();
        if let Err(error) = self.runtime.block_on(self.gateway.join()) {
            eprintln!("the gateway did not end cleanly: {error}");
        }
    }
}

//! A gateway in this process, with its own port and a temporary repo.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use ipfrs_interface::{Config, runtime_builder};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Returns the default configuration with an ephemeral port and `workers` threads that serve requests (`None`: one
/// per core).
#[must_use]
pub fn config(workers: Option<usize>) -> Config {
    let mut config = Config::default();
    config.server.port = 0;
    config.grpc.port = Some(0);
    config.server.workers = workers;
    // The benchmark is the only client and has already received all of its responses.
    config.server.shutdown_grace_seconds = 1;
    config
}

/// A running gateway. Dropping it stops it and removes its repo.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    gateway: ipfrs_interface::Gateway,
    runtime: Runtime,
    /// Dropped last, after all writers have stopped.
    _repo: TempDir,
}

impl Gateway {
    /// Starts a gateway with the default configuration on a new repo within `directory`.
    ///
    /// # Errors
    /// Returns an error if the repo cannot be created or the port cannot be bound.
    pub fn start(directory: &Path) -> Result<Self> {
        Self::start_with(directory, &config(None))
    }

    /// Starts a gateway with another configuration, which must use an ephemeral port, as [`config`] does.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_with(directory: &Path, config: &Config) -> Result<Self> {
        let repo = TempDir::new_in(directory).context("cannot create the repo")?;
        let runtime = runtime_builder().worker_threads(config.server.worker_threads()).build()?;
        let gateway = runtime.block_on(ipfrs_interface::Gateway::bind(config, repo.path()))?;
        let address = *gateway.addresses().first().context("the gateway has no address")?;
        Ok(Self { address, gateway, runtime, _repo: repo })
    }

    /// Returns the address of the HTTP listener.
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

//! The servers and the simulated network between them.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use ipfrs_benches::nginx::Nginx;
use ipfrs_benches::{Cores, DelayingProxy, GatewayProcess, Settings};
use tempfile::TempDir;

use crate::options::Options;

/// Sizes of the files, in MiB.
const SIZES: [u64; 4] = [1, 10, 100, 1_000];

/// A distance between the servers and those that download from them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distance {
    /// Round-trip time that the network adds.
    pub(crate) round_trip: Duration,
    /// Rate of the network in Mbit/s; `None` for loopback itself.
    pub(crate) mbit_per_second: Option<u32>,
}

impl Distance {
    /// Returns the name in the report.
    pub(crate) fn name(self) -> String {
        match self.mbit_per_second {
            None => "loopback".to_owned(),
            Some(rate) => format!("{} ms, {rate} Mbit/s", self.round_trip.as_millis()),
        }
    }

    /// Returns the least time of a download, in seconds.
    pub(crate) fn seconds(self, bytes: u64) -> f64 {
        self.mbit_per_second.map_or(0.0, |rate| bytes as f64 * 8.0 / (f64::from(rate) * 1e6))
    }

    /// Returns an address at which a server seems to be this far away.
    pub(crate) fn to(self, server: SocketAddr) -> Result<SocketAddr> {
        let Some(rate) = self.mbit_per_second else { return Ok(server) };
        let bytes_per_second = f64::from(rate) * 1e6 / 8.0;
        Ok(DelayingProxy::start_limited(server, self.round_trip, Some(bytes_per_second))?.address())
    }
}

/// The servers. Dropping it stops them and removes their files.
pub(crate) struct Servers {
    pub(crate) nginx: Nginx,
    /// The gateway that has the content.
    pub(crate) origin: GatewayProcess,
    /// Files that nginx serves by their names, with their sizes in bytes.
    pub(crate) files: Vec<(PathBuf, u64)>,
    cores: Cores,
    relays: Cell<u32>,
    /// Dropped last, after all servers have stopped.
    directory: TempDir,
}

impl Servers {
    /// Writes the files and starts the servers.
    pub(crate) fn prepare(options: &Options, cores: &Cores) -> Result<Self> {
        // Use the disk of the build directory: the system's directory for temporary files may be in memory.
        let directory = TempDir::with_prefix_in("retrieval-", env!("CARGO_TARGET_TMPDIR"))?;
        let www = directory.path().join("www");
        fs::create_dir(&www)?;
        let mut files = Vec::new();
        for mib in SIZES.into_iter().filter(|mib| *mib <= options.max_mib) {
            eprintln!("retrieval: preparing a file of {mib} MiB");
            let path = www.join(mib.to_string());
            ipfrs_benches::write_random_file(&path, mib, mib)?;
            files.push((path, mib << 20));
        }
        cores.for_servers()?;
        let origin = GatewayProcess::start(&directory.path().join("origin"), Some(1))?;
        let nginx = Nginx::start(&directory.path().join("nginx"), &www)?;
        cores.for_clients()?;
        Ok(Self { nginx, origin, files, cores: cores.clone(), relays: Cell::new(0), directory })
    }

    /// Calls `download` with a gateway that has an empty store and retrieves from `source`.
    pub(crate) fn with_relay<T>(
        &self,
        source: SocketAddr,
        download: impl FnOnce(&GatewayProcess) -> Result<T>,
    ) -> Result<T> {
        let number = self.relays.replace(self.relays.get() + 1);
        let repo = self.directory.path().join(format!("relay-{number}"));
        self.cores.for_servers()?;
        let gateways = vec![format!("http://{source}")];
        let settings = Settings { workers: Some(1), gateways, ..Settings::default() };
        let relay = GatewayProcess::start_with(&repo, &settings);
        self.cores.for_clients()?;
        let relay = relay?;
        let downloaded = download(&relay);
        drop(relay);
        fs::remove_dir_all(&repo).with_context(|| format!("cannot remove {}", repo.display()))?;
        downloaded
    }
}

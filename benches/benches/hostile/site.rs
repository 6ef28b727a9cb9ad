//! Content to attack, and a gateway process for each attack.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::{Client, GatewayProcess, Multipart, Profile, Settings, add_file, get, random, write_random_file};
use tempfile::TempDir;

use crate::options::Options;

/// Size of the file that the probe requests.
pub(crate) const SMALL_BYTES: usize = 4_096;
/// Size of the large file, in MiB.
const LARGE_MIB: u64 = 100;

/// In a short run, one in this number of ambiguous requests is sent.
const SHORT_STEP: usize = 5;

/// A repo with content, in a temporary directory.
pub(crate) struct Site {
    pub(crate) options: Options,
    directory: TempDir,
    small: String,
    large: String,
    /// Number of directories for attacks that were given away.
    given: Cell<usize>,
}

/// The gateway that an attack is for.
pub(crate) struct Target {
    pub(crate) gateway: GatewayProcess,
    /// Path of a file of [`SMALL_BYTES`].
    pub(crate) small: String,
    /// Path of a file of many MiB.
    pub(crate) large: String,
    /// Duration of an attack that has no end of its own.
    pub(crate) time: Duration,
    /// Number of slow clients.
    pub(crate) clients: usize,
    /// One in this number of ambiguous requests is sent.
    pub(crate) step: usize,
    /// Whether nginx must be installed.
    pub(crate) require_peers: bool,
    /// An empty directory.
    pub(crate) scratch: PathBuf,
}

impl Site {
    /// Adds the content.
    pub(crate) fn prepare(options: Options) -> Result<Self> {
        // Use the disk of the build directory: the system's directory for temporary files may be in memory.
        let directory = TempDir::with_prefix_in("hostile-", env!("CARGO_TARGET_TMPDIR"))?;
        let gateway = GatewayProcess::start(&directory.path().join("repo"), None)?;
        let mut client = Client::connect(gateway.address())?;
        let mut small = Multipart::default();
        small.file(&random(1, SMALL_BYTES));
        let small = small.send(&mut client, Profile::DagPb)?.pop().context("the small file was not added")?;
        let path = directory.path().join("large.bin");
        write_random_file(&path, 2, LARGE_MIB)?;
        let large = add_file(&mut client, Profile::DagPb, &mut File::open(path)?)?;
        Ok(Self {
            options,
            directory,
            small: format!("/ipfs/{small}"),
            large: format!("/ipfs/{large}"),
            given: Cell::new(0),
        })
    }

    /// Starts a gateway. Those before have ended.
    pub(crate) fn target(&self) -> Result<Target> {
        let gateway = GatewayProcess::start_with(&self.directory.path().join("repo"), &Settings::default())?;
        self.given.set(self.given.get() + 1);
        let scratch = self.directory.path().join(self.given.get().to_string());
        std::fs::create_dir(&scratch)?;
        Ok(Target {
            gateway,
            small: self.small.clone(),
            large: self.large.clone(),
            time: self.options.time,
            clients: self.options.clients,
            step: if self.options.arguments.is_full { 1 } else { SHORT_STEP },
            require_peers: self.options.arguments.require_peers,
            scratch,
        })
    }
}

impl Target {
    /// Checks that the gateway responds to a new connection.
    pub(crate) fn check(&self) -> Result<()> {
        let mut client = Client::connect(self.gateway.address())?;
        client.exchange(&get(&self.small), 200, SMALL_BYTES as u64)
    }

    /// Returns the end of an attack that has no end of its own.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + self.time
    }
}

//! The gateway in its own process: this program again, as a child.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipfrs_interface::{Gateway, runtime_builder};
use serde::{Deserialize, Serialize};

use crate::certificate::Certificate;
use crate::process::has_ended;

/// First argument of a child that runs the gateway. The following arguments are for [`serve`].
pub const SERVE: &str = "serve";

/// Grace period for file-system threads at shutdown.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Settings of a [`GatewayProcess`] that differ from [`config`](crate::config).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// Number of threads that serve requests; `None` for one per core.
    pub workers: Option<usize>,
    /// `gateway.max_concurrent_requests`, or `None` for the default.
    pub max_concurrent_requests: Option<usize>,
    /// `compression.level`, or `None` for the default.
    pub compression_level: Option<String>,
    /// URLs of gateways that have what the gateway itself does not.
    pub gateways: Vec<String>,
    /// Certificate for HTTPS, or `None` for HTTP only.
    pub certificate: Option<Certificate>,
}

/// A gateway in another process, which runs this program again. `main` must pass the arguments after [`SERVE`] to
/// [`serve`]. Dropping it stops the process.
#[derive(Debug)]
pub struct GatewayProcess {
    child: Child,
    address: SocketAddr,
    grpc: SocketAddr,
}

impl GatewayProcess {
    /// Starts a gateway on `repo` with `workers` workers (`None`: one per core). Returns when it accepts requests.
    ///
    /// # Errors
    /// Returns an error with the log of the process if it does not start.
    pub fn start(repo: &Path, workers: Option<usize>) -> Result<Self> {
        Self::start_with(repo, &Settings { workers, ..Settings::default() })
    }

    /// Starts a gateway whose configuration differs from [`config`](crate::config).
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_with(repo: &Path, settings: &Settings) -> Result<Self> {
        Self::start_child(SERVE, repo, Some(&serde_json::to_string(settings)?))
    }

    /// Starts a server other than the gateway: this program with `role` instead of [`SERVE`]. The server prints its
    /// address as [`serve`] does, and ends when its standard input ends.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_as(role: &str, repo: &Path) -> Result<Self> {
        Self::start_child(role, repo, None)
    }

    fn start_child(role: &str, repo: &Path, settings: Option<&str>) -> Result<Self> {
        let log = log_of(repo);
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(role).arg(repo).args(settings);
        // The user's log setting would change the result.
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("the gateway cannot be started")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let addresses = line.trim().split_once(' ').map(|(address, grpc)| (address.parse(), grpc.parse()));
        match addresses {
            Some((Ok(address), Ok(grpc))) => Ok(Self { child, address, grpc }),
            _ => {
                // The child closed its output without an address: it has ended or is about to.
                end(&mut child);
                bail!("the gateway did not start: {}", fs::read_to_string(log).unwrap_or_default())
            }
        }
    }

    /// Returns the address of the HTTP listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the gRPC listener.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc
    }

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends the child by closing its input, which also happens if this process is killed.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    if !has_ended(child) {
        eprintln!("the gateway does not terminate and is killed");
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            eprintln!("the gateway cannot be killed: {error}");
        }
    }
}

fn log_of(repo: &Path) -> PathBuf {
    repo.with_extension("log")
}

/// Runs the gateway until standard input ends. `arguments` are the repo and the [`Settings`] as JSON. Prints the HTTP
/// address and the gRPC address.
///
/// # Errors
/// Returns an error if the arguments are invalid or the gateway fails.
pub fn serve(arguments: &[String]) -> Result<()> {
    // As `ipfrs-cli` does.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    let [repo, settings] = arguments else { bail!("serve needs a repo and settings") };
    let repo = PathBuf::from(repo);
    let settings: Settings = serde_json::from_str(settings).context("the settings are not valid")?;
    let mut config = crate::config(settings.workers);
    if let Some(level) = settings.compression_level {
        config.compression.level = serde_json::from_value(level.into()).context("there is no such level")?;
    }
    if let Some(limit) = settings.max_concurrent_requests {
        config.gateway.max_concurrent_requests = limit;
    }
    config.retrieval.gateways = settings.gateways;
    if let Some(certificate) = settings.certificate {
        config.tls.enabled = true;
        config.tls.certificates = vec![serde_json::from_value(serde_json::to_value(certificate)?)?];
    }
    let runtime = runtime_builder().worker_threads(config.server.worker_threads()).build()?;
    let served = runtime.block_on(async {
        let _logging = config.log.start()?;
        let mut gateway = Gateway::bind(&config, &repo).await?;
        let address = gateway.addresses().first().context("the gateway has no address")?;
        let grpc = gateway.grpc_addresses().first().context("gRPC has no address")?;
        writeln!(io::stdout(), "{address} {grpc}").context("cannot get the address")?;
        let input_ended = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            ended = gateway.join() => return Ok(ended?),
            _ = input_ended => gateway.shutdown(),
        }
        Ok(gateway.join().await?)
    });
    runtime.shutdown_timeout(STRAGGLERS);
    served
}

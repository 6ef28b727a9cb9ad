//! The gateway in its own process: this program again as a child, or another build of `ipfrs-cli`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipfrs_interface::{Config, Gateway, Sources, runtime_builder};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;

use crate::certificate::Certificate;
use crate::process::{PROGRAM, become_program, has_ended};

/// First argument of a child that runs the gateway. The following arguments are for [`serve`].
pub const SERVE: &str = "serve";

/// Grace period for file-system threads at shutdown.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// Settings of a [`GatewayProcess`] that differ from [`config`](crate::config).
#[derive(Debug, Default)]
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

impl Settings {
    /// Returns the configuration file.
    fn file(&self) -> Result<String> {
        let mut server = json!({ "port": 0, "shutdown_grace_seconds": 1 });
        if let Some(workers) = self.workers {
            server["workers"] = workers.into();
        }
        let mut file = json!({ "server": server, "grpc": { "port": 0 }, "retrieval": { "gateways": self.gateways } });
        if let Some(limit) = self.max_concurrent_requests {
            file["gateway"] = json!({ "max_concurrent_requests": limit });
        }
        if let Some(level) = &self.compression_level {
            file["compression"] = json!({ "level": level });
        }
        if let Some(certificate) = &self.certificate {
            file["tls"] = json!({ "enabled": true, "certificates": [certificate] });
        }
        toml::to_string(&file).context("the settings cannot be written")
    }
}

/// Output of `ipfrs-cli --json gateway start`.
#[derive(Deserialize)]
struct Started {
    urls: Vec<String>,
    grpc: Vec<SocketAddr>,
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
        let file = repo.with_extension("toml");
        fs::write(&file, settings.file()?).with_context(|| format!("cannot write {}", file.display()))?;
        Self::start_child(SERVE, repo, Some(&file))
    }

    /// Starts a server other than the gateway: this program with `role` instead of [`SERVE`]. The server prints its
    /// address as [`serve`] does, and ends when its standard input ends.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_as(role: &str, repo: &Path) -> Result<Self> {
        Self::start_child(role, repo, None)
    }

    fn start_child(role: &str, repo: &Path, settings: Option<&Path>) -> Result<Self> {
        let log = log_of(repo);
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(role).arg(repo).args(settings);
        // The user's settings would change the result.
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPFRS_")) {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("the gateway cannot be started")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match addresses(&line) {
            Some((address, grpc)) => Ok(Self { child, address, grpc }),
            None => {
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

/// Returns the addresses in the line that [`serve`] or `ipfrs-cli` prints: of HTTP, and of gRPC.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    if let Some((address, grpc)) = line.trim().split_once(' ') {
        return Some((address.parse().ok()?, grpc.parse().ok()?));
    }
    let started: Started = serde_json::from_str(line).ok()?;
    let (_, address) = started.urls.first()?.split_once("://")?;
    Some((address.parse().ok()?, *started.grpc.first()?))
}

/// Ends the child by closing its input, which also happens if this process is killed, or, for `ipfrs-cli`, by a signal.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    if env::var_os(PROGRAM).is_some() {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
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

/// Runs the gateway until standard input ends. `arguments` are the repo and the configuration file. Prints the HTTP
/// address and the gRPC address.
///
/// # Errors
/// Returns an error if the arguments are invalid or the gateway fails.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [repo, file] = arguments else { bail!("serve needs a repo and a configuration file") };
    if let Some(program) = env::var_os(PROGRAM).map(OsString::into_string) {
        let program = program.ok().with_context(|| format!("{PROGRAM} is not valid UTF-8"))?;
        let words = [&program, "--repo", repo, "--config", file, "--json", "gateway", "start"];
        return become_program(&words.map(str::to_owned));
    }
    // As `ipfrs-cli` does.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    let repo = PathBuf::from(repo);
    let config = Config::load(&Sources { file: Some(file.into()), ..Sources::default() })?;
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

//! The gateway in a process of its own: this program again, as a child.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipfrs_interface::{Gateway, runtime_builder};

use crate::process::has_ended;

/// The first argument of a child that is to be the gateway: what follows is for [`serve`].
pub const SERVE: &str = "serve";

/// How long threads that work on files may take to notice the end.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// A gateway in another process: this program again, which must hand the arguments after [`SERVE`] to [`serve`]. Dropping
/// it stops it.
#[derive(Debug)]
pub struct GatewayProcess {
    child: Child,
    address: SocketAddr,
    grpc: SocketAddr,
}

impl GatewayProcess {
    /// Starts it on `repo`, with as many workers (`None`: one per core). Returns once it answers.
    ///
    /// # Errors
    /// When it does not start; with what it logged.
    pub fn start(repo: &Path, workers: Option<usize>) -> Result<Self> {
        Self::start_as(SERVE, repo, workers)
    }

    /// Starts it with another `compression.level` than by default.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_compressing(repo: &Path, workers: usize, level: &str) -> Result<Self> {
        Self::start_with(SERVE, repo, &[&workers.to_string(), level])
    }

    /// Starts another server than the gateway: this program, with `role` in the place of [`SERVE`]. It prints its address as
    /// [`serve`] does, and ends with its standard input.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_as(role: &str, repo: &Path, workers: Option<usize>) -> Result<Self> {
        let workers = workers.map(|workers| workers.to_string());
        Self::start_with(role, repo, workers.as_deref().as_slice())
    }

    fn start_with(role: &str, repo: &Path, more: &[&str]) -> Result<Self> {
        let log = log_of(repo);
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(role).arg(repo).args(more);
        // What the tester's own settings would change.
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
                // It has closed its output without an address: it has ended, or is about to.
                end(&mut child);
                bail!("the gateway did not start: {}", fs::read_to_string(log).unwrap_or_default())
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it speaks gRPC.
    #[must_use]
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc
    }

    /// Its process.
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

/// The child ends when its input does, also when this process is gone without a word.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    if !has_ended(child) {
        eprintln!("the gateway does not end and is killed");
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            eprintln!("the gateway cannot be killed: {error}");
        }
    }
}

fn log_of(repo: &Path) -> PathBuf {
    repo.with_extension("log")
}

/// Is that gateway until standard input ends: `arguments` are the repo, the number of workers and the level of compression,
/// as far as they are given. Prints its address and that for gRPC.
///
/// # Errors
/// When the arguments are not these, or the gateway fails.
pub fn serve(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let repo = PathBuf::from(arguments.next().context("serve names no repo")?);
    let workers = arguments.next().map(|workers| workers.parse()).transpose().context("workers are a number")?;
    let mut config = crate::config(workers);
    if let Some(level) = arguments.next() {
        config.compression.level = serde_json::from_value(level.into()).context("there is no such level")?;
    }
    config.log.start()?;
    let runtime = runtime_builder().worker_threads(config.server.worker_threads()).build()?;
    let served = runtime.block_on(async {
        let mut gateway = Gateway::bind(&config, &repo).await?;
        let address = gateway.addresses().first().context("the gateway listens nowhere")?;
        let grpc = gateway.grpc_addresses().first().context("gRPC is spoken nowhere")?;
        writeln!(io::stdout(), "{address} {grpc}").context("the address cannot be told")?;
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

//! The two programs, their daemons and their repos.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::nginx::signal;
use ipfrs_benches::process::{BECOME, Memory, PROGRAM, has_ended, memory};
use ipfrs_benches::{Kubo, KuboDaemon};
use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;

use crate::options::Options;
use crate::rpc::Rpc;

/// Configuration of our daemon: ports of its own, and no wait for clients that have left. The listener of `[server]`
/// has the API too.
const CONFIGURATION: &str =
    "[server]\nport = 0\nshutdown_grace_seconds = 1\n[grpc]\nport = 0\n[api]\nenabled = false\n";

/// The programs, and a directory for their repos.
pub(crate) struct Site {
    pub(crate) options: Options,
    pub(crate) ours: Ours,
    pub(crate) kubo: Option<Kubo>,
    directory: TempDir,
}

/// `ipfrs-cli`.
pub(crate) struct Ours {
    path: PathBuf,
}

/// One of the programs.
#[derive(Clone, Copy)]
pub(crate) enum Server<'a> {
    Ours(&'a Ours),
    Kubo(&'a Kubo),
}

/// A running daemon. Dropping it stops it.
pub(crate) struct Daemon {
    process: Process,
    /// Address of `/api/v0`.
    pub(crate) address: SocketAddr,
    /// Time from the start of the process until it accepts requests.
    pub(crate) start: Duration,
}

enum Process {
    Ours(OurProcess),
    Kubo(KuboDaemon),
}

struct OurProcess(Child);

/// Output of `ipfrs-cli --json gateway start`.
#[derive(Deserialize)]
struct Started {
    urls: Vec<String>,
}

impl Site {
    /// Finds the programs.
    pub(crate) fn prepare(options: Options) -> Result<Self> {
        let kubo = Kubo::find()?;
        let is_required = options.arguments.require_peers;
        ensure!(kubo.is_some() || !is_required, "Kubo is not installed: set KUBO to the program");
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = || temporary.with_file_name("release").join("ipfrs-cli");
        // Relative to the workspace, like the files of the arguments.
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = env::var_os(PROGRAM).map_or_else(built, |path| workspace.join(path));
        let path = path.canonicalize().with_context(|| {
            format!("{} is missing: run `cargo build --release --package ipfrs-cli`, or set {PROGRAM}", path.display())
        })?;
        // Use the disk of the build directory: the system's directory for temporary files may be in memory.
        let directory = TempDir::with_prefix_in("kubo-", temporary)?;
        Ok(Self { options, ours: Ours { path }, kubo, directory })
    }

    /// Returns the path of a file or a directory that does not exist yet.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns our program, and Kubo if it is installed.
    pub(crate) fn servers(&self) -> impl Iterator<Item = Server<'_>> {
        [Server::Ours(&self.ours)].into_iter().chain(self.kubo.as_ref().map(Server::Kubo))
    }
}

impl Ours {
    /// Returns a command on a repo, with JSON as its output. The user's settings have no effect on it.
    pub(crate) fn command(&self, repo: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("--repo").arg(repo).arg("--json");
        without_settings(&mut command);
        command.stdin(Stdio::null());
        command
    }
}

impl Server<'_> {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ours(_) => "ipfrs".to_owned(),
            Self::Kubo(kubo) => kubo.name(),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Creates a repo and starts a daemon on it.
    pub(crate) fn create(&self, repo: &Path) -> Result<Daemon> {
        if let Self::Kubo(kubo) = self {
            kubo.init(repo, false)?;
        }
        self.start(repo)
    }

    /// Starts a daemon on a repo that exists.
    pub(crate) fn start(&self, repo: &Path) -> Result<Daemon> {
        let begin = Instant::now();
        let (process, address) = match self {
            Self::Ours(ours) => {
                let (process, address) = OurProcess::start(ours, repo)?;
                (Process::Ours(process), address)
            }
            Self::Kubo(kubo) => {
                let daemon = KuboDaemon::start(kubo, repo)?;
                let address = daemon.rpc;
                (Process::Kubo(daemon), address)
            }
        };
        Ok(Daemon { process, address, start: begin.elapsed() })
    }
}

impl Daemon {
    /// Opens a connection to `/api/v0`.
    pub(crate) fn rpc(&self) -> Result<Rpc> {
        Rpc::connect(self.address)
    }

    /// Returns the memory that the process uses.
    pub(crate) fn memory(&self) -> Result<Memory> {
        memory(match &self.process {
            Process::Ours(OurProcess(child)) => child.id(),
            Process::Kubo(daemon) => daemon.pid(),
        })
    }
}

impl OurProcess {
    fn start(ours: &Ours, repo: &Path) -> Result<(Self, SocketAddr)> {
        let (settings, log) = (repo.with_extension("toml"), repo.with_extension("log"));
        fs::write(&settings, CONFIGURATION).with_context(|| format!("cannot write {}", settings.display()))?;
        // This program runs again and becomes the other one, which then ends with this process.
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(BECOME).arg(&ours.path).arg("--repo").arg(repo).arg("--config").arg(&settings);
        command.args(["--json", "gateway", "start"]);
        without_settings(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut process = Self(command.spawn().context("the daemon cannot be started")?);
        let mut line = String::new();
        if let Some(stdout) = process.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let started: Option<Started> = serde_json::from_str(&line).ok();
        let address = started.and_then(|started| started.urls.first()?.split_once("://")?.1.parse().ok());
        match address {
            Some(address) => Ok((process, address)),
            None => bail!("the daemon did not start: {}", fs::read_to_string(log).unwrap_or_default()),
        }
    }
}

impl Drop for OurProcess {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        if !has_ended(&mut self.0) {
            eprintln!("the daemon does not terminate and is killed");
            if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
                eprintln!("the daemon cannot be killed: {error}");
            }
        }
    }
}

/// Removes the environment variables that change what our program does.
fn without_settings(command: &mut Command) {
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPFRS_")) {
        command.env_remove(name);
    }
    command.env_remove("RUST_LOG");
}

/// Runs a command to its end, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{:?} cannot be run", command.get_program()))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed: {error}", command.get_args().collect::<Vec<_>>());
    Ok(output.stdout)
}

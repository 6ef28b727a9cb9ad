//! Kubo, offline and on ports of its own, with its default datastore in a repo of its own.

pub(crate) mod adds;
pub(crate) mod reads;

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::process::{PATIENCE, POLL, has_ended};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::nginx::signal;
use crate::options::BECOME;

/// Where Kubo's program is, when not on the `PATH`.
const VARIABLE: &str = "KUBO";

/// Kubo as it is installed.
pub(crate) struct Program {
    path: String,
    /// What `ipfs version` says: `ipfs version 0.42.0`.
    version: String,
}

impl Program {
    /// The one that `KUBO` names, or `ipfs` on the `PATH`; `None`, with a sentence, where there is none.
    pub(crate) fn find() -> Result<Option<Self>> {
        let named = env::var(VARIABLE).ok();
        let path = named.clone().unwrap_or_else(|| "ipfs".to_owned());
        let output = match Command::new(&path).arg("version").stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(e) if e.kind() == io::ErrorKind::NotFound && named.is_none() => {
                eprintln!("peers: Kubo is left out: there is no ipfs on the PATH, and {VARIABLE} names none");
                return Ok(None);
            }
            Err(e) => return Err(e).with_context(|| format!("{path} cannot be run")),
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(version.starts_with("ipfs version"), "{path} is not Kubo: `{path} version` says {version:?}");
        Ok(Some(Self { path, version }))
    }

    /// `Kubo 0.42.0`.
    pub(crate) fn name(&self) -> String {
        self.version.replace("ipfs version", "Kubo")
    }

    /// Makes a repo. Kubo's profile `test` closes it off from the network and leaves everything else as it is by default;
    /// `is_synced` has flatfs wait for the disk, which it does not by default.
    pub(crate) fn init(&self, repo: &Path, is_synced: bool) -> Result<()> {
        fs::create_dir(repo).with_context(|| format!("cannot make {}", repo.display()))?;
        let mut command = Command::new(&self.path);
        let output = at(repo, command.args(["init", "--profile=test"])).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "ipfs init failed: {}", String::from_utf8_lossy(&output.stderr));
        if is_synced {
            let path = repo.join("config");
            let mut config: Value = serde_json::from_slice(&fs::read(&path)?).context("Kubo's config is not JSON")?;
            let sync = config.pointer_mut("/Datastore/Spec/mounts/0/sync");
            *sync.context("Kubo's config has no flatfs first")? = json!(true);
            fs::write(&path, serde_json::to_vec_pretty(&config)?)?;
        }
        Ok(())
    }
}

/// Has Kubo look at this repo alone, and tell nobody.
fn at<'a>(repo: &Path, command: &'a mut Command) -> &'a mut Command {
    command.env("IPFS_PATH", repo).env("HOME", repo).env("IPFS_TELEMETRY", "off")
}

/// A running daemon. Dropping it stops it; it also ends when this process is gone without a word.
pub(crate) struct Daemon {
    child: Child,
    /// Where it answers `/api/v0`.
    pub(crate) rpc: SocketAddr,
    /// Where it answers `/ipfs`.
    pub(crate) gateway: SocketAddr,
}

impl Daemon {
    /// Starts it on a repo that [`Program::init`] made. Returns once it answers.
    pub(crate) fn start(program: &Program, repo: &Path) -> Result<Self> {
        // Files that tell where it listens: those of an earlier daemon are of no use.
        let told = [repo.join("api"), repo.join("gateway")];
        told.iter().filter(|file| file.exists()).try_for_each(fs::remove_file)?;
        let log = repo.with_extension("log");
        let output = File::create(&log)?;
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(BECOME).arg(&program.path).args(["daemon", "--offline"]);
        let child = at(repo, &mut command).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn();
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut daemon = Self { child: child.context("Kubo cannot be started")?, rpc: nowhere, gateway: nowhere };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let addresses = told.each_ref().map(|file| fs::read_to_string(file).ok().as_deref().and_then(address));
            if let [Some(rpc), Some(gateway)] = addresses
                && [rpc, gateway].iter().all(|address| TcpStream::connect(address).is_ok())
            {
                (daemon.rpc, daemon.gateway) = (rpc, gateway);
                return Ok(daemon);
            }
            if daemon.child.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("Kubo did not start: {}", fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(POLL);
        }
    }
}

/// Of `/ip4/127.0.0.1/tcp/42387` and of `http://127.0.0.1:42019`.
fn address(text: &str) -> Option<SocketAddr> {
    let port = text.trim().rsplit(['/', ':']).next()?.parse().ok()?;
    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !has_ended(&mut self.child) {
            eprintln!("peers: Kubo does not end and is killed");
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                eprintln!("peers: Kubo cannot be killed: {error}");
            }
        }
    }
}

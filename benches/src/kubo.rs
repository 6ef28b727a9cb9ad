//! Kubo in offline mode, on its own ports, with its default datastore in its own repo.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::nginx::signal;
use crate::process::{BECOME, PATIENCE, POLL, has_ended};

/// Environment variable with the path of Kubo, if it is not on the `PATH`.
const VARIABLE: &str = "KUBO";

/// An installed Kubo.
#[derive(Debug)]
pub struct Kubo {
    path: String,
    /// Output of `ipfs version`, such as `ipfs version 0.42.0`.
    version: String,
}

impl Kubo {
    /// Finds the program in `KUBO`, or `ipfs` on the `PATH`. Prints a message and returns `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the program cannot be run, or is not Kubo.
    pub fn find() -> Result<Option<Self>> {
        let named = env::var(VARIABLE).ok();
        let path = named.clone().unwrap_or_else(|| "ipfs".to_owned());
        let output = match Command::new(&path).arg("version").stdin(Stdio::null()).output() {
            Ok(output) => output,
            Err(e) if e.kind() == io::ErrorKind::NotFound && named.is_none() => {
                eprintln!("Kubo is skipped: there is no ipfs on the PATH, and {VARIABLE} is not set");
                return Ok(None);
            }
            Err(e) => return Err(e).with_context(|| format!("{path} cannot be run")),
        };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(version.starts_with("ipfs version"), "{path} is not Kubo: `{path} version` says {version:?}");
        Ok(Some(Self { path, version }))
    }

    /// Returns the path or the name of the program.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name and version, such as `Kubo 0.42.0`.
    #[must_use]
    pub fn name(&self) -> String {
        self.version.replace("ipfs version", "Kubo")
    }

    /// Creates a repo. Kubo's profile `test` disables networking and leaves all other defaults. `is_synced` makes
    /// flatfs wait for the disk, which it does not do by default.
    ///
    /// # Errors
    /// Returns an error if the directory exists or Kubo fails.
    pub fn init(&self, repo: &Path, is_synced: bool) -> Result<()> {
        fs::create_dir(repo).with_context(|| format!("cannot create {}", repo.display()))?;
        let mut command = Command::new(&self.path);
        let output = Self::use_repo(repo, command.args(["init", "--profile=test"])).stdin(Stdio::null()).output()?;
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

    /// Makes the Kubo that `command` runs use only this repo and send no telemetry.
    pub fn use_repo<'a>(repo: &Path, command: &'a mut Command) -> &'a mut Command {
        command.env("IPFS_PATH", repo).env("HOME", repo).env("IPFS_TELEMETRY", "off")
    }
}

/// A running Kubo daemon. Dropping it stops it. It also ends if this process is killed.
#[derive(Debug)]
pub struct KuboDaemon {
    child: Child,
    /// Address of `/api/v0`.
    pub rpc: SocketAddr,
    /// Address of `/ipfs`.
    pub gateway: SocketAddr,
}

impl KuboDaemon {
    /// Starts the daemon on a repo that [`Kubo::init`] created. Returns when it accepts requests. `main` must pass the
    /// arguments after [`BECOME`] to [`become_program`](crate::process::become_program).
    ///
    /// # Errors
    /// Returns an error with the log of the daemon if it does not start.
    pub fn start(program: &Kubo, repo: &Path) -> Result<Self> {
        // Kubo writes its addresses to these files. Files of an earlier daemon are stale.
        let address_files = [repo.join("api"), repo.join("gateway")];
        address_files.iter().filter(|file| file.exists()).try_for_each(fs::remove_file)?;
        let log = repo.with_extension("log");
        let output = File::create(&log)?;
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(BECOME).arg(&program.path).args(["daemon", "--offline"]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = Kubo::use_repo(repo, &mut command).spawn();
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut daemon = Self { child: child.context("Kubo cannot be started")?, rpc: nowhere, gateway: nowhere };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let addresses =
                address_files.each_ref().map(|file| fs::read_to_string(file).ok().as_deref().and_then(address));
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

    /// Returns the process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Parses `/ip4/127.0.0.1/tcp/42387` or `http://127.0.0.1:42019`.
fn address(text: &str) -> Option<SocketAddr> {
    let port = text.trim().rsplit(['/', ':']).next()?.parse().ok()?;
    Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

impl Drop for KuboDaemon {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !has_ended(&mut self.child) {
            eprintln!("Kubo does not terminate and is killed");
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                eprintln!("Kubo cannot be killed: {error}");
            }
        }
    }
}

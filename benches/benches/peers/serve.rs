//! The gateway in a process of its own: this program again, as a child.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipfrs_interface::Gateway;
use tokio::runtime::Builder;

use crate::options::SERVE;
use crate::process::has_ended;

/// How long threads that work on files may take to notice the end.
const STRAGGLERS: Duration = Duration::from_millis(200);

/// A gateway in another process. Dropping it stops it.
pub(crate) struct GatewayProcess {
    child: Child,
    address: SocketAddr,
}

impl GatewayProcess {
    /// Starts it on `repo`, with as many workers (`None`: one per core). Returns once it answers.
    pub(crate) fn start(repo: &Path, workers: Option<usize>) -> Result<Self> {
        let log = log_of(repo);
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(SERVE).arg(repo).args(workers.map(|workers| workers.to_string()));
        // What the tester's own settings would change.
        command.env_remove("RUST_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("the gateway cannot be started")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(address) => Ok(Self { child, address }),
            Err(_) => {
                // It has closed its output without an address: it has ended, or is about to.
                end(&mut child);
                bail!("the gateway did not start: {}", fs::read_to_string(log).unwrap_or_default())
            }
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
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
        eprintln!("peers: the gateway does not end and is killed");
        if let Err(error) = child.kill().and_then(|()| child.wait()) {
            eprintln!("peers: the gateway cannot be killed: {error}");
        }
    }
}

fn log_of(repo: &Path) -> PathBuf {
    repo.with_extension("log")
}

/// Is that gateway until standard input ends. Prints its address.
pub(crate) fn serve(repo: &Path, workers: Option<usize>) -> Result<()> {
    let config = ipfrs_benches::config(workers);
    config.log.start()?;
    let runtime = Builder::new_multi_thread().worker_threads(config.server.worker_threads()).enable_all().build()?;
    let served = runtime.block_on(async {
        let mut gateway = Gateway::bind(&config, repo).await?;
        println!("{}", gateway.addresses().first().context("the gateway listens nowhere")?);
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

//! Servers of the comparison, and the files that they serve.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ipfrs_benches::{
    Client, Cores, GatewayProcess, Multipart, Profile, add_file, get, machine, process::version, random,
    write_random_file,
};
use tempfile::TempDir;

use crate::options::Options;
use ipfrs_benches::Kubo;
use ipfrs_benches::nginx::Nginx;

pub(crate) const SMALL_BYTES: usize = 1_024;
const MIB: u64 = 1_024 * 1_024;

/// The servers and their files. Dropping it stops the servers and removes all files.
pub(crate) struct Site {
    pub(crate) options: Options,
    pub(crate) cores: Cores,
    /// The gateway, with one worker and with the files already in its repo at its start.
    pub(crate) gateway: GatewayProcess,
    pub(crate) nginx: Option<Nginx>,
    /// Output of `nginx -v`.
    pub(crate) nginx_version: Option<String>,
    /// Output of `wrk -v`.
    pub(crate) wrk_version: Option<String>,
    /// Output of `h2load --version`.
    pub(crate) h2load_version: Option<String>,
    /// Kubo, if it is installed.
    pub(crate) kubo: Option<Kubo>,
    /// The large file at each server.
    pub(crate) large: Vec<Target>,
    /// The file of [`SMALL_BYTES`] at each server.
    pub(crate) small: Vec<Target>,
    large_path: PathBuf,
    /// Dropped last, after all servers have stopped.
    directory: TempDir,
}

/// A file at a server.
pub(crate) struct Target {
    /// Name of the server in the report.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// Path of the file in the URL.
    pub(crate) path: String,
    /// Process IDs of the server.
    pub(crate) pids: Vec<u32>,
}

/// Content IDs of the files at the gateway.
struct Added {
    large_dag_pb: String,
    large_raw: String,
    small: String,
}

impl Site {
    /// Writes the files, starts the servers, and compares the content that each of them serves byte for byte.
    pub(crate) fn prepare(options: Options) -> Result<Self> {
        let nginx_version = version("nginx", "-v", "nginx-light", options.arguments.require_peers)?;
        let wrk_version = version("wrk", "-v", "wrk", options.arguments.require_peers)?;
        let h2load_version = version("h2load", "--version", "nghttp2-client", false)?;
        let kubo = Kubo::find()?;
        // Use the disk of the build directory: the system's directory for temporary files may be in memory.
        let directory = TempDir::with_prefix_in("peers-", env!("CARGO_TARGET_TMPDIR"))?;
        let (www, repo) = (directory.path().join("www"), directory.path().join("repo"));
        fs::create_dir(&www)?;
        let (large_path, small_path) = (www.join("large"), www.join("small"));
        write_random_file(&large_path, options.file_mib, options.file_mib)?;
        fs::write(&small_path, random(0, SMALL_BYTES))?;
        let added = fill(&repo, &large_path, &small_path)?;
        let cores = Cores::new(options.is_pinned)?;
        cores.for_servers()?;
        let gateway = GatewayProcess::start(&repo, Some(1))?;
        let nginx = nginx_version.as_ref().map(|_| Nginx::start(&directory.path().join("nginx"), &www)).transpose()?;
        cores.for_clients()?;
        let (large, small) = targets(&gateway, nginx.as_ref(), &added);
        for (targets, path) in [(&large, &large_path), (&small, &small_path)] {
            for target in targets {
                let mut client = Client::connect(target.address)?;
                client.send(&get(&target.path))?;
                client
                    .compare(200, File::open(path)?)
                    .with_context(|| format!("{} serves different bytes", target.name))?;
            }
        }
        Ok(Self {
            options,
            cores,
            gateway,
            nginx,
            nginx_version,
            wrk_version,
            h2load_version,
            kubo,
            large,
            small,
            large_path,
            directory,
        })
    }

    /// Describes the machine, the programs and the number of rounds.
    pub(crate) fn circumstances(&self) -> Result<String> {
        let missing = || "no".to_owned();
        Ok(format!(
            "{machine}{pinned}, {nginx}, {wrk}, {h2load}. Loads of {seconds} s. Medians of {rounds} rounds, with the minimum and maximum in parentheses.",
            machine = machine()?,
            pinned = if self.cores.is_pinned() { " (one core for the server, another for the client)" } else { "" },
            nginx = self
                .nginx_version
                .as_deref()
                .map_or_else(|| missing() + " nginx", |text| words(text, "nginx version:")),
            wrk = self.wrk_version.as_deref().map_or_else(|| missing() + " wrk", |text| words(text, "")),
            h2load = self.h2load_version.as_deref().map_or_else(|| missing() + " h2load", |text| words(text, "")),
            seconds = self.options.wrk_seconds,
            rounds = self.options.rounds,
        ))
    }

    /// Returns the size of the large file, in bytes.
    pub(crate) fn large_bytes(&self) -> u64 {
        self.options.file_mib * MIB
    }

    /// Opens the large file.
    pub(crate) fn large_file(&self) -> Result<File> {
        File::open(&self.large_path).with_context(|| format!("cannot read {}", self.large_path.display()))
    }

    /// Returns the directory with the files `large` and `small`.
    pub(crate) fn www(&self) -> &Path {
        self.large_path.parent().unwrap_or(&self.large_path)
    }

    /// Returns the path of the large file.
    pub(crate) fn large_path(&self) -> &Path {
        &self.large_path
    }

    /// Returns a path for temporary files on the same disk as all others.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Adds the files to the repo with a separate gateway, so that the measured gateway has only served requests.
fn fill(repo: &Path, large: &Path, small: &Path) -> Result<Added> {
    let gateway = GatewayProcess::start(repo, None)?;
    let mut client = Client::connect(gateway.address())?;
    let mut form = Multipart::default();
    form.file(&fs::read(small)?);
    Ok(Added {
        small: form.send(&mut client, Profile::DagPb)?.concat(),
        large_dag_pb: add_file(&mut client, Profile::DagPb, &mut File::open(large)?)?,
        large_raw: add_file(&mut client, Profile::Raw, &mut File::open(large)?)?,
    })
}

fn targets(gateway: &GatewayProcess, nginx: Option<&Nginx>, added: &Added) -> (Vec<Target>, Vec<Target>) {
    let (mut large, mut small) = (Vec::new(), Vec::new());
    if let Some(nginx) = nginx {
        for (name, address) in nginx.servers() {
            let served = |path: &str| Target { name, address, path: path.to_owned(), pids: nginx.workers().to_vec() };
            large.push(served("/large"));
            small.push(served("/small"));
        }
    }
    let served = |name, cid: &str| Target {
        name,
        address: gateway.address(),
        path: format!("/ipfs/{cid}"),
        pids: vec![gateway.pid()],
    };
    large.push(served("ipfrs, dag-pb leaves of 256 KiB", &added.large_dag_pb));
    large.push(served("ipfrs, raw leaves of 1 MiB", &added.large_raw));
    small.push(served("ipfrs", &added.small));
    (large, small)
}

/// Returns the first two words of a line after `prefix`: the name and version of a program.
fn words(line: &str, prefix: &str) -> String {
    line.trim_start_matches(prefix).split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

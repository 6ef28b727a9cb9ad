//! `repo backup`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use indicatif::HumanBytes;
use ipfrs_core::timestamp;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{Id, RepoSnapshot};
use serde::Serialize;

use crate::api::Api;
use crate::args::{Globals, RepoBackupArgs};
use crate::backup::{
    CopiedFiles, Copier, Destination, FORMAT, Found, HeldSnapshot, Manifest, check_space, copy_files, copy_packs, find,
    plan, verify,
};
use crate::output::Output;
use crate::progress::{Progress, Watched};
use crate::runtime;
use crate::session::Session;

/// Journals of ingested objects. What leaves them is in the mutable files by then, so they are copied before.
const JOURNALS: &str = "ingest-journals";

/// The configuration file of a repo.
const CONFIG: &str = "config.toml";

/// A backup that has begun: the snapshot exists, and the journals are copied.
struct Begun {
    snapshot: HeldSnapshot,
    destination: Destination,
    directory: String,
    files: CopiedFiles,
    repo: PathBuf,
    store: PathBuf,
    /// The configuration file, if it is not that of the repo.
    config: Option<PathBuf>,
    peer_id: String,
    created: SystemTime,
    with_keys: bool,
    verifies: bool,
}

/// Summary of a backup.
#[derive(Debug, Serialize)]
struct Summary {
    directory: String,
    packs: u64,
    /// Packs of which something was copied.
    copied_packs: u64,
    copied_pack_bytes: u64,
    copied_file_bytes: u64,
    files: u64,
    /// Bytes of the whole backup.
    total_bytes: u64,
    has_keys: bool,
    has_config: bool,
    verified: bool,
    seconds: f64,
}

pub(super) fn run(globals: &Globals, args: &RepoBackupArgs, out: &mut Output) -> Result<()> {
    let start = Instant::now();
    let session = Session::open_for_daemon(globals)?;
    session.start_quiet_log()?;
    session.require_repo()?;
    let watched = Watched { wanted: args.progress, is_silent: out.is_json() };
    let interrupted = Arc::new(AtomicBool::new(false));
    let copier = Copier::new(Progress::bytes(watched), interrupted.clone());
    let summary = runtime::run(&session.config.server, async {
        let api = session.connect("repo backup").await?;
        if api.is_local() && session.config.store.read_only {
            bail!("a repo that is open read-only takes no snapshot: copy its directory while nothing writes to it");
        }
        let begun = begin(&api, args, globals.config.clone(), copier).await;
        // The copy needs nothing but the snapshot, and a daemon may start meanwhile.
        let closed = api.close().await;
        let (begun, mut copier) = begun?;
        closed?;
        let copying = tokio::task::spawn_blocking(move || begun.copy(&mut copier));
        interruptible(copying, &interrupted).await
    })?;
    let summary = Summary { seconds: start.elapsed().as_secs_f64(), ..summary };
    if out.is_json() {
        return out.object(&summary);
    }
    out.line(&format!(
        "backed up to {}: {} packs and {} files, {}; copied {} of {} packs and {} of files in {:.1} s; {}{}",
        crate::output::printable(&summary.directory),
        summary.packs,
        summary.files,
        HumanBytes(summary.total_bytes),
        HumanBytes(summary.copied_pack_bytes),
        summary.copied_packs,
        HumanBytes(summary.copied_file_bytes),
        summary.seconds,
        if summary.has_keys { "with private keys" } else { "without private keys" },
        if summary.verified { ", verified" } else { "" },
    ))?;
    if !summary.has_config {
        out.line("the repo has no configuration file: if the daemon uses one elsewhere, name it with --config")?;
    }
    Ok(())
}

/// Waits for a task, and makes it stop when the command is interrupted.
pub(super) async fn interruptible<T>(
    mut task: tokio::task::JoinHandle<Result<T>>,
    interrupted: &AtomicBool,
) -> Result<T> {
    let ended = tokio::select! {
        ended = &mut task => ended,
        _ = runtime::interrupted() => {
            interrupted.store(true, Ordering::Relaxed);
            task.await
        }
    };
    ended.context("the task that copies has failed")?
}

/// Checks everything, copies the journals and takes the snapshot.
async fn begin(
    api: &Api,
    args: &RepoBackupArgs,
    config: Option<PathBuf>,
    mut copier: Copier,
) -> Result<(Begun, Copier)> {
    let repo = api.repo_stat().await?.repo_path;
    let repo = PathBuf::from(repo.context("the daemon does not tell where its repo is: its version is too old")?);
    let path = Destination::examine(&args.destination, std::slice::from_ref(&repo))?;
    let Id { id: peer_id, .. } = api.call(Request::query("id")).await?.json().await?;
    let destination = Destination::open(path)?;
    if let Some(other) = destination.manifest().filter(|manifest| manifest.peer_id != peer_id) {
        bail!(
            "{} holds the backup of another repo ({}, peer ID {}): use another directory",
            destination.path().display(),
            other.repo,
            other.peer_id
        );
    }
    let directory = destination.begin_files()?;
    let created = SystemTime::now();
    let mut files = CopiedFiles::default();
    let journals = find(&repo, &repo, Some(JOURNALS), "", true)?;
    copy_files(journals, &destination, &directory, &mut files, &mut copier)?;
    let snapshot: RepoSnapshot = api.call(Request::post("/v1/repo/snapshots")).await?.json().await?;
    let store = PathBuf::from(&snapshot.store);
    let snapshot = HeldSnapshot::hold(snapshot)?;
    let (with_keys, verifies) = (!args.without_keys, args.verify);
    let begun =
        Begun { snapshot, destination, directory, files, repo, store, config, peer_id, created, with_keys, verifies };
    Ok((begun, copier))
}

impl Begun {
    /// Copies everything, and ends the backup.
    fn copy(mut self, copier: &mut Copier) -> Result<Summary> {
        let plan = plan(&self.snapshot, &self.destination, copier)?;
        let found = self.found()?;
        let bytes = found.iter().map(Found::bytes).sum::<u64>();
        check_space(self.destination.path(), plan.bytes + bytes)?;
        copier.expect(bytes);
        copy_files(found, &self.destination, &self.directory, &mut self.files, copier)?;
        let copied = copy_packs(plan, &self.snapshot, &mut self.destination, copier)?;
        let manifest = Manifest {
            format: FORMAT,
            program: format!("ipfrs-cli {}", env!("CARGO_PKG_VERSION")),
            created: timestamp::format_milliseconds(self.created),
            peer_id: self.peer_id,
            repo: self.repo.display().to_string(),
            store: relative(&self.store, &self.repo)?,
            has_keys: self.with_keys,
            packs: copied.packs,
            files_directory: self.directory,
            files: self.files.files,
        };
        self.destination.finish(manifest.clone())?;
        if self.verifies {
            verify(self.destination.path(), &manifest, copier)?;
        }
        Ok(Summary {
            directory: self.destination.path().display().to_string(),
            packs: manifest.packs.len() as u64,
            copied_packs: copied.changed,
            copied_pack_bytes: copied.bytes,
            copied_file_bytes: self.files.bytes,
            files: manifest.files.len() as u64,
            total_bytes: manifest.bytes(),
            has_keys: manifest.has_keys,
            has_config: manifest.has_file(CONFIG),
            verified: self.verifies,
            seconds: 0.0,
        })
    }

    /// Returns the files to copy, except the journals, which are copied.
    fn found(&self) -> Result<Vec<Found>> {
        let mut found = find(&self.repo, &self.store, None, JOURNALS, self.with_keys)?;
        for name in ["pins.redb", "mutable-files.root", "filestore.redb"] {
            found.extend(Found::in_store(self.snapshot.directory().join(name), name)?);
        }
        found.extend(Found::in_store(self.store.join("version"), "version")?);
        if let Some(config) = &self.config {
            found.retain(|file| !file.is_named(CONFIG));
            found.push(Found::in_repo(config.clone(), CONFIG)?);
        }
        Ok(found)
    }
}

/// Returns the directory of the store in that of the repo, or its absolute path if it is elsewhere.
fn relative(store: &Path, repo: &Path) -> Result<Option<String>> {
    let within = store.strip_prefix(repo).unwrap_or(store);
    if within.as_os_str().is_empty() {
        return Ok(None);
    }
    Ok(Some(within.to_str().context("the path of the store is not UTF-8")?.to_owned()))
}

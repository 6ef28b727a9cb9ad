//! `repo backup|gc|restore|stat|verify|version`.

mod backup;
mod restore;

use anyhow::{Result, bail};
use indicatif::HumanBytes;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{GcLine, RemovedKey, RepoStat, RepoVersion, VerifyLine};

use super::in_session;
use crate::api::Api;
use crate::args::{Globals, RepoCommand, RepoGcArgs, RepoStatArgs, RepoVerifyArgs};
use crate::output::{Output, printable};
use crate::progress::{Progress, Watched};

pub(super) fn run(globals: &Globals, command: &RepoCommand, out: &mut Output) -> Result<()> {
    match command {
        RepoCommand::Backup(args) => backup::run(globals, args, out),
        RepoCommand::Restore(args) => restore::run(globals, args, out),
        RepoCommand::Gc(args) => in_session(globals, true, "repo", async |api| gc(api, args, out).await),
        RepoCommand::Stat(args) => in_session(globals, true, "repo", async |api| stat(api, args, out).await),
        RepoCommand::Verify(args) => in_session(globals, true, "repo", async |api| verify(api, args, out).await),
        RepoCommand::Version { quiet } => {
            in_session(globals, true, "repo", async |api| version(api, *quiet, out).await)
        }
    }
}

async fn gc(api: &Api, args: &RepoGcArgs, out: &mut Output) -> Result<()> {
    let watched = Watched { wanted: args.progress, is_silent: args.quiet || out.is_json() };
    let mut bars = GcBars::new(watched);
    let request = Request::command("repo/gc").with("silent", args.silent).with("force", args.force);
    let mut response = api.call(request.with("progress", true)).await?;
    while let Some(line) = response.line::<GcLine>().await? {
        match line {
            GcLine::Progress(progress) => bars.reached(&progress.phase, progress.blocks.unwrap_or(0)),
            GcLine::Removed(removed) if out.is_json() => bars.bar.aside(|| out.object(&removed))?,
            GcLine::Removed(RemovedKey { key: Some(key), .. }) => bars.bar.aside(|| match args.quiet {
                true => out.line(&key.cid),
                false => out.line(&format!("removed {}", key.cid)),
            })?,
            // With `stream-errors`, which this program does not request, a line may have an error instead of a key.
            GcLine::Removed(RemovedKey { key: None, error }) => bail!("{error}"),
            GcLine::Summary(summary) if out.is_json() => out.object(&summary)?,
            GcLine::Summary(summary) if !args.quiet => bars.bar.aside(|| {
                out.line(&format!(
                    "blocks removed: {} ({}), kept: {}; disk space freed: {}; {:.1} s",
                    summary.removed_blocks,
                    HumanBytes(summary.removed_bytes),
                    summary.kept_blocks,
                    HumanBytes(summary.freed_bytes),
                    summary.seconds
                ))
            })?,
            GcLine::Summary(_) => {}
        }
    }
    Ok(())
}

/// Progress bars of the gc phases (mark, sweep, compact), one after the other.
struct GcBars {
    watched: Watched,
    phase: String,
    bar: Progress,
}

impl GcBars {
    fn new(watched: Watched) -> Self {
        Self { watched, phase: "mark".to_owned(), bar: Progress::items(watched, "blocks marked") }
    }

    fn reached(&mut self, phase: &str, blocks: u64) {
        if phase != self.phase {
            phase.clone_into(&mut self.phase);
            self.bar = match phase {
                "sweep" => Progress::items(self.watched, "blocks swept"),
                _ => Progress::spinner(self.watched, "freeing disk space"),
            };
        }
        self.bar.reached(blocks);
    }
}

async fn stat(api: &Api, args: &RepoStatArgs, out: &mut Output) -> Result<()> {
    let request = Request::query("repo/stat").with("size-only", args.size_only).with("dead-bytes", !args.size_only);
    let stat: RepoStat = api.call(request).await?.json().await?;
    if out.is_json() {
        return out.object(&stat);
    }
    let size = |bytes: u64| if args.human { HumanBytes(bytes).to_string() } else { bytes.to_string() };
    let max = if stat.storage_max == u64::MAX { "no limit".to_owned() } else { size(stat.storage_max) };
    let rows = [
        ("NumObjects", stat.num_objects.map(|count| count.to_string())),
        ("RepoSize", Some(size(stat.repo_size))),
        ("DeadBytes", stat.dead_bytes.map(size)),
        ("StorageMax", Some(max)),
        ("RepoPath", stat.repo_path.map(|path| printable(&path))),
        ("Version", stat.version),
    ];
    let is_shown = |name: &str| !args.size_only || matches!(name, "RepoSize" | "StorageMax");
    for (name, value) in rows {
        if let Some(value) = value.filter(|_| is_shown(name)) {
            out.line(&format!("{:<12}{value}", format!("{name}:")))?;
        }
    }
    Ok(())
}

async fn verify(api: &Api, args: &RepoVerifyArgs, out: &mut Output) -> Result<()> {
    let watched = Watched { wanted: args.progress, is_silent: args.quiet || out.is_json() };
    let progress = Progress::items(watched, "blocks");
    if progress.is_shown() {
        progress.expect(api.repo_stat().await?.num_objects.unwrap_or(0));
    }
    // A repair changes the repo, so it is never repeated.
    let request = if args.drop || args.heal { Request::command("repo/verify") } else { Request::query("repo/verify") };
    let request = request.with("drop", args.drop).with("heal", args.heal);
    let mut response = api.call(request.with_some("heal-timeout", args.heal_timeout.as_ref())).await?;
    while let Some(line) = response.line::<VerifyLine>().await? {
        if line.msg.is_empty() {
            progress.reached(line.progress);
            continue;
        }
        let is_corrupt = line.msg.starts_with("block ");
        progress.aside(|| match out.is_json() {
            true => out.object(&serde_json::json!({ "Msg": line.msg })),
            false if args.quiet && !is_corrupt => Ok(()),
            false => out.line(&printable(&line.msg)),
        })?;
    }
    Ok(())
}

async fn version(api: &Api, quiet: bool, out: &mut Output) -> Result<()> {
    let repo: RepoVersion = api.call(Request::query("repo/version")).await?.json().await?;
    match out.is_json() {
        true => out.object(&repo),
        false if quiet => out.line(&format!("ipfrs-repo@{}", repo.version)),
        false => out.line(&format!("ipfrs repo version ipfrs-repo@{}", repo.version)),
    }
}

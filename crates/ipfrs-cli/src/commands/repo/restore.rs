//! `repo restore`.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::HumanBytes;
use ipfrs_interface::{Config, Embedded, Sources};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{VerifiedPin, VerifyLine};
use serde::Serialize;

use super::backup::interruptible;
use crate::api::Api;
use crate::args::{Globals, RepoRestoreArgs};
use crate::backup::{Copier, Manifest, Target, check, restore};
use crate::output::{Output, printable};
use crate::progress::{Progress, Watched};
use crate::runtime;
use crate::session;

/// Summary of a restored or checked backup.
#[derive(Debug, Serialize)]
struct Summary {
    /// The repo; absent if the backup was only checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    repo: Option<String>,
    /// Time of the backup.
    created: String,
    peer_id: String,
    packs: u64,
    files: u64,
    bytes: u64,
    has_keys: bool,
    /// Number of blocks that were hashed, with `--verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified_blocks: Option<u64>,
    seconds: f64,
}

pub(super) fn run(globals: &Globals, args: &RepoRestoreArgs, out: &mut Output) -> Result<()> {
    let start = Instant::now();
    let repo = session::repo(globals)?;
    let server = Config::default().server;
    let watched = Watched { wanted: args.progress, is_silent: out.is_json() };
    let (manifest, verified_blocks, repo) = runtime::run(&server, async {
        let interrupted = Arc::new(AtomicBool::new(false));
        let mut copier = Copier::new(Progress::bytes(watched), interrupted.clone());
        let source = args.source.clone();
        if args.check {
            let checking = tokio::task::spawn_blocking(move || check(&source, &mut copier));
            return Ok((interruptible(checking, &interrupted).await?, None, None));
        }
        let target = Arc::new(Target::prepare(&repo)?);
        let used = target.clone();
        let restoring = tokio::task::spawn_blocking(move || restore(&source, &used, &mut copier));
        let restored = interruptible(restoring, &interrupted).await;
        let target = Arc::into_inner(target).context("the task that restores has not ended")?;
        let verified = match restored {
            Ok(manifest) if args.verify => verified(&target.built(), target.repo(), &manifest, watched)
                .await
                .map(|blocks| (manifest, Some(blocks))),
            restored => restored.map(|manifest| (manifest, None)),
        };
        match verified {
            Ok((manifest, blocks)) => {
                let repo = target.repo().to_owned();
                target.finish()?;
                Ok((manifest, blocks, Some(repo)))
            }
            Err(error) => {
                target.abandon()?;
                Err(error)
            }
        }
    })?;
    let has_config = manifest.has_file("config.toml");
    let summary = Summary {
        repo: repo.map(|repo| repo.display().to_string()),
        packs: manifest.packs.len() as u64,
        files: manifest.files.len() as u64,
        bytes: manifest.bytes(),
        created: manifest.created,
        peer_id: manifest.peer_id,
        has_keys: manifest.has_keys,
        verified_blocks,
        seconds: start.elapsed().as_secs_f64(),
    };
    if out.is_json() {
        return out.object(&summary);
    }
    print(&summary, manifest.store.as_deref(), has_config, out)
}

fn print(summary: &Summary, store: Option<&str>, has_config: bool, out: &mut Output) -> Result<()> {
    let Summary { packs, files, bytes, created, seconds, .. } = summary;
    let content = format!("{packs} packs and {files} files, {}, of {created}", HumanBytes(*bytes));
    match &summary.repo {
        None => return out.line(&format!("the backup is sound: {content}; {seconds:.1} s")),
        Some(repo) => out.line(&format!("restored {}: {content}; {seconds:.1} s", printable(repo)))?,
    }
    if let Some(blocks) = summary.verified_blocks {
        out.line(&format!("{blocks} blocks match their content IDs, and no pin lacks a block"))?;
    }
    if !summary.has_keys {
        out.line("the backup has no private keys: the repo gets a new peer ID, and its names need their keys")?;
    }
    if let Some(store) = store.filter(|store| Path::new(store).is_absolute()) {
        let config = match has_config {
            true => "the configuration is config.toml.restored; rename it when store.path is right",
            false => "the backup has no configuration file",
        };
        out.line(&format!("the store was in {}, and is now in the repo: {config}", printable(store)))?;
    }
    Ok(())
}

/// Returns where the files are that blocks of the repo are parts of, as the restored configuration says.
fn filestore_root(built: &Path, repo: &Path) -> Result<PathBuf> {
    let files = ["config.toml", "config.toml.restored"].map(|name| built.join(name));
    let root = match files.into_iter().find(|file| file.exists()) {
        Some(file) => {
            let why = || format!("cannot verify blocks in files: {} is not valid", file.display());
            Config::load(&Sources::of_process(Some(file.clone()))).with_context(why)?.store.filestore_root
        }
        None => None,
    };
    let Some(root) = root else {
        bail!(
            "blocks of the backup are parts of files, and its configuration does not say where the files are \
             (store.filestore_root): restore it without --verify"
        )
    };
    // The repo does not exist yet.
    let mut absolute = PathBuf::new();
    for component in std::path::absolute(repo)?.join(root).components() {
        match component {
            Component::ParentDir => drop(absolute.pop()),
            Component::CurDir => {}
            other => absolute.push(other),
        }
    }
    Ok(absolute)
}

/// Opens a repo that was built, which makes its index, hashes every block and looks for the blocks below each pin.
/// Returns the number of blocks.
async fn verified(built: &Path, repo: &Path, manifest: &Manifest, watched: Watched) -> Result<u64> {
    let mut config = Config::default();
    config.store.path = manifest.store.as_ref().filter(|store| !Path::new(store).is_absolute()).map(Into::into);
    if manifest.files.iter().any(|file| file.in_store && file.path == "filestore.redb") {
        config.store.filestore_root = Some(filestore_root(built, repo)?);
    }
    let api = Api::local(Embedded::open(&config, built, "ipfrs-cli repo restore").await?);
    let checked = async {
        let progress = Progress::items(watched, "blocks");
        let stored = api.repo_stat().await?.num_objects.unwrap_or(0);
        progress.expect(stored);
        let mut response = api.call(Request::query("repo/verify")).await?;
        let incomplete = "the backup is incomplete: restore it without --verify";
        while let Some(line) = response.line::<VerifyLine>().await.context(incomplete)? {
            progress.reached(line.progress);
            if line.msg.starts_with("block ") {
                bail!("{}", unverified(&printable(&line.msg)));
            }
        }
        let mut pins = api.call(Request::query("pin/verify")).await?;
        while let Some(pin) = pins.line::<VerifiedPin>().await? {
            if !pin.ok {
                let pin = printable(&pin.cid);
                bail!(
                    "the backup lacks a block below the pin {pin}, as the repo may have: restore it without --verify, and pin the content \
                     again where it is still to be found"
                );
            }
        }
        Ok(stored)
    };
    let checked = checked.await;
    api.close().await?;
    checked
}

/// Returns the error for a block that `repo/verify` reports, with what to do.
fn unverified(block: &str) -> String {
    if block.contains("of the filestore") {
        return format!(
            "{block}; the backup itself is sound: restore the file, or restore the backup without --verify"
        );
    }
    if block.contains(" was unreadable (") {
        return format!(
            "{block}: the disk of the repo returns errors (see dmesg), and the backup may be intact: restore it again, or \
             on another disk"
        );
    }
    format!("{block}: it was damaged when it was backed up; restore it without --verify")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_corrupt_blocks_count_as_damaged() {
        let of_file = "block a was corrupt (block a of the filestore cannot be read: open f: not found)";
        for (block, expected, other) in [
            ("block a was corrupt (other hash)", "damaged when it was backed up", "dmesg"),
            ("block a was unreadable (Input/output error (os error 5))", "on another disk", "damaged"),
            (of_file, "the backup itself is sound", "damaged"),
        ] {
            let text = unverified(block);
            assert!(text.starts_with(block) && text.contains(expected) && !text.contains(other), "{text}");
        }
    }
}

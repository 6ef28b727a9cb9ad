//! A repo of Kubo that moves to ipfrs, whole and interrupted, and back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Kubo, Table, random};
use serde::Deserialize;

use crate::Findings;
use crate::rpc::Rpc;
use crate::servers::{Server, Site, output};

/// Size of a pinned file, in bytes.
const TREE_BYTES: usize = 1_024_000;
/// `add` of a pinned file, as 1,000 leaves and the nodes above them.
const ADD: &str = "add?chunker=size-1024&raw-leaves=true&cid-version=1&pin=false&quiet=true&progress=false";
/// Number of keys.
const KEYS: usize = 50;
/// Number of directories of mutable files.
const DIRECTORIES: usize = 20;
/// Number of files that are written into each of them.
const FILES: usize = 5;
/// Kubo's `Datastore.StorageMax`, and our setting for the same.
const STORAGE_MAX: (&str, &str) = ("20GB", "max_bytes = 20000000000");
/// Our name for the key of Kubo's node.
const IDENTITY: (&str, &str) = ("self", "kubo-self");

/// Contents of a repo besides its blocks.
#[derive(Debug, PartialEq, Eq)]
struct Contents {
    pins: BTreeSet<Pin>,
    /// IDs of the keys by name.
    keys: BTreeMap<String, String>,
    /// Content ID of the root of the mutable files.
    root: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Pin {
    cid: String,
    r#type: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keys {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Key {
    name: String,
    id: String,
}

/// A response with the content ID of a file, or of the root of the mutable files.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Hashed {
    hash: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RepoStat {
    num_objects: u64,
}

/// Output of `migrate kubo`.
#[derive(Debug, Deserialize)]
struct Moved {
    blocks: u64,
    known_blocks: u64,
    pins: usize,
    keys: usize,
    failures: Vec<String>,
}

pub(crate) fn measure(site: &Site) -> Result<Findings> {
    let Some(kubo) = &site.kubo else {
        eprintln!("kubo: migration is skipped: it needs Kubo");
        return Ok(Findings::default());
    };
    let mut rows = Vec::new();
    let mut row = |what: &str, blocks: u64, time: Duration| {
        let per_second = format!("{:.0}", blocks as f64 / time.as_secs_f64());
        rows.push(vec![what.to_owned(), blocks.to_string(), format!("{:.2}", time.as_secs_f64()), per_second]);
    };
    let source = site.scratch("source");
    eprintln!("kubo: migration: {} trees of 1,000 blocks", site.options.trees);
    let daemon = Server::Kubo(kubo).create(&source)?;
    let mut rpc = daemon.rpc()?;
    fill(&mut rpc, site.options.trees).context("Kubo cannot be filled")?;
    let contents = Contents::read(&mut rpc)?;
    let blocks = rpc.json::<RepoStat>("repo/stat")?.num_objects;

    let by_url = site.scratch("by-url");
    let (moved, time) = migrate(site, &by_url, &format!("http://{}", daemon.address))?;
    let is_key = |failure: &String| failure.starts_with("key ");
    ensure!(moved.failures.len() == KEYS && moved.failures.iter().all(is_key), "not moved: {:?}", moved.failures);
    check_moved(&moved, blocks, &contents)?;
    row("`migrate kubo --from URL`", blocks, time);
    drop((rpc, daemon));

    let by_path = site.scratch("by-path");
    let (moved, time) = migrate_path(site, &by_path, &source)?;
    check_moved(&moved, blocks, &contents)?;
    ensure!(moved.known_blocks == 0, "a new repo had {} blocks", moved.known_blocks);
    row("`migrate kubo --from PATH`", blocks, time);

    let resumed = site.scratch("resumed");
    kill_in_the_middle(site, &resumed, &source, time / 2)?;
    let (moved, time) = migrate_path(site, &resumed, &source)?;
    check_moved(&moved, blocks, &contents)?;
    ensure!(moved.known_blocks > 0 && moved.blocks > 0, "it was not killed in the middle: {moved:?}");
    row("the same, resumed after a kill half way", moved.blocks, time);

    for repo in [&by_url, &by_path, &resumed] {
        let has_keys = repo != &by_url;
        check_contents(site, repo, &contents, has_keys).with_context(|| repo.display().to_string())?;
    }
    check_configuration(site, &resumed, &source)?;

    let exported = site.scratch("exported");
    let start = Instant::now();
    output(site.ours.command(&resumed).args(["migrate", "export"]).arg(&exported))?;
    row("`migrate export`", blocks, start.elapsed());
    let back = site.scratch("back");
    let time = import(site, kubo, &exported, &back)?;
    row("`import.sh` into a new repo of Kubo", blocks, time);
    let daemon = Server::Kubo(kubo).start(&back)?;
    let returned = Contents::read(&mut daemon.rpc()?)?;
    ensure!(returned.pins == contents.pins, "Kubo has other pins than before: {:?}", returned.pins);
    ensure!(returned.root == contents.root, "Kubo has other mutable files than before: {}", returned.root);
    drop(daemon);
    [source, by_url, by_path, resumed, exported, back].iter().try_for_each(fs::remove_dir_all)?;
    let title = format!("Migration of {} pins, {} keys and {DIRECTORIES} directories", contents.pins.len(), KEYS + 1);
    let columns = ["command", "blocks in the repo, or moved", "s", "blocks/s"];
    Ok(Findings { tables: vec![Table::new(title, columns, rows)], ..Findings::default() })
}

/// Adds pinned trees, keys and mutable files to a repo, and changes a setting.
fn fill(rpc: &mut Rpc, trees: usize) -> Result<()> {
    let mut roots = Vec::new();
    for tree in 0..trees {
        let added = rpc.call(ADD, Some(&random(tree as u64, TREE_BYTES)))?;
        let Hashed { hash } = serde_json::from_slice(&added).context("add responds with something else")?;
        let is_recursive = tree % 10 != 9;
        rpc.call(&format!("pin/add?arg={hash}&name=tree+{tree}&recursive={is_recursive}"), None)?;
        roots.push(hash);
    }
    for key in 0..KEYS {
        let kind = if key % 10 == 9 { "rsa&size=2048" } else { "ed25519" };
        rpc.call(&format!("key/gen?arg=key-{key}&type={kind}"), None)?;
    }
    for directory in 0..DIRECTORIES {
        rpc.call(&format!("files/mkdir?arg=/{directory}/files&parents=true"), None)?;
        let root = &roots[directory % roots.len()];
        rpc.call(&format!("files/cp?arg=/ipfs/{root}&arg=/{directory}/tree"), None)?;
        for file in 0..FILES {
            let content = random((directory * FILES + file) as u64, file * 3_000);
            rpc.call(&format!("files/write?arg=/{directory}/files/{file}&create=true"), Some(&content))?;
        }
    }
    rpc.call("files/chmod?arg=600&arg=/0/files/1", None)?;
    rpc.call("files/touch?arg=/0/files/2&mtime=1700000000", None)?;
    rpc.call(&format!("config?arg=Datastore.StorageMax&arg={}", STORAGE_MAX.0), None)?;
    Ok(())
}

impl Contents {
    fn read(rpc: &mut Rpc) -> Result<Self> {
        let mut pins = BTreeSet::new();
        for kind in ["recursive", "direct"] {
            pins.extend(rpc.lines::<Pin>(&format!("pin/ls?type={kind}&names=true&stream=true"))?);
        }
        let Keys { keys } = rpc.json("key/list")?;
        let Hashed { hash: root } = rpc.json("files/stat?arg=/")?;
        Ok(Self { pins, keys: keys.into_iter().map(|key| (key.name, key.id)).collect(), root })
    }
}

/// Runs `migrate kubo`, and returns its report, also if it says that something was not moved.
fn migrate(site: &Site, repo: &Path, from: &str) -> Result<(Moved, Duration)> {
    let start = Instant::now();
    let output = site.ours.command(repo).args(["migrate", "kubo", "--from", from]).output()?;
    let time = start.elapsed();
    let moved = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("migrate kubo: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((moved, time))
}

/// Does the same from a directory, from which all must be moved.
fn migrate_path(site: &Site, repo: &Path, from: &Path) -> Result<(Moved, Duration)> {
    let (moved, time) = migrate(site, repo, from.to_str().context("the path is not UTF-8")?)?;
    ensure!(moved.failures.is_empty(), "not moved: {:?}", moved.failures);
    ensure!(moved.keys == KEYS + 1, "{} keys were moved in place of {}", moved.keys, KEYS + 1);
    Ok((moved, time))
}

fn check_moved(moved: &Moved, blocks: u64, contents: &Contents) -> Result<()> {
    let found = moved.blocks + moved.known_blocks;
    ensure!(found == blocks, "{found} blocks were moved or known in place of {blocks}");
    ensure!(moved.pins == contents.pins.len(), "{} pins were moved in place of {}", moved.pins, contents.pins.len());
    Ok(())
}

/// Kills a migration after a time.
fn kill_in_the_middle(site: &Site, repo: &Path, from: &Path, after: Duration) -> Result<()> {
    let mut command = site.ours.command(repo);
    command.args(["migrate", "kubo", "--from"]).arg(from).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    thread::sleep(after);
    child.kill()?;
    let status = child.wait()?;
    ensure!(status.signal().is_some(), "the migration ended before it was killed");
    Ok(())
}

/// Checks what a repo of ours has after a migration.
fn check_contents(site: &Site, repo: &Path, expected: &Contents, has_keys: bool) -> Result<()> {
    let daemon = Server::Ours(&site.ours).start(repo)?;
    let found = Contents::read(&mut daemon.rpc()?)?;
    ensure!(found.pins == expected.pins, "the pins differ: {:?}", found.pins);
    ensure!(found.root == expected.root, "the mutable files differ: {} in place of {}", found.root, expected.root);
    if has_keys {
        for (name, id) in &expected.keys {
            let name = if name == IDENTITY.0 { IDENTITY.1 } else { name.as_str() };
            ensure!(found.keys.get(name) == Some(id), "the key {name} is not {id}: {:?}", found.keys);
        }
    }
    Ok(())
}

/// Runs the migration again, which has nothing left to move, and checks the configuration that it writes.
fn check_configuration(site: &Site, repo: &Path, from: &Path) -> Result<()> {
    output(site.ours.command(repo).args(["migrate", "kubo", "--write-config", "--from"]).arg(from))?;
    let written = fs::read_to_string(repo.join("config.toml")).context("no configuration was written")?;
    ensure!(written.lines().any(|line| line == STORAGE_MAX.1), "there is no {} in\n{written}", STORAGE_MAX.1);
    Ok(())
}

/// Imports an export into a new repo of Kubo at `repo`, with the script of the export.
fn import(site: &Site, kubo: &Kubo, exported: &Path, repo: &Path) -> Result<Duration> {
    ensure!(Command::new("jq").arg("--version").output().is_ok(), "jq is not installed: apt-get install jq");
    kubo.init(repo, false)?;
    // The script runs `ipfs`.
    let programs = site.scratch("programs");
    fs::create_dir(&programs)?;
    let found = output(Command::new("sh").args(["-c", "command -v \"$1\"", "sh", kubo.path()]))?;
    let program = fs::canonicalize(String::from_utf8(found)?.trim())?;
    symlink(program, programs.join("ipfs"))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([programs].into_iter().chain(std::env::split_paths(&path)))?;
    let start = Instant::now();
    let mut script = Command::new("sh");
    script.arg(exported.join("import.sh")).env("PATH", path).stdin(Stdio::null());
    output(Kubo::use_repo(repo, &mut script))?;
    Ok(start.elapsed())
}

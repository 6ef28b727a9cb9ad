//! The same random operations on the mutable files of both programs, whose roots must be equal after every flush.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{Client, Table, add_directory};
use serde::Deserialize;

use crate::Findings;
use crate::history::{History, Operation, WIDE, WIDE_ENTRIES, wide_name};
use crate::rpc::Rpc;
use crate::servers::{Daemon, Server, Site};

/// Number of unflushed operations after which all are flushed. Kubo refuses more than 256.
const MAX_UNFLUSHED: usize = 40;
/// Number of links of the root of a directory above which it is not sharded.
const MAX_SHARDS: u64 = 256;

/// Response of `files/stat`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stat {
    hash: String,
    /// Number of links of the root block.
    blocks: u64,
}

/// A server and the time that it took.
struct Side {
    name: String,
    rpc: Rpc,
    time: Duration,
}

pub(crate) fn measure(site: &Site) -> Result<Findings> {
    let Some(kubo) = &site.kubo else {
        eprintln!("kubo: mutable is skipped: it needs Kubo");
        return Ok(Findings::default());
    };
    let (seed, operations) = (site.options.seed, site.options.operations);
    eprintln!("kubo: mutable: SEED={seed} OPERATIONS={operations}");
    let servers = [Server::Ours(&site.ours), Server::Kubo(kubo)];
    let repos = ["mutable", "mutable-kubo"].map(|name| site.scratch(name));
    let daemons = [servers[0].create(&repos[0])?, servers[1].create(&repos[1])?];
    let leaves = [add_wide(&daemons[0])?, add_wide(&daemons[1])?];
    ensure!(leaves[0] == leaves[1], "the same directory has different content IDs: {leaves:?}");
    let side = |index: usize| -> Result<Side> {
        Ok(Side { name: servers[index].name(), rpc: daemons[index].rpc()?, time: Duration::ZERO })
    };
    let mut sides = [side(0)?, side(1)?];
    let [leaf, _] = leaves;
    let mut history = History::new(seed, leaf);
    let (mut unflushed, mut roots, mut failures, mut crossings) = (0, 0_u64, 0_u64, 0_u64);
    let mut is_sharded = false;
    for step in 0..operations {
        let operation = history.next_operation();
        let at = || format!("SEED={seed}, step {step}, {}", shown(&operation));
        let [ours, kubo] = &mut sides;
        let outcomes = [run(ours, &operation).with_context(at)?, run(kubo, &operation).with_context(at)?];
        ensure!(outcomes[0] == outcomes[1], "{}: {outcomes:?}", at());
        unflushed += usize::from(operation.is_unflushed);
        let is_due = !operation.is_unflushed || unflushed >= MAX_UNFLUSHED;
        if is_due {
            if unflushed > 0 {
                sides.iter_mut().try_for_each(flush).with_context(at)?;
                unflushed = 0;
            }
            compare_roots(&mut sides).with_context(at)?;
            roots += 1;
            if operation.command.contains(WIDE) {
                let stat: Stat = sides[0].rpc.json(&format!("files/stat?arg={WIDE}"))?;
                let was_sharded = std::mem::replace(&mut is_sharded, stat.blocks <= MAX_SHARDS);
                crossings += u64::from(was_sharded != is_sharded);
            }
        }
        match outcomes[0] {
            Ok(()) => history.apply(operation),
            Err(_) => failures += 1,
        }
    }
    let at = || format!("SEED={seed}, after the last step");
    sides.iter_mut().try_for_each(flush).with_context(at)?;
    compare_roots(&mut sides).with_context(at)?;
    roots += 1;
    let rows = sides.iter().map(|side| {
        let counts = [operations as u64, roots, failures, crossings, seed].map(|count| count.to_string());
        let rate = operations as f64 / side.time.as_secs_f64();
        [vec![side.name.clone()], counts.to_vec(), vec![format!("{rate:.0}")]].concat()
    });
    let rows: Vec<_> = rows.collect();
    // Kubo waits for its connections when it ends.
    drop((sides, daemons));
    repos.iter().try_for_each(fs::remove_dir_all)?;
    let columns = [
        "server",
        "operations",
        "equal roots",
        "failures, with equal messages",
        "crossings of the limit of sharding",
        "seed",
        "operations/s",
    ];
    Ok(Findings {
        tables: vec![Table::new("Random operations on mutable files", columns, rows)],
        ..Findings::default()
    })
}

/// Adds the directory [`WIDE`], and returns the content ID of its files.
fn add_wide(daemon: &Daemon) -> Result<String> {
    let mut client = Client::connect(daemon.address)?;
    let mut added = add_directory(&mut client, WIDE_ENTRIES, 1, wide_name, |_| b"x".to_vec())?;
    let (root, leaf) = (added.pop().context("no directory was added")?, added.swap_remove(0));
    daemon.rpc()?.call(&format!("files/cp?arg=/ipfs/{root}&arg={WIDE}"), None)?;
    Ok(leaf)
}

/// Runs an operation, and returns the message of the error if it fails.
fn run(side: &mut Side, operation: &Operation) -> Result<Result<(), String>> {
    let start = Instant::now();
    let outcome = side.rpc.attempt(&operation.command, operation.content.as_deref())?;
    side.time += start.elapsed();
    Ok(outcome.map(drop))
}

/// Flushes all changes.
fn flush(side: &mut Side) -> Result<()> {
    let start = Instant::now();
    side.rpc.call("files/flush", None)?;
    side.time += start.elapsed();
    Ok(())
}

/// Checks that both trees have the same root.
fn compare_roots(sides: &mut [Side; 2]) -> Result<()> {
    let [ours, kubo] = sides;
    let [ours_hash, kubo_hash] = [ours, kubo].map(|side| side.rpc.json::<Stat>("files/stat?arg=/"));
    let (ours_hash, kubo_hash) = (ours_hash?.hash, kubo_hash?.hash);
    if ours_hash != kubo_hash {
        bail!("the roots differ: {ours_hash} here, {kubo_hash} in Kubo");
    }
    Ok(())
}

/// Describes an operation.
fn shown(operation: &Operation) -> String {
    match &operation.content {
        None => operation.command.clone(),
        Some(content) => format!("{} with {} bytes", operation.command, content.len()),
    }
}

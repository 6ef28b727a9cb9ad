//! What is asked for: arguments, and environment variables for the size of a run.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{SERVE, number, workspace_file};

const USAGE: &str = "usage: cargo bench --bench stores [-- [--write FILE]]

  --write FILE      also put the figures into FILE, between its markers; relative to the workspace

environment: FILE_MIB (4096), BLOCKS (1000000), PACK_MIB (1000, of blocks of 256 KiB), ROUNDS (5)";

/// What this process is to do.
pub(crate) enum Asked {
    /// Measure.
    Measure(Options),
    /// Be the gateway that is measured.
    Serve(Vec<String>),
    /// Another bench target is meant.
    Nothing,
}

/// The size of a run.
pub(crate) struct Options {
    /// Size of the large file in MiB.
    pub(crate) file_mib: u64,
    /// Blocks of the large store; at least those of the small one.
    pub(crate) blocks: u64,
    /// MiB of blocks of which half are collected.
    pub(crate) pack_mib: u64,
    /// How often what can be repeated is measured.
    pub(crate) rounds: u64,
    /// A Markdown file for the figures.
    pub(crate) write: Option<PathBuf>,
}

pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked> {
    let (mut write, mut is_bench, mut is_test) = (None, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            SERVE => return Ok(Asked::Serve(arguments.collect())),
            "--write" => write = Some(workspace_file(&arguments.next().context("--write names no file")?)),
            "--bench" => is_bench = true,
            "--test" => is_test = true,
            // What `cargo bench NAME` hands to every target.
            filter if !filter.starts_with('-') => {
                if !"stores".contains(filter) {
                    return Ok(Asked::Nothing);
                }
            }
            // Those of the other targets, where all of them are run.
            "--require-peers" => {}
            other => bail!("unknown argument {other:?}\n{USAGE}"),
        }
    }
    // `cargo test --benches` gives no argument: it is to see that this works, not how fast it is.
    let (file_mib, blocks, pack_mib, rounds) =
        if is_bench && !is_test { (4_096, 1_000_000, 1_000, 5) } else { (16, 2_000, 8, 1) };
    let options = Options {
        file_mib: number("FILE_MIB", file_mib)?,
        blocks: number("BLOCKS", blocks)?,
        pack_mib: number("PACK_MIB", pack_mib)?,
        rounds: number("ROUNDS", rounds)?,
        write,
    };
    ensure!((1..=1 << 20).contains(&options.file_mib), "FILE_MIB = {}: give 1 to 1048576", options.file_mib);
    ensure!((1_000..=100_000_000).contains(&options.blocks), "BLOCKS = {}: give 1000 to 10^8", options.blocks);
    ensure!((1..=1 << 20).contains(&options.pack_mib), "PACK_MIB = {}: give 1 to 1048576", options.pack_mib);
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    Ok(Asked::Measure(options))
}

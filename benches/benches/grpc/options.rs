//! What is asked for: arguments, and environment variables for the size of a run.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{SERVE, number, workspace_file};

use crate::hello::HELLO;

const USAGE: &str = "usage: cargo bench --bench grpc [-- [--write FILE]]

  --write FILE      also put the figures into FILE, between its markers; relative to the workspace

environment: FILE_MIB (1024), SECONDS (5, for each round of calls), ROUNDS (5)";

/// What this process is to do.
pub(crate) enum Asked {
    /// Measure.
    Measure(Options),
    /// Be the gateway that is measured.
    Serve(Vec<String>),
    /// Be the server that does nothing but answer.
    Hello,
    /// Another bench target is meant.
    Nothing,
}

/// The size of a run.
pub(crate) struct Options {
    /// Size of the large file in MiB.
    pub(crate) file_mib: u64,
    /// Seconds of a round of calls.
    pub(crate) seconds: u64,
    /// How often everything is measured.
    pub(crate) rounds: u64,
    /// A Markdown file for the figures.
    pub(crate) write: Option<PathBuf>,
}

pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked> {
    let (mut write, mut is_bench, mut is_test) = (None, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            SERVE => return Ok(Asked::Serve(arguments.collect())),
            HELLO => return Ok(Asked::Hello),
            "--write" => write = Some(workspace_file(&arguments.next().context("--write names no file")?)),
            "--bench" => is_bench = true,
            "--test" => is_test = true,
            // What `cargo bench NAME` hands to every target.
            filter if !filter.starts_with('-') => {
                if !"grpc".contains(filter) {
                    return Ok(Asked::Nothing);
                }
            }
            // Those of the other targets, where all of them are run.
            "--require-peers" => {}
            other => bail!("unknown argument {other:?}\n{USAGE}"),
        }
    }
    // `cargo test --benches` gives no argument: it is to see that this works, not how fast it is.
    let (file_mib, seconds, rounds) = if is_bench && !is_test { (1_024, 5, 5) } else { (4, 1, 1) };
    let options = Options {
        file_mib: number("FILE_MIB", file_mib)?,
        seconds: number("SECONDS", seconds)?,
        rounds: number("ROUNDS", rounds)?,
        write,
    };
    ensure!((1..=1 << 20).contains(&options.file_mib), "FILE_MIB = {}: give 1 to 1048576", options.file_mib);
    ensure!((1..=3_600).contains(&options.seconds), "SECONDS = {}: give 1 to 3600", options.seconds);
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    Ok(Asked::Measure(options))
}

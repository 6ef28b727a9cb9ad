//! Options of a run: arguments, and environment variables for its size.

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --bench retrieval [-- [--write FILE] [--json FILE] [--only PART,...]
       [--require-peers]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures and the data of the plots into FILE
  --only PART,...   measure only these parts; both files keep the figures of the others
  --require-peers   fail where nginx is not installed (as when CI is set) instead of measuring nothing

environment: ROUNDS (5), MAX_MIB (1000: the largest file), MAX_SECONDS (10: downloads that the rate makes longer are left
out), FILES (1000, of the directory)";

/// Size of a run.
pub(crate) struct Options {
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// Size of the largest file, in MiB.
    pub(crate) max_mib: u64,
    /// Longest download, in seconds.
    pub(crate) max_seconds: f64,
    /// Number of files in the directory.
    pub(crate) files: usize,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

/// Reads the size of the run from the environment.
pub(crate) fn options(arguments: Arguments) -> Result<Options> {
    // `cargo test --benches` passes no arguments. It checks that the benchmark works, not how fast anything is.
    let (rounds, max_mib, files) = if arguments.is_full { (5, 1_000, 1_000) } else { (1, 1, 20) };
    let options = Options {
        rounds: number("ROUNDS", rounds)?,
        max_mib: number("MAX_MIB", max_mib)?,
        max_seconds: number("MAX_SECONDS", 10.0)?,
        files: number("FILES", files)?,
        arguments,
    };
    ensure!((1..=100).contains(&options.rounds), "ROUNDS = {}: give 1 to 100", options.rounds);
    ensure!((1..=10_000).contains(&options.max_mib), "MAX_MIB = {}: give 1 to 10000", options.max_mib);
    ensure!((20..=10_000).contains(&options.files), "FILES = {}: give 20 to 10000", options.files);
    Ok(options)
}

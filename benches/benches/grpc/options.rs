//! Options of a run: arguments, and environment variables for its size.

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --bench grpc [-- [--write FILE] [--json FILE] [--only PART,...]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures and the data of the plots into FILE
  --only PART,...   measure only these parts; both files keep the figures of the others

environment: FILE_MIB (1024), SECONDS (5, for each round of calls), ROUNDS (5)";

/// Size of a run.
pub(crate) struct Options {
    /// Size of the large file, in MiB.
    pub(crate) file_mib: u64,
    /// Duration of a round of calls, in seconds.
    pub(crate) seconds: u64,
    /// Number of rounds.
    pub(crate) rounds: u64,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

/// Reads the size of the run from the environment.
pub(crate) fn options(arguments: Arguments) -> Result<Options> {
    // `cargo test --benches` passes no arguments. It checks that the benchmarks work, not how fast they are.
    let (file_mib, seconds, rounds) = if arguments.is_full { (1_024, 5, 5) } else { (4, 1, 1) };
    let options = Options {
        file_mib: number("FILE_MIB", file_mib)?,
        seconds: number("SECONDS", seconds)?,
        rounds: number("ROUNDS", rounds)?,
        arguments,
    };
    ensure!((1..=1 << 20).contains(&options.file_mib), "FILE_MIB = {}: give 1 to 1048576", options.file_mib);
    ensure!((1..=3_600).contains(&options.seconds), "SECONDS = {}: give 1 to 3600", options.seconds);
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    Ok(options)
}

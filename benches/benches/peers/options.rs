//! Options of a run: arguments, and environment variables for its size.

use std::time::Duration;

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --bench peers [-- [--write FILE] [--json FILE] [--only PART,...]
       [--require-peers]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures and the data of the plots into FILE
  --only PART,...   measure only these parts; both files keep the figures of the others
  --require-peers   fail where nginx or wrk is not installed (as when CI is set) instead of leaving it out

environment: ROUNDS (5), FILE_MIB (1024), COLD_MIB (32, each of 50 files), SECONDS (2, of each run of a load
generator), CONNECTIONS (10000, held open for 15 times as long), FILES (100000, of 4 KiB), TRACE_OBJECTS (100000),
TRACE_SECONDS (60, for each server), PIN (1: a core for the server and another for
the client; 0: wherever the system puts them), KUBO (the program; `ipfs` on the PATH, and where there is none Kubo
is left out), GATEWAY (an `ipfrs-cli` to measure instead of the gateway in this program)";

/// Options of the comparison.
pub(crate) struct Options {
    /// Number of rounds.
    pub(crate) rounds: usize,
    /// Size of the large file in MiB, at least the longest range.
    pub(crate) file_mib: u64,
    /// Size of each of the concurrently read cold files, in MiB.
    pub(crate) cold_mib: u64,
    /// Duration of one run of wrk or h2load in seconds, and a fifteenth of the time for which connections are held.
    pub(crate) wrk_seconds: u64,
    /// Number of concurrent connections.
    pub(crate) connections: usize,
    /// Number of small files.
    pub(crate) files: usize,
    /// Number of objects of the trace.
    pub(crate) trace_objects: usize,
    /// Duration of the trace for each server, in seconds.
    pub(crate) trace_seconds: u64,
    /// Whether servers and clients have one core each.
    pub(crate) is_pinned: bool,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

impl Options {
    /// Returns the time for which one kind of request is repeated.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs(self.wrk_seconds) / 4
    }
}

/// Reads the size of the run from the environment.
pub(crate) fn options(arguments: Arguments) -> Result<Options> {
    // `cargo test --benches` passes no arguments. It checks that the benchmarks work, not how fast they are.
    let (rounds, file_mib, cold_mib, seconds, connections) =
        if arguments.is_full { (5, 1_024, 32, 2, 10_000) } else { (1, 16, 1, 1, 100) };
    let (files, trace_objects, trace_seconds) = if arguments.is_full { (100_000, 100_000, 60) } else { (50, 50, 5) };
    let options = Options {
        rounds: number("ROUNDS", rounds)?,
        file_mib: number("FILE_MIB", file_mib)?,
        cold_mib: number("COLD_MIB", cold_mib)?,
        wrk_seconds: number("SECONDS", seconds)?,
        connections: number("CONNECTIONS", connections)?,
        files: number("FILES", files)?,
        trace_objects: number("TRACE_OBJECTS", trace_objects)?,
        trace_seconds: number("TRACE_SECONDS", trace_seconds)?,
        is_pinned: number::<u8>("PIN", 1)? != 0,
        arguments,
    };
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    ensure!((16..=65_536).contains(&options.file_mib), "FILE_MIB = {}: give 16 to 65536", options.file_mib);
    ensure!((1..=1_024).contains(&options.cold_mib), "COLD_MIB = {}: give 1 to 1024", options.cold_mib);
    ensure!((1..=600).contains(&options.wrk_seconds), "SECONDS = {}: give 1 to 600", options.wrk_seconds);
    ensure!((1..=16_000).contains(&options.connections), "CONNECTIONS = {}: give 1 to 16000", options.connections);
    ensure!((50..=1_000_000).contains(&options.files), "FILES = {}: give 50 to 1000000", options.files);
    let objects = options.trace_objects;
    ensure!((50..=10_000_000).contains(&objects), "TRACE_OBJECTS = {objects}: give 50 to 10000000");
    let seconds = options.trace_seconds;
    ensure!((5..=3_600).contains(&seconds), "TRACE_SECONDS = {seconds}: give 5 to 3600");
    Ok(options)
}

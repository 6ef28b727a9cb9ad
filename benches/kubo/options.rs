//! Options of a run: arguments, and environment variables for its size.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --package ipfrs-benches-kubo [-- [--write FILE] [--json FILE]
       [--only PART,...] [--require-peers]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures and the data of the plots into FILE
  --only PART,...   only these parts: pins, listing, migration, mutable, ingest; both files keep the figures of the
                    others
  --require-peers   fail where Kubo is not installed (as when CI is set) instead of leaving it out

environment: GATEWAY (the `ipfrs-cli` to measure; target/release/ipfrs-cli), KUBO (the program; `ipfs` on the PATH, and
where there is none, what needs Kubo is left out), PINS_MAX (1000000: most pins), KUBO_PINS_MAX (100000: most pins of
Kubo, which takes 10 ms for each), UPDATE_FILES (10000, in the tree whose pin is updated), ENTRIES (1000000, of the
directory that is listed), KUBO_ENTRIES (100000, of that which Kubo lists too), TREES (100, of 1,000 blocks, to
migrate), OPERATIONS (10000, on mutable files), SEED (of these operations; the time of day), ROUNDS (5, of ingest),
SECONDS (2, of each measurement of ingest)";

/// Size of a run.
pub(crate) struct Options {
    /// Maximum number of pins.
    pub(crate) pins: u64,
    /// Maximum number of pins of Kubo.
    pub(crate) kubo_pins: u64,
    /// Number of files in the tree whose pin is updated.
    pub(crate) update_files: usize,
    /// Number of entries of the directory that is listed.
    pub(crate) entries: usize,
    /// Number of entries of the directory that Kubo lists too.
    pub(crate) kubo_entries: usize,
    /// Number of pinned trees to migrate.
    pub(crate) trees: usize,
    /// Number of operations on mutable files.
    pub(crate) operations: usize,
    /// Seed of the operations.
    pub(crate) seed: u64,
    /// Number of rounds of `ingest`.
    pub(crate) rounds: usize,
    /// Duration of each measurement of `ingest`, in seconds.
    pub(crate) seconds: u64,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

impl Options {
    /// Reads the size of the run from the environment.
    pub(crate) fn read(arguments: Arguments) -> Result<Self> {
        // `cargo test --benches` passes no arguments. It checks that the benchmarks work, not how fast they are.
        let full = arguments.is_full;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let options = Self {
            pins: number("PINS_MAX", if full { 1_000_000 } else { 1_000 })?,
            kubo_pins: number("KUBO_PINS_MAX", if full { 100_000 } else { 1_000 })?,
            update_files: number("UPDATE_FILES", if full { 10_000 } else { 100 })?,
            entries: number("ENTRIES", if full { 1_000_000 } else { 10_000 })?,
            kubo_entries: number("KUBO_ENTRIES", if full { 100_000 } else { 10_000 })?,
            trees: number("TREES", if full { 100 } else { 50 })?,
            operations: number("OPERATIONS", if full { 10_000 } else { 300 })?,
            seed: number("SEED", now)?,
            rounds: number("ROUNDS", if full { 5 } else { 1 })?,
            seconds: number("SECONDS", if full { 2 } else { 1 })?,
            arguments,
        };
        ensure!((1_000..=10_000_000).contains(&options.pins), "PINS_MAX = {}: give 1000 to 10^7", options.pins);
        let entries = [options.entries, options.kubo_entries];
        ensure!(entries.iter().all(|count| (10_000..=9_999_999).contains(count)), "give 10^4 to 10^7 - 1 entries");
        let files = options.update_files;
        ensure!((10..=1_000_000).contains(&files), "UPDATE_FILES = {files}: give 10 to 10^6");
        // With fewer trees, the kill half way through a migration may come before the first block, or after the last.
        ensure!((50..=10_000).contains(&options.trees), "TREES = {}: give 50 to 10000", options.trees);
        ensure!(options.operations > 0, "OPERATIONS = 0: give 1 or more");
        ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
        ensure!((1..=600).contains(&options.seconds), "SECONDS = {}: give 1 to 600", options.seconds);
        Ok(options)
    }

    /// Describes the size of the run.
    pub(crate) fn size(&self) -> String {
        let Self { pins, entries, trees, operations, rounds, seconds, .. } = self;
        format!(
            "PINS_MAX is {pins}, ENTRIES {entries}, TREES {trees}, OPERATIONS {operations}, ROUNDS {rounds}, SECONDS \
             {seconds}."
        )
    }
}

//! Options of a run: arguments, and environment variables for its size.

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --bench stores [-- [--write FILE] [--json FILE] [--only PART,...]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures and the data of the plots into FILE
  --only PART,...   measure only these parts; both files keep the figures of the others

environment: FILE_MIB (4096), BLOCKS (1000000; 10000000 takes 15 GiB of disk), PACK_MIB (1000, of blocks of
256 KiB), ROUNDS (5)";

/// Size of a run.
pub(crate) struct Options {
    /// Size of the large file, in MiB.
    pub(crate) file_mib: u64,
    /// Number of blocks in the large store; more than in the smallest one.
    pub(crate) blocks: u64,
    /// MiB of blocks, half of which garbage collection removes.
    pub(crate) pack_mib: u64,
    /// Number of rounds of the parts that can be repeated.
    pub(crate) rounds: u64,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

/// Reads the size of the run from the environment.
pub(crate) fn options(arguments: Arguments) -> Result<Options> {
    // `cargo test --benches` passes no arguments. It checks that the benchmarks work, not how fast they are.
    let (file_mib, blocks, pack_mib, rounds) =
        if arguments.is_full { (4_096, 1_000_000, 1_000, 5) } else { (16, 2_000, 8, 1) };
    let options = Options {
        file_mib: number("FILE_MIB", file_mib)?,
        blocks: number("BLOCKS", blocks)?,
        pack_mib: number("PACK_MIB", pack_mib)?,
        rounds: number("ROUNDS", rounds)?,
        arguments,
    };
    ensure!((1..=1 << 20).contains(&options.file_mib), "FILE_MIB = {}: give 1 to 1048576", options.file_mib);
    ensure!((1_001..=100_000_000).contains(&options.blocks), "BLOCKS = {}: give 1001 to 10^8", options.blocks);
    ensure!((1..=1 << 20).contains(&options.pack_mib), "PACK_MIB = {}: give 1 to 1048576", options.pack_mib);
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    Ok(options)
}

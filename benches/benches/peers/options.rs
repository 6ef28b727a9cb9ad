//! What is asked for: arguments, and environment variables for the size of a run.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{SERVE, number, workspace_file};

const USAGE: &str = "usage: cargo bench --bench peers [-- [--write FILE] [--require-peers]]

  --write FILE      also put the figures into FILE, between its markers; relative to the workspace
  --require-peers   fail where nginx or wrk is not installed (as when CI is set) instead of leaving it out

environment: ROUNDS (5), FILE_MIB (1024), SECONDS (3, of each run of wrk), PIN (1: a core for the server and another for
the client; 0: wherever the system puts them)";

/// The first argument of a child of this program that is to be another one.
pub(crate) const BECOME: &str = "become";

/// What this process is to do.
pub(crate) enum Asked {
    /// Compare.
    Compare(Options),
    /// Be the gateway that is compared.
    Serve(Vec<String>),
    /// Be a program that ends with the process that started it.
    Become(Vec<String>),
    /// Another bench target is meant.
    Nothing,
}

/// How the comparison is run.
pub(crate) struct Options {
    /// How often everything is measured.
    pub(crate) rounds: usize,
    /// Size of the large file in MiB; at least the longest range.
    pub(crate) file_mib: u64,
    /// Seconds of one run of wrk.
    pub(crate) wrk_seconds: u64,
    /// Whether servers and clients have a core each.
    pub(crate) is_pinned: bool,
    /// Whether a missing peer is an error.
    pub(crate) require_peers: bool,
    /// A Markdown file for the figures.
    pub(crate) write: Option<PathBuf>,
}

impl Options {
    /// How long one kind of request is repeated.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_secs(self.wrk_seconds) / 4
    }
}

pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked> {
    let (mut require_peers, mut write, mut is_bench, mut is_test) = (env::var_os("CI").is_some(), None, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            SERVE => return Ok(Asked::Serve(arguments.collect())),
            BECOME => return Ok(Asked::Become(arguments.collect())),
            "--require-peers" => require_peers = true,
            "--write" => write = Some(workspace_file(&arguments.next().context("--write names no file")?)),
            "--bench" => is_bench = true,
            "--test" => is_test = true,
            // What `cargo bench NAME` hands to every target.
            filter if !filter.starts_with('-') => {
                if !"peers".contains(filter) {
                    return Ok(Asked::Nothing);
                }
            }
            other => bail!("unknown argument {other:?}\n{USAGE}"),
        }
    }
    // `cargo test --benches` gives no argument: it is to see that this works, not how fast it is.
    let (rounds, file_mib, seconds) = if is_bench && !is_test { (5, 1_024, 3) } else { (1, 16, 1) };
    let options = Options {
        rounds: number("ROUNDS", rounds)?,
        file_mib: number("FILE_MIB", file_mib)?,
        wrk_seconds: number("SECONDS", seconds)?,
        is_pinned: number::<u8>("PIN", 1)? != 0,
        require_peers,
        write,
    };
    ensure!((1..=1_000).contains(&options.rounds), "ROUNDS = {}: give 1 to 1000", options.rounds);
    ensure!((16..=65_536).contains(&options.file_mib), "FILE_MIB = {}: give 16 to 65536", options.file_mib);
    ensure!((1..=600).contains(&options.wrk_seconds), "SECONDS = {}: give 1 to 600", options.wrk_seconds);
    Ok(Asked::Compare(options))
}

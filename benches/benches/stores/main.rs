//! What depends on how much is stored: `cargo bench --bench stores [-- --write docs/PERFORMANCE.md]`.
//!
//! A file of gigabytes and the memory that it takes, a store of a million blocks beside one of a thousand, an index made
//! anew, and a collection beside a reader. The gateway is a process of its own and is asked over a socket.
mod collection;
mod growth;
mod large_file;
mod options;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipfrs_benches::{Asked, Report, SERVE, check_place, machine, process, serve};
use tempfile::TempDir;

use crate::options::{Options, USAGE};

/// The place of the figures, as [`check_place`] knows it.
const PLACE: &str = "stores";

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("stores", &[SERVE], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(|options| measure(&options)),
        Ok(Asked::Child(_, arguments)) => serve(arguments.into_iter()),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stores: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    check_place(&options.arguments, PLACE)?;
    // On the disk of the build: the system's directory for temporary files may be in memory.
    let directory = TempDir::with_prefix_in("stores-", env!("CARGO_TARGET_TMPDIR"))?;
    let step = |name: &str| eprintln!("stores: {name}");
    step("large file");
    let file = large_file::measure(options, directory.path()).context("a large file could not be measured")?;
    step("growth");
    let (growth, charts) = growth::measure(options, directory.path()).context("growth could not be measured")?;
    step("collection");
    let collection = collection::measure(options, directory.path()).context("a collection could not be measured")?;
    let tables = [file].into_iter().chain(growth).chain([collection]).collect();
    let circumstances = format!("{}. Medians, in parentheses the least and the largest.", machine()?);
    Report { circumstances, tables, charts }.publish(PLACE, &options.arguments)
}

//! What depends on how much is stored: `cargo bench --bench stores [-- --write docs/PERFORMANCE.md]`.
//!
//! A file of gigabytes and the memory that it takes, a store of a million blocks beside one of a thousand, an index made
//! anew, and a collection beside a reader. The gateway is a process of its own and is asked over a socket.
#![allow(clippy::print_stdout, reason = "the report is what this program is for")]

mod collection;
mod growth;
mod large_file;
mod latency;
mod options;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipfrs_benches::{Table, check_place, machine, process, serve, write_figures};
use tempfile::TempDir;

use crate::options::{Asked, Options};

/// The place of the figures, as [`write_figures`] knows it.
const PLACE: &str = "stores";

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match options::parse(env::args().skip(1)) {
        Ok(Asked::Measure(options)) => measure(&options),
        Ok(Asked::Serve(arguments)) => serve(arguments.into_iter()),
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
    // Found out at once, not after minutes of measuring.
    options.write.as_deref().map(|path| check_place(path, PLACE)).transpose()?;
    // On the disk of the build: the system's directory for temporary files may be in memory.
    let directory = TempDir::with_prefix_in("stores-", env!("CARGO_TARGET_TMPDIR"))?;
    let step = |name: &str, run: &dyn Fn() -> Result<Table>| {
        eprintln!("stores: {name}");
        run().with_context(|| format!("{name} could not be measured"))
    };
    let tables = [
        step("large file", &|| large_file::measure(options, directory.path()))?,
        step("growth", &|| growth::measure(options, directory.path()))?,
        step("collection", &|| collection::measure(options, directory.path()))?,
    ];
    let tables: Vec<_> = tables.iter().map(Table::markdown).collect();
    let report = format!("{}. Medians, in parentheses the least and the largest.\n\n{}", machine()?, tables.join("\n"));
    println!("{report}");
    options.write.as_deref().map_or(Ok(()), |path| write_figures(path, PLACE, &report))
}

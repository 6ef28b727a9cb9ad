//! Effects of the amount of stored data: `cargo bench --bench stores [-- --write docs/PERFORMANCE.md]`.
//!
//! Measures the memory for a file of several gigabytes, a store of a million blocks compared with one of a thousand,
//! the rebuild of an index, and garbage collection with a concurrent reader. The gateway runs in its own process and
//! receives requests over a socket.
mod collection;
mod growth;
mod large_file;
mod options;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ipfrs_benches::{Asked, Chart, SERVE, Section, Table, check, machine, process, publish, serve};
use tempfile::TempDir;

use crate::options::{Options, USAGE};

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "stores";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("stores", &[SERVE], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(|options| measure(&options)),
        Ok(Asked::Child(_, arguments)) => serve(&arguments),
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

/// A part: its name for `--only`, and the function that measures it.
type Part = (&'static str, fn(&Options, &Path) -> Result<(Vec<Table>, Vec<Chart>)>);

/// Parts, in the order of measurement and report.
const PARTS: [Part; 3] = [
    ("large-file", |options, directory| Ok((vec![large_file::measure(options, directory)?], Vec::new()))),
    ("growth", growth::measure),
    ("collection", |options, directory| Ok((vec![collection::measure(options, directory)?], Vec::new()))),
];

/// Measures all requested parts. A failed part does not discard the figures of the others.
fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    let rounds = options.rounds;
    let circumstances =
        format!("{}. Medians of {rounds} rounds, with the minimum and maximum in parentheses.", machine()?);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.into_iter().filter(|(name, _)| options.arguments.wants(name)) {
        eprintln!("stores: {name}");
        // Use the disk of the build directory: the system's directory for temporary files may be in memory.
        let directory = TempDir::with_prefix_in("stores-", env!("CARGO_TARGET_TMPDIR"))?;
        match measure(options, directory.path()) {
            Ok((tables, charts)) => found.push(Section {
                name: name.to_owned(),
                circumstances: circumstances.clone(),
                goals: Vec::new(),
                tables,
                charts,
            }),
            Err(error) => {
                eprintln!("stores: {name} could not be measured: {error:#}");
                failed.push(name);
            }
        }
    }
    publish(PLACE, &names, found, &options.arguments)?;
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

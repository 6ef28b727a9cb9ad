//! What depends on how much is stored: `cargo bench --bench stores [-- --write docs/PERFORMANCE.md]`.
//!
//! A file of gigabytes and the memory that it takes, a store of a million blocks beside one of a thousand, an index made
//! anew, and a collection beside a reader. The gateway is a process of its own and is asked over a socket.
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

/// The place of the figures, as [`check`] knows it.
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

/// A part: how `--only` calls it, and what measures it.
type Part = (&'static str, fn(&Options, &Path) -> Result<(Vec<Table>, Vec<Chart>)>);

/// In the order in which they are measured and reported.
const PARTS: [Part; 3] = [
    ("large-file", |options, directory| Ok((vec![large_file::measure(options, directory)?], Vec::new()))),
    ("growth", growth::measure),
    ("collection", |options, directory| Ok((vec![collection::measure(options, directory)?], Vec::new()))),
];

/// What goes wrong with one part costs no figures of the others.
fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    let rounds = options.rounds;
    let circumstances =
        format!("{}. Medians of {rounds} rounds, in parentheses the least and the largest.", machine()?);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.into_iter().filter(|(name, _)| options.arguments.wants(name)) {
        eprintln!("stores: {name}");
        // On the disk of the build: the system's directory for temporary files may be in memory.
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

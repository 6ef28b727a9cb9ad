//! Comparison with Kubo: `cargo bench --package ipfrs-benches-kubo [-- --write docs/PERFORMANCE.md]`.
//!
//! Two programs that are built already run as processes: `ipfrs-cli` (`GATEWAY`) and Kubo (`KUBO`). Requests reach both
//! over loopback, with the same client. Every part but `ingest` checks its results, and fails if one is wrong;
//! `ingest` checks that every burst is acknowledged. docs/PERFORMANCE.md explains the figures.
mod history;
mod ingest;
mod listing;
mod migration;
mod mutable;
mod options;
mod pins;
mod rpc;
mod servers;
mod tree;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ipfrs_benches::process::{BECOME, become_program};
use ipfrs_benches::{Asked, Chart, Goal, Section, Table, check, machine, process, publish};

use crate::options::{Options, USAGE};
use crate::servers::Site;

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "kubo";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Results of a part.
#[derive(Default)]
pub(crate) struct Findings {
    tables: Vec<Table>,
    charts: Vec<Chart>,
    goals: Vec<Goal>,
}

/// A part: its name for `--only`, and the function that measures it.
type Part = (&'static str, fn(&Site) -> Result<Findings>);

/// Parts, in the order of measurement and report.
const PARTS: [Part; 5] = [
    ("pins", pins::measure),
    ("listing", listing::measure),
    ("migration", migration::measure),
    ("mutable", mutable::measure),
    ("ingest", ingest::measure),
];

fn main() -> ExitCode {
    let done = match Asked::parse("kubo", &[BECOME], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => Options::read(arguments).and_then(compare),
        Ok(Asked::Child(_, command)) => become_program(&command),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kubo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all requested parts. A failed part does not discard the figures of the others.
fn compare(options: Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    let site = Site::prepare(options)?;
    let kubo = site.kubo.as_ref().map_or_else(|| "without Kubo".to_owned(), |kubo| format!("beside {}", kubo.name()));
    let circumstances = format!("{}, {kubo}. {}", machine()?, site.options.size());
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.into_iter().filter(|(name, _)| site.options.arguments.wants(name)) {
        eprintln!("kubo: {name}");
        match measure(&site) {
            // Skipped, with a message.
            Ok(Findings { tables, .. }) if tables.is_empty() => {}
            Ok(Findings { tables, charts, goals }) => found.push(Section {
                name: name.to_owned(),
                circumstances: circumstances.clone(),
                goals,
                tables,
                charts,
            }),
            Err(error) => {
                eprintln!("kubo: {name}: {error:#}");
                failed.push(name);
            }
        }
    }
    publish(PLACE, &names, found, &site.options.arguments)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

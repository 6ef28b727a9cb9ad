//! gRPC: `cargo bench --bench grpc [-- --write docs/PERFORMANCE.md]`.
//!
//! Compares single blocks with a server that does nothing but respond, and a large file with the same bytes over
//! HTTP/2. Each server runs in its own process. Client and server have one core each if two cores are available.
mod calls;
mod hello;
mod options;
mod transfer;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ipfrs_benches::{Asked, Cores, SERVE, Section, Table, check, machine, process, publish, serve};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::hello::HELLO;
use crate::options::{Options, USAGE};

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "grpc";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("grpc", &[SERVE, HELLO], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(|options| measure(&options)),
        Ok(Asked::Child(HELLO, _)) => hello::serve(),
        Ok(Asked::Child(_, arguments)) => serve(&arguments),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grpc: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A part: its name for `--only`, and the function that measures it.
type Part = (&'static str, fn(&Options, &Cores, &Path) -> Result<Table>);

/// Parts, in the order of measurement and report.
const PARTS: [Part; 2] = [("calls", calls::measure), ("file", transfer::measure)];

/// Measures all requested parts. A failed part does not discard the figures of the others.
fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    // Use the disk of the build directory: the system's directory for temporary files may be in memory.
    let directory = TempDir::with_prefix_in("grpc-", env!("CARGO_TARGET_TMPDIR"))?;
    let cores = Cores::new(true)?;
    let apart = if cores.is_pinned() { " Server and client have a core each." } else { "" };
    let rounds = options.rounds;
    let circumstances =
        format!("{}.{apart} Medians of {rounds} rounds, with the minimum and maximum in parentheses.", machine()?);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.into_iter().filter(|(name, _)| options.arguments.wants(name)) {
        eprintln!("grpc: {name}");
        match measure(options, &cores, directory.path()) {
            Ok(table) => found.push(Section {
                name: name.to_owned(),
                circumstances: circumstances.clone(),
                goals: Vec::new(),
                tables: vec![table],
                charts: Vec::new(),
            }),
            Err(error) => {
                eprintln!("grpc: {name} could not be measured: {error:#}");
                failed.push(name);
            }
        }
    }
    publish(PLACE, &names, found, &options.arguments)?;
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

/// Returns the runtime of the clients, with a single thread because they have one core.
fn client_runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Returns a row that compares our figure with another one. The goal is reached if ours is at least `goal` times the
/// other one.
fn row(label: &str, figures: [String; 2], ratio: f64, goal: f64) -> Vec<String> {
    let [ours, other] = figures;
    let verdict = if ratio >= goal { "reached" } else { "missed" };
    vec![label.to_owned(), ours, other, format!("{ratio:.2}"), format!("{goal:.1}"), verdict.to_owned()]
}

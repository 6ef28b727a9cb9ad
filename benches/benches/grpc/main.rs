//! gRPC: `cargo bench --bench grpc [-- --write docs/PERFORMANCE.md]`.
//!
//! Single blocks beside a server that does nothing but answer, and a large file beside the same bytes over HTTP/2. Each
//! server is a process of its own, and client and server have a core each where there are two.
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

/// The place of the figures, as [`check`] knows it.
const PLACE: &str = "grpc";

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("grpc", &[SERVE, HELLO], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(|options| measure(&options)),
        Ok(Asked::Child(HELLO, _)) => hello::serve(),
        Ok(Asked::Child(_, arguments)) => serve(arguments.into_iter()),
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

/// A part: how `--only` calls it, and what measures it.
type Part = (&'static str, fn(&Options, &Cores, &Path) -> Result<Table>);

/// In the order in which they are measured and reported.
const PARTS: [Part; 2] = [("calls", calls::measure), ("file", transfer::measure)];

/// What goes wrong with one part costs no figures of the others.
fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    // On the disk of the build: the system's directory for temporary files may be in memory.
    let directory = TempDir::with_prefix_in("grpc-", env!("CARGO_TARGET_TMPDIR"))?;
    let cores = Cores::new(true)?;
    let apart = if cores.is_pinned() { " Server and client have a core each." } else { "" };
    let rounds = options.rounds;
    let circumstances =
        format!("{}.{apart} Medians of {rounds} rounds, in parentheses the least and the largest.", machine()?);
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

/// What clients run on: one thread, as they have one core.
fn client_runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// A row about ours and another: a goal is reached where ours is at least `goal` of the other's.
fn row(what: &str, figures: [String; 2], ratio: f64, goal: f64) -> Vec<String> {
    let [ours, other] = figures;
    let verdict = if ratio >= goal { "reached" } else { "missed" };
    vec![what.to_owned(), ours, other, format!("{ratio:.2}"), format!("{goal:.1}"), verdict.to_owned()]
}

//! gRPC: `cargo bench --bench grpc [-- --write docs/PERFORMANCE.md]`.
//!
//! Single blocks beside a server that does nothing but answer, and a large file beside the same bytes over HTTP/2. Each
//! server is a process of its own, and client and server have a core each where there are two.
mod calls;
mod hello;
mod options;
mod transfer;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipfrs_benches::{Asked, Cores, Report, SERVE, check_place, machine, process, serve};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::hello::HELLO;
use crate::options::{Options, USAGE};

/// The place of the figures, as [`check_place`] knows it.
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

fn measure(options: &Options) -> Result<()> {
    process::raise_open_file_limit()?;
    check_place(&options.arguments, PLACE)?;
    // On the disk of the build: the system's directory for temporary files may be in memory.
    let directory = TempDir::with_prefix_in("grpc-", env!("CARGO_TARGET_TMPDIR"))?;
    let cores = Cores::new(true)?;
    eprintln!("grpc: calls");
    let calls = calls::measure(options, &cores, directory.path()).context("calls could not be measured")?;
    eprintln!("grpc: a file");
    let file = transfer::measure(options, &cores, directory.path()).context("a file could not be measured")?;
    let apart = if cores.is_pinned() { " Server and client have a core each." } else { "" };
    let circumstances = format!("{}.{apart} Medians, in parentheses the least and the largest.", machine()?);
    Report { circumstances, tables: vec![calls, file], charts: Vec::new() }.publish(PLACE, &options.arguments)
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

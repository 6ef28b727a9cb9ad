//! Retrieval over HTTP: `cargo bench --bench retrieval [-- --write docs/PERFORMANCE.md]`.
//!
//! A gateway with an empty store downloads content from another one, over a simulated network, and relays it to the
//! client. Beside it, the client downloads the same bytes from nginx over the same network.
mod directory;
mod files;
mod network;
mod options;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ipfrs_benches::process::{BECOME, become_program, raise_open_file_limit, version};
use ipfrs_benches::{Asked, Chart, Cores, Goal, SERVE, Section, Table, check, machine, publish, serve};

use crate::network::Servers;
use crate::options::{Options, USAGE};

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "retrieval";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("retrieval", &[SERVE, BECOME], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(|options| measure(&options)),
        Ok(Asked::Child(BECOME, command)) => become_program(&command),
        Ok(Asked::Child(_, arguments)) => serve(&arguments),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("retrieval: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Figures of a part.
struct Figures {
    goals: Vec<Goal>,
    tables: Vec<Table>,
    charts: Vec<Chart>,
}

/// A part: its name for `--only`, and the function that measures it.
type Part = (&'static str, fn(&Options, &Servers) -> Result<Figures>);

/// Parts, in the order of measurement and report.
const PARTS: [Part; 2] = [("files", files::measure), ("directory", directory::measure)];

/// Measures all requested parts. A failed part does not discard the figures of the others.
fn measure(options: &Options) -> Result<()> {
    raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    let Some(nginx) = version("nginx", "-v", "nginx-light", options.arguments.require_peers)? else { return Ok(()) };
    let cores = Cores::new(true)?;
    let servers = Servers::prepare(options, &cores)?;
    let apart = if cores.is_pinned() { " (one core for the servers, another for client and network)" } else { "" };
    let (nginx, rounds) = (nginx.trim_start_matches("nginx version: "), options.rounds);
    let circumstances = format!(
        "{}{apart}, {nginx}. Medians of {rounds} rounds, with the minimum and maximum in parentheses.",
        machine()?
    );
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, measure) in PARTS.into_iter().filter(|(name, _)| options.arguments.wants(name)) {
        match measure(options, &servers) {
            Ok(Figures { goals, tables, charts }) => {
                let (name, circumstances) = (name.to_owned(), circumstances.clone());
                found.push(Section { name, circumstances, goals, tables, charts });
            }
            Err(error) => {
                eprintln!("retrieval: {name} could not be measured: {error:#}");
                failed.push(name);
            }
        }
    }
    publish(PLACE, &names, found, &options.arguments)?;
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

//! The gateway beside other servers: `cargo bench --bench peers [-- --write docs/PERFORMANCE.md]`.
//!
//! Every server is a process of its own with one worker, serves the same bytes from the page cache over loopback, and is
//! measured by the same client, in turns: a disturbance of the machine hits all alike. docs/PERFORMANCE.md says what
//! each figure means.
mod batch;
mod connections;
mod far;
mod figures;
mod h2;
mod large;
mod memory;
mod nginx;
mod options;
mod ranges;
mod report;
mod site;
mod small;
mod tensors;
mod upload;
mod wrk;

use std::env;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ipfrs_benches::{Asked, SERVE, check_place, process, serve};

use crate::figures::Measurement;
use crate::options::{BECOME, Options, USAGE};
use crate::site::Site;

/// As in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("peers", &[SERVE, BECOME], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(compare),
        Ok(Asked::Child(BECOME, command)) => process::become_program(&command),
        Ok(Asked::Child(_, arguments)) => serve(arguments.into_iter()),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: Options) -> Result<()> {
    process::raise_open_file_limit()?;
    check_place(&options.arguments, report::PLACE)?;
    eprintln!("peers: preparing a file of {} MiB", options.file_mib);
    let site = Site::prepare(options)?;
    let mut measurements: Vec<Box<dyn Measurement>> = vec![
        Box::new(large::LargeGets::new(&site)),
        Box::new(ranges::Ranges::new(&site)),
        Box::new(tensors::Tensors::prepare(&site)?),
        Box::new(small::SmallGets::new(&site)),
        Box::new(h2::Http2::new(&site)),
        Box::new(batch::Batches::prepare(&site)?),
        Box::new(far::FarBatches::prepare(&site)?),
        Box::new(connections::Connections::prepare(&site)?),
        Box::new(upload::Uploads::new()),
        Box::new(memory::MemoryUse::new(&site)),
    ];
    for round in 0..site.options.rounds {
        for measurement in &mut measurements {
            eprintln!("peers: round {} of {}: {}", round + 1, site.options.rounds, measurement.name());
            let done = measurement.round(&site, round);
            done.with_context(|| format!("{} could not be measured", measurement.name()))?;
        }
    }
    report::render(&site, &measurements)?.publish(report::PLACE, &site.options.arguments)
}

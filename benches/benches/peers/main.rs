//! Comparison of the gateway with other servers: `cargo bench --bench peers [-- --write docs/PERFORMANCE.md]`.
//!
//! Every server runs in its own process with one worker (except where content is added) and serves the same bytes
//! from the page cache over loopback. The same client measures the servers in turns, so that a disturbance of the
//! machine affects all of them. docs/PERFORMANCE.md explains each figure.
mod batch;
mod cold;
mod compressed;
mod connections;
mod far;
mod figures;
mod h2;
mod hashes;
mod kubo;
mod large;
mod many;
mod memory;
mod options;
mod overload;
mod ranges;
mod site;
mod small;
mod tensors;
mod tls;
mod trace;
mod upload;
mod wrk;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use ipfrs_benches::process::BECOME;
use ipfrs_benches::{Asked, SERVE, Section, check, process, publish, serve};

use crate::figures::Measurement;
use crate::hashes::HASH;
use crate::options::{Options, USAGE};
use crate::site::Site;

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "figures";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = match Asked::parse("peers", &[SERVE, BECOME, HASH], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => options::options(arguments).and_then(compare),
        Ok(Asked::Child(BECOME, command)) => process::become_program(&command),
        Ok(Asked::Child(HASH, _)) => hashes::hash(),
        Ok(Asked::Child(_, arguments)) => serve(&arguments),
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

/// A part of the comparison: its name for `--only`, and the function that prepares it.
type Part = (&'static str, fn(&Site) -> Result<Box<dyn Measurement>>);

/// Parts, in the order of measurement in each round and of the report.
const PARTS: [Part; 19] = [
    ("large", |site| Ok(Box::new(large::LargeGets::new(site)))),
    ("ranges", |site| Ok(Box::new(ranges::Ranges::new(site)))),
    ("tensors", |site| Ok(Box::new(tensors::Tensors::prepare(site)?))),
    ("small", |site| Ok(Box::new(small::SmallGets::new(site)))),
    ("many", |site| Ok(Box::new(many::ManyFiles::prepare(site)?))),
    ("trace", |site| Ok(Box::new(trace::Trace::prepare(site)?))),
    ("http2", |site| Ok(Box::new(h2::Http2::new(site)))),
    ("tls", |site| Ok(Box::new(tls::Tls::prepare(site)?))),
    ("batches", |site| Ok(Box::new(batch::Batches::prepare(site)?))),
    ("far", |site| Ok(Box::new(far::FarBatches::prepare(site)?))),
    ("connections", |site| Ok(Box::new(connections::Connections::prepare(site)?))),
    ("overload", |site| Ok(Box::new(overload::Overload::prepare(site)?))),
    ("cold", |site| Ok(Box::new(cold::Cold::prepare(site)?))),
    ("compression", |site| Ok(Box::new(compressed::Compressed::prepare(site)?))),
    ("hashes", |_| Ok(Box::new(hashes::Hashes::new()?))),
    ("uploads", |_| Ok(Box::new(upload::Uploads::new()))),
    ("kubo-add", |site| Ok(Box::new(kubo::adds::KuboAdds::new(site)))),
    ("kubo-reads", |site| Ok(Box::new(kubo::reads::KuboReads::prepare(site)?))),
    ("memory", |site| Ok(Box::new(memory::MemoryUse::new(site)))),
];

/// Measures all requested parts. A failed part does not discard the figures of the others.
fn compare(options: Options) -> Result<()> {
    process::raise_open_file_limit()?;
    let names = PARTS.map(|(name, _)| name);
    check(&options.arguments, PLACE, &names)?;
    eprintln!("peers: preparing a file of {} MiB", options.file_mib);
    let site = Site::prepare(options)?;
    let mut failed = Vec::new();
    let mut fail = |name: &'static str, error: anyhow::Error| {
        eprintln!("peers: {name} could not be measured: {error:#}");
        failed.push(name);
    };
    let mut measurements: Vec<(&'static str, Box<dyn Measurement>)> = Vec::new();
    for (name, prepare) in PARTS.into_iter().filter(|(name, _)| site.options.arguments.wants(name)) {
        match prepare(&site) {
            Ok(measurement) => measurements.push((name, measurement)),
            Err(error) => fail(name, error),
        }
    }
    for round in 0..site.options.rounds {
        measurements.retain_mut(|(name, measurement)| {
            eprintln!("peers: round {} of {}: {name}", round + 1, site.options.rounds);
            let done = measurement.round(&site, round).and(site.cores.for_clients());
            done.map_err(|error| fail(name, error)).is_ok()
        });
    }
    let circumstances = site.circumstances()?;
    let found = measurements.iter().map(|(name, measurement)| Section {
        name: (*name).to_owned(),
        circumstances: circumstances.clone(),
        goals: measurement.goals(),
        tables: measurement.tables(),
        charts: measurement.charts(),
    });
    publish(PLACE, &names, found.collect(), &site.options.arguments)?;
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

//! `ipfrs-cli bench ingest`, and `files/write` of both programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Bound, Goal, Series, Table, settle};
use serde::Deserialize;

use crate::Findings;
use crate::servers::{Server, Site, output};

/// Sizes of messages, in bytes.
const SIZES: [u64; 4] = [1, 1 << 10, 1 << 20, 10 << 20];
/// Sizes for `files/write`.
const WRITE_SIZES: [u64; 2] = [1, 1 << 10];
const STORES: [&str; 3] = ["memory", "filesystem", "ipfs"];
/// Number of bursts in flight. With one, each waits for the disk. With many, the daemon makes several durable at once.
const IN_FLIGHT: [u64; 2] = [1, 100];
/// Size of the messages with many bursts in flight, in bytes.
const IN_FLIGHT_SIZE: u64 = SIZES[0];
/// Minimum ratio of the store `ipfs` to `filesystem`, at each size, with one burst in flight.
const OF_FILESYSTEM: Bound = Bound::AtLeast(0.9);
/// Minimum ratio of the store `ipfs` to `memory`, at 1 byte, with many bursts in flight: `memory` waits for no disk.
const OF_MEMORY: Bound = Bound::AtLeast(0.5);
/// Minimum ratio of `files/write` to that of Kubo.
const OF_KUBO: Bound = Bound::AtLeast(5.0);

/// Output of `bench ingest`.
#[derive(Deserialize)]
struct Report {
    results: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    message_bytes: u64,
    store: String,
    ops_per_second: f64,
}

/// A store, or `files/write` of a server, with messages of one size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    message_bytes: u64,
    in_flight: u64,
    store: String,
}

impl Load {
    fn new(message_bytes: u64, in_flight: u64, store: impl Into<String>) -> Self {
        Self { message_bytes, in_flight, store: store.into() }
    }
}

/// Bursts per second.
type Rates = BTreeMap<Load, Series>;

pub(crate) fn measure(site: &Site) -> Result<Findings> {
    let mut rates = Rates::new();
    for round in 0..site.options.rounds {
        eprintln!("kubo: ingest: round {} of {}", round + 1, site.options.rounds);
        for server in site.servers() {
            let repo = site.scratch("ingest");
            let daemon = server.create(&repo)?;
            let rpc = format!("http://{}", daemon.address);
            settle();
            if server.is_ours() {
                for (in_flight, sizes) in IN_FLIGHT.into_iter().zip([&SIZES[..], &[IN_FLIGHT_SIZE]]) {
                    let options = ["--stores", &STORES.join(","), "--in-flight", &in_flight.to_string()];
                    for Measured { message_bytes, store, ops_per_second } in bench(site, &repo, &rpc, sizes, &options)?
                    {
                        let load = Load::new(message_bytes, in_flight, store);
                        rates.entry(load).or_default().push(ops_per_second);
                    }
                }
            }
            write_files(site, server, &rpc, &mut rates)?;
            drop(daemon);
            fs::remove_dir_all(&repo)?;
        }
    }
    Ok(Findings { tables: tables(site, &rates)?, charts: Vec::new(), goals: goals(site, &rates)? })
}

/// Measures `files/write` of a server. The measuring program also needs a WebSocket, for which our daemon is started
/// if the server is Kubo.
fn write_files(site: &Site, server: Server<'_>, rpc: &str, rates: &mut Rates) -> Result<()> {
    let repo = site.scratch("ingest-socket");
    let socket = Server::Ours(&site.ours).create(&repo)?;
    let url = format!("http://{}", socket.address);
    settle();
    let found = bench(site, &repo, &url, &WRITE_SIZES, &["--stores", "memory", "--rpc", rpc])?;
    let written: Vec<_> = found.into_iter().filter(|measured| measured.store.starts_with("files/write")).collect();
    ensure!(written.len() == WRITE_SIZES.len(), "{} sizes of files/write were measured", written.len());
    for measured in written {
        let load = Load::new(measured.message_bytes, IN_FLIGHT[0], write_name(server));
        rates.entry(load).or_default().push(measured.ops_per_second);
    }
    drop(socket);
    fs::remove_dir_all(&repo)?;
    Ok(())
}

/// Runs `bench ingest`, and checks that it measured every size.
fn bench(site: &Site, repo: &Path, url: &str, sizes: &[u64], options: &[&str]) -> Result<Vec<Measured>> {
    let sizes_text: Vec<_> = sizes.iter().map(u64::to_string).collect();
    let mut command = site.ours.command(repo);
    command.args(["bench", "ingest", url, "--sizes", &sizes_text.join(",")]);
    command.arg("--duration").arg(format!("{}s", site.options.seconds)).args(options);
    let Report { results } = serde_json::from_slice(&output(&mut command)?).context("bench ingest prints no report")?;
    for size in sizes {
        let of_size = results.iter().filter(|measured| measured.message_bytes == *size);
        ensure!(of_size.clone().count() > 0, "messages of {size} bytes were not measured");
        ensure!(of_size.clone().all(|measured| measured.ops_per_second > 0.0), "nothing of {size} bytes was stored");
    }
    Ok(results)
}

fn write_name(server: Server<'_>) -> String {
    format!("files/write, {}", server.name())
}

/// Returns the rates of all rounds.
fn series<'a>(rates: &'a Rates, load: &Load) -> Result<&'a Series> {
    rates.get(load).with_context(|| format!("{load:?} was not measured"))
}

fn tables(site: &Site, rates: &Rates) -> Result<Vec<Table>> {
    let mut loads = Vec::new();
    for size in SIZES {
        loads.extend(STORES.map(|store| Load::new(size, IN_FLIGHT[0], store)));
        if WRITE_SIZES.contains(&size) {
            loads.extend(site.servers().map(|server| Load::new(size, IN_FLIGHT[0], write_name(server))));
        }
    }
    loads.extend(STORES.map(|store| Load::new(IN_FLIGHT_SIZE, IN_FLIGHT[1], store)));
    let mut rows = Vec::new();
    for load in loads {
        let found = series(rates, &load)?;
        let mut row =
            vec![size_name(load.message_bytes), load.in_flight.to_string(), load.store.clone(), found.show(1)];
        for other in ["memory", "filesystem"] {
            let other = series(rates, &Load { store: other.to_owned(), ..load.clone() })?;
            row.push(format!("{:.2}", found.median() / other.median()));
        }
        rows.push(row);
    }
    let columns = ["message", "bursts in flight", "store", "bursts of 10/s", "of memory", "of filesystem"];
    Ok(vec![Table::new("Ingest: bursts of messages that are acknowledged", columns, rows)])
}

fn goals(site: &Site, rates: &Rates) -> Result<Vec<Goal>> {
    let mut goals = Vec::new();
    let mut goal = |load: Load, other: &str, bound: Bound| -> Result<()> {
        let other = Load { store: other.to_owned(), ..load.clone() };
        let figure = series(rates, &load)?.median() / series(rates, &other)?.median();
        let Load { message_bytes, in_flight, store } = load;
        let what = format!("{} in bursts, {in_flight} in flight: {store} / {}", size_name(message_bytes), other.store);
        goals.push(Goal { what, figure, bound });
        Ok(())
    };
    for size in SIZES {
        goal(Load::new(size, IN_FLIGHT[0], "ipfs"), "filesystem", OF_FILESYSTEM)?;
    }
    goal(Load::new(IN_FLIGHT_SIZE, IN_FLIGHT[1], "ipfs"), "memory", OF_MEMORY)?;
    if let Some(kubo) = &site.kubo {
        let [ours, theirs] = [Server::Ours(&site.ours), Server::Kubo(kubo)].map(write_name);
        for size in WRITE_SIZES {
            goal(Load::new(size, IN_FLIGHT[0], ours.clone()), &theirs, OF_KUBO)?;
        }
    }
    Ok(goals)
}

fn size_name(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

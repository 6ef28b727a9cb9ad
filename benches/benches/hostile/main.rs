//! Attacks on the gateway: `cargo bench --bench hostile [-- --write docs/SECURITY.md]`.
//!
//! Each attack meets a new gateway process with the default configuration. Beside it, a [`probe`] requests a small file
//! again and again, and samples the memory of the gateway. An attack fails if the gateway does not react as it must, if
//! a request of the probe fails, or if the gateway does not respond afterwards. docs/SECURITY.md explains the figures.
mod connections;
mod frames;
mod http2;
mod options;
mod payloads;
mod probe;
mod proxies;
mod requests;
mod site;
mod websocket;

use std::env;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::process::{BECOME, become_program};
use ipfrs_benches::{Asked, Bound, Goal, Latencies, SERVE, Section, Table, check, machine, process, publish, serve};

use crate::options::{Options, USAGE};
use crate::probe::{Probe, Seen};
use crate::site::{Site, Target};

/// Marker of the figures in the document, for [`check`].
const PLACE: &str = "hostile";

/// Same allocator as in the daemon.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An attack.
struct Attack {
    /// Name of its part, for `--only`.
    part: &'static str,
    /// Behaviour of the clients.
    name: &'static str,
    /// Attacks, and returns how the gateway reacted.
    run: fn(&Target) -> Result<String>,
    /// Goal: how many times the p99 of the probe may be that without the attack.
    max_slowdown: Option<f64>,
}

/// Parts, in the order of the report.
const PARTS: [&str; 5] = ["http2", "connections", "requests", "websocket", "proxies"];

const fn attack(part: &'static str, name: &'static str, run: fn(&Target) -> Result<String>) -> Attack {
    Attack { part, name, run, max_slowdown: None }
}

impl Attack {
    const fn slows_at_most(mut self, times: f64) -> Self {
        self.max_slowdown = Some(times);
        self
    }
}

/// All attacks, in the order of the report.
const ATTACKS: [Attack; 31] = [
    attack("http2", "rapid reset", http2::rapid_reset),
    attack("http2", "resets that are provoked by window updates of 0", http2::provoked_resets),
    attack("http2", "CONTINUATION without end", http2::continuation),
    attack("http2", "empty CONTINUATION without end", http2::empty_continuation),
    attack("http2", "empty DATA without end", http2::empty_data),
    attack("http2", "SETTINGS without end", http2::settings),
    attack("http2", "PING without end", http2::ping),
    attack("http2", "PING without end, answers unread", http2::ping_unread),
    attack("http2", "PRIORITY without end", http2::priority),
    attack("http2", "window updates of 1 without end", http2::window_updates),
    attack("http2", "unknown frames without end", http2::unknown_frames),
    attack("http2", "a header of 4 KB, repeated by HPACK", http2::header_bomb),
    attack("http2", "large files on 100 streams of each connection, unread", http2::unread_streams),
    attack("connections", "clients read 64 bytes/s", connections::slow_readers),
    attack("connections", "clients send 1 byte/s to `add`", connections::slow_senders),
    attack(
        "connections",
        "clients read 64 bytes/s, and as many send 1 byte/s to `add`",
        connections::slow_readers_and_senders,
    )
    .slows_at_most(2.0),
    attack("connections", "silent connections", connections::silent),
    attack("connections", "heads of 1 byte/s", connections::slow_heads),
    attack("connections", "pipelined requests, unread", connections::unread_pipelines),
    attack("requests", "GraphQL: aliases, fragments, depth, directives, variables", requests::graphql),
    attack("requests", "`add` of 100,000 parts", requests::many_parts),
    attack("requests", "`add`: headers of a part without end", requests::endless_part_head),
    attack("requests", "encoded bodies", requests::encoded_bodies),
    attack("requests", "gRPC: gzip of 200 MiB of zeros", requests::grpc_bomb),
    attack("requests", "`dag/import`: lengths, varints and headers without end", requests::broken_cars),
    attack(
        "requests",
        "TAR, CAR, `refs` and `dag/stat` of a tree that repeats its branches 2^40 times, unread",
        requests::repeated_trees,
    ),
    attack("requests", "batches of a block of 2 MB in JSON, unread", requests::unread_batches),
    attack("websocket", "fragments without end", websocket::fragments),
    attack("websocket", "pings and empty frames without end", websocket::control_frames),
    attack("websocket", "subscriptions, unread, during events", websocket::unread_events),
    attack("proxies", "ambiguous requests by way of nginx and HAProxy", proxies::smuggling),
];

fn main() -> ExitCode {
    let done = match Asked::parse("hostile", &[SERVE, BECOME], USAGE, env::args().skip(1)) {
        Ok(Asked::Measure(arguments)) => Options::read(arguments).and_then(attack_all),
        Ok(Asked::Child(BECOME, command)) => become_program(&command),
        Ok(Asked::Child(_, arguments)) => serve(&arguments),
        Ok(Asked::Nothing) => Ok(()),
        Err(error) => Err(error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hostile: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all requested attacks. A failed one does not discard the figures of the others.
fn attack_all(options: Options) -> Result<()> {
    process::raise_open_file_limit()?;
    check(&options.arguments, PLACE, &PARTS)?;
    let site = Site::prepare(options)?;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for part in PARTS.into_iter().filter(|part| site.options.arguments.wants(part)) {
        let (mut rows, mut goals) = (vec![], vec![]);
        for attack in ATTACKS.iter().filter(|attack| attack.part == part) {
            eprintln!("hostile: {part}: {}", attack.name);
            match row(&site, attack) {
                Ok((row, reached)) => {
                    rows.push(row);
                    goals.extend(reached);
                }
                Err(error) => {
                    eprintln!("hostile: {part}: {}: {error:#}", attack.name);
                    failed.push(attack.name);
                }
            }
        }
        let columns = ["attack", "outcome", "memory, MB", "probe, kept: p99 ms", "new: p99 ms"];
        found.push(Section {
            name: part.to_owned(),
            circumstances: format!("{}. {}", machine()?, site.options.size()),
            goals,
            tables: vec![Table::new(format!("Attacks: {part}"), columns, rows)],
            charts: Vec::new(),
        });
    }
    publish(PLACE, &PARTS, found, &site.options.arguments)?;
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}

/// Runs one attack beside a probe. Returns its row of the table, and its goals in a full run.
fn row(site: &Site, attack: &Attack) -> Result<(Vec<String>, Vec<Goal>)> {
    let target = site.target()?;
    let goal = attack.max_slowdown.filter(|_| site.options.arguments.is_full);
    let alone = goal.map(|_| alone(&target)).transpose()?;
    let probe = Probe::start(&target);
    let outcome = (attack.run)(&target);
    let seen = probe.end().context("the probe beside it failed")?;
    let outcome = outcome?;
    target.check().context("the gateway does not respond afterwards")?;
    let megabytes = seen.anonymous_bytes as f64 / 1e6;
    let p99 = |latencies: &Latencies| format!("{:.1}", latencies.quantile(0.99));
    let row = vec![attack.name.to_owned(), outcome, format!("{megabytes:.0}"), p99(&seen.kept), p99(&seen.new)];
    let slowdown = |connection: &str, attacked: &Latencies, alone: &Latencies, times: f64| Goal {
        what: format!("{}: p99 of the probe on {connection}, divided by that before the attack", attack.name),
        figure: attacked.quantile(0.99) / alone.quantile(0.99),
        bound: Bound::AtMost(times),
    };
    let goals = goal.zip(alone).map(|(times, alone)| {
        [
            slowdown("one connection", &seen.kept, &alone.kept, times),
            slowdown("new connections", &seen.new, &alone.new, times),
        ]
    });
    Ok((row, goals.into_iter().flatten().collect()))
}

/// Returns what a probe observes without an attack.
fn alone(target: &Target) -> Result<Seen> {
    let probe = Probe::start(target);
    thread::sleep(target.time);
    let seen = probe.end().context("the probe alone failed")?;
    ensure!(seen.kept.quantile(0.99) > 0.0 && seen.new.quantile(0.99) > 0.0, "the probe alone has no response");
    Ok(seen)
}

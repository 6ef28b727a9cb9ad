//! Pins: the cost of each command at different numbers of pins, and of an update that changes little.

use std::collections::HashSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ipfrs_benches::{
    Axis, Bound, CarFile, Chart, Client, Goal, Latencies, Line, Point, Table, add_directory, import_unpinned_car,
    raw_cid,
};
use serde::Deserialize;
use serde_json::Value;

use crate::Findings;
use crate::rpc::{Rpc, values};
use crate::servers::{Daemon, Server, Site};

/// Numbers of pins.
const COUNTS: [u64; 3] = [1_000, 100_000, 1_000_000];
/// Size of a pinned block, in bytes.
const BLOCK_BYTES: usize = 32;
/// Number of blocks in one CAR.
const CAR_BLOCKS: u64 = 50_000;
/// Number of pins that one request creates.
const BATCH: usize = 100;
/// Number of connections that create pins at the same time.
const CONNECTIONS: usize = 8;
/// Number of pins that are looked up, and of those that are removed.
const SAMPLES: usize = 200;
/// Maximum ratio of the costs at the largest and at the smallest number of pins.
const GROWTH: Bound = Bound::AtMost(3.0);

/// A line of `pin/ls` that is streamed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    cid: String,
}

/// Figures of one server with one number of pins.
struct Row {
    pins: u64,
    server: String,
    is_ours: bool,
    /// Microseconds for each pin, on one connection.
    add: f64,
    /// The same on all connections.
    add_together: f64,
    remove: Latencies,
    start: Duration,
    first_line: Duration,
    lines_per_second: f64,
    /// `pin/ls CID`.
    find: Latencies,
    /// The same with `type=recursive`.
    find_recursive: Latencies,
    /// `pin/ls CID` of a block that is not pinned.
    find_absent: Duration,
    /// Peak of a daemon that has started and listed all pins.
    peak_bytes: u64,
}

pub(crate) fn measure(site: &Site) -> Result<Findings> {
    let (mut rows, mut updates, mut roots) = (Vec::new(), Vec::new(), Vec::new());
    for server in site.servers() {
        let most = if server.is_ours() { site.options.pins } else { site.options.kubo_pins.min(site.options.pins) };
        for count in COUNTS.into_iter().filter(|count| *count <= most) {
            eprintln!("kubo: pins: {count} of {}", server.name());
            rows.push(row(site, server, count).with_context(|| format!("{count} pins of {}", server.name()))?);
        }
        let (figures, trees) = update(site, server).with_context(|| format!("pin/update of {}", server.name()))?;
        updates.push(figures);
        roots.push(trees);
    }
    ensure!(roots.iter().all(|trees| *trees == roots[0]), "the trees have different content IDs: {roots:?}");
    Ok(Findings { tables: tables(&rows, updates), charts: vec![chart(&rows)], goals: goals(&rows) })
}

fn row(site: &Site, server: Server<'_>, count: u64) -> Result<Row> {
    let repo = site.scratch("pins");
    let daemon = server.create(&repo)?;
    let mut rpc = daemon.rpc()?;
    // Kubo pins an empty directory when it creates a repo.
    let own: Vec<Listed> = rpc.lines("pin/ls?type=recursive&stream=true")?;
    store_blocks(site, &daemon, count + 1)?;
    let cids = (0..count).map(|seed| raw_cid(seed, BLOCK_BYTES)).collect::<Result<Vec<_>>>()?;

    let (first, second) = cids.split_at(cids.len() / 2);
    // This half also warms up the daemon for the other one, even if there are few pins.
    let start = Instant::now();
    let shared = &daemon;
    thread::scope(|scope| -> Result<()> {
        let parts = first.chunks(first.len().div_ceil(CONNECTIONS));
        let adding: Vec<_> = parts.map(|part| scope.spawn(move || add(&mut shared.rpc()?, part))).collect();
        adding.into_iter().try_for_each(|adds| adds.join().map_err(|_| anyhow!("a thread that pins has failed"))?)
    })?;
    let together = start.elapsed();
    let start = Instant::now();
    add(&mut rpc, second)?;
    let alone = start.elapsed();

    let listed = rpc.stream("pin/ls?type=recursive&stream=true")?;
    let lines = check_list(&listed.body, cids.iter().map(String::as_str), own.len())?;

    let step = cids.len() / SAMPLES;
    let sample = || cids.iter().step_by(step.max(1)).take(SAMPLES);
    let (mut find, mut find_recursive, mut remove) = (Latencies::default(), Latencies::default(), Latencies::default());
    for cid in sample() {
        find.time(|| look_up(&mut rpc, &format!("pin/ls?arg={cid}"), cid))?;
        find_recursive.time(|| look_up(&mut rpc, &format!("pin/ls?arg={cid}&type=recursive"), cid))?;
    }
    let find_absent = look_up_absent(&mut rpc, &format!("pin/ls?arg={}", raw_cid(count, BLOCK_BYTES)?))?;
    for cid in sample() {
        remove.time(|| rpc.call(&format!("pin/rm?arg={cid}"), None).map(drop))?;
    }

    drop((rpc, daemon));
    let daemon = server.start(&repo)?;
    let removed: HashSet<&str> = sample().map(String::as_str).collect();
    let left = daemon.rpc()?.call("pin/ls?type=recursive&stream=true", None)?;
    let peak_bytes = daemon.memory()?.peak_resident;
    let expected = cids.iter().map(String::as_str).filter(|cid| !removed.contains(cid));
    check_list(&left, expected, own.len()).context("after the start")?;
    let start = daemon.start;
    drop(daemon);
    fs::remove_dir_all(&repo)?;
    let each = |time: Duration, pins: &[String]| time.as_secs_f64() * 1e6 / pins.len() as f64;
    Ok(Row {
        pins: count,
        server: server.name(),
        is_ours: server.is_ours(),
        add: each(alone, second),
        add_together: each(together, first),
        remove,
        start,
        first_line: listed.first,
        lines_per_second: lines as f64 / listed.total.as_secs_f64(),
        find,
        find_recursive,
        find_absent,
        peak_bytes,
    })
}

/// Stores the blocks of the seeds below `count`.
fn store_blocks(site: &Site, daemon: &Daemon, count: u64) -> Result<()> {
    let path = site.scratch("pins.car");
    for begin in (0..count).step_by(CAR_BLOCKS as usize) {
        let car = CarFile::write(&path, begin..count.min(begin + CAR_BLOCKS), BLOCK_BYTES, CAR_BLOCKS as usize)?;
        import_unpinned_car(&mut Client::connect(daemon.address)?, &car)?;
    }
    fs::remove_file(&path)?;
    Ok(())
}

fn add(rpc: &mut Rpc, cids: &[String]) -> Result<()> {
    for batch in cids.chunks(BATCH) {
        let arguments: Vec<_> = batch.iter().map(|cid| format!("arg={cid}")).collect();
        rpc.call(&format!("pin/add?{}", arguments.join("&")), None)?;
    }
    Ok(())
}

/// Calls `pin/ls` for one pin, which must be there.
fn look_up(rpc: &mut Rpc, command: &str, cid: &str) -> Result<()> {
    let found: Value = rpc.json(command)?;
    ensure!(found["Keys"][cid]["Type"] == "recursive", "{command} responds with {found}");
    Ok(())
}

/// Calls `pin/ls` for content without such a pin. Returns the time until the error.
fn look_up_absent(rpc: &mut Rpc, command: &str) -> Result<Duration> {
    let start = Instant::now();
    let outcome = rpc.attempt(command, None)?;
    let time = start.elapsed();
    match outcome {
        Err(message) if message.contains("is not pinned") => Ok(time),
        Err(message) => bail!("{command}: {message}"),
        Ok(_) => bail!("{command} finds a pin"),
    }
}

/// Checks that a list has exactly the pins `expected`, besides the `own` ones of a new repo. Returns their number.
fn check_list<'a>(body: &[u8], expected: impl Iterator<Item = &'a str>, own: usize) -> Result<usize> {
    let listed: Vec<Listed> = values(body)?;
    let found: HashSet<&str> = listed.iter().map(|pin| pin.cid.as_str()).collect();
    ensure!(
        found.len() == listed.len(),
        "{} of {} listed pins are listed twice",
        listed.len() - found.len(),
        found.len()
    );
    let mut count = own;
    for cid in expected {
        ensure!(found.contains(cid), "the pin of {cid} is not listed");
        count += 1;
    }
    ensure!(count == found.len(), "{} pins are listed in place of {count}", found.len());
    Ok(count)
}

/// Measures `pin/add` of a tree, and `pin/update` from it to one that differs in a file. Returns a row of the table and
/// the content IDs of both trees.
fn update(site: &Site, server: Server<'_>) -> Result<(Vec<String>, [String; 2])> {
    let repo = site.scratch("update");
    let daemon = server.create(&repo)?;
    let files = site.options.update_files;
    let tree = |changed: Option<usize>| -> Result<String> {
        let content = |file: usize| format!("{file:015}{}", u8::from(changed == Some(file))).into_bytes();
        let added =
            add_directory(&mut Client::connect(daemon.address)?, files, 16, |file| format!("{file:06}"), content);
        added?.pop().context("no directory was added")
    };
    let (old, new) = (tree(None)?, tree(Some(files / 2))?);
    let mut rpc = daemon.rpc()?;
    for root in [&old, &new] {
        rpc.call(&format!("pin/rm?arg={root}"), None)?;
    }
    let mut seconds = Vec::new();
    for command in [format!("pin/add?arg={old}"), format!("pin/update?arg={old}&arg={new}")] {
        let start = Instant::now();
        rpc.call(&command, None)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    look_up(&mut rpc, &format!("pin/ls?arg={new}&type=recursive"), &new)?;
    look_up_absent(&mut rpc, &format!("pin/ls?arg={old}&type=recursive")).context("after the update")?;
    drop((rpc, daemon));
    fs::remove_dir_all(&repo)?;
    let milliseconds = seconds.iter().map(|seconds| format!("{:.1}", seconds * 1e3));
    let figures = [server.name(), files.to_string()].into_iter().chain(milliseconds).collect();
    Ok((figures, [old, new]))
}

fn tables(rows: &[Row], updates: Vec<Vec<String>>) -> Vec<Table> {
    let milliseconds = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let latency = |times: &Latencies| format!("{:.2} ({:.1})", times.quantile(0.5), times.quantile(0.99));
    let changes = rows.iter().map(|row| {
        vec![
            row.pins.to_string(),
            row.server.clone(),
            format!("{:.0}", row.add),
            format!("{:.0}", row.add_together),
            latency(&row.remove),
            format!("{:.2}", row.start.as_secs_f64()),
        ]
    });
    let reads = rows.iter().map(|row| {
        vec![
            row.pins.to_string(),
            row.server.clone(),
            milliseconds(row.first_line),
            format!("{:.0}", row.lines_per_second),
            latency(&row.find),
            latency(&row.find_recursive),
            milliseconds(row.find_absent),
            format!("{:.0}", row.peak_bytes as f64 / f64::from(1 << 20)),
        ]
    });
    let in_batches = format!("add in batches of {BATCH}, µs each");
    let together = format!("on {CONNECTIONS} connections");
    vec![
        Table::new(
            "Pins: changes and start",
            ["pins", "server", &in_batches, &together, "rm of one, ms p50 (p99)", "start of the daemon, s"],
            changes,
        ),
        Table::new(
            "Pins: streamed list and look-ups",
            [
                "pins",
                "server",
                "ls: first line, ms",
                "lines/s",
                "ls CID, ms p50 (p99)",
                "with type=recursive",
                "ls of a CID without a pin, ms",
                "peak memory of a start and one ls, MiB",
            ],
            reads,
        ),
        Table::new(
            "Pins: a tree, and its update to a tree that differs in one file",
            ["server", "files", "pin/add, ms", "pin/update, ms"],
            updates,
        ),
    ]
}

fn chart(rows: &[Row]) -> Chart {
    let line = |name: &str, color: usize, is_ours: bool, figure: fn(&Row) -> f64| Line {
        name: name.to_owned(),
        color,
        is_dashed: !is_ours,
        points: rows
            .iter()
            .filter(|row| row.is_ours == is_ours)
            .map(|row| Point::one(row.pins as f64, figure(row)))
            .collect(),
    };
    let add = |row: &Row| row.add / 1e3;
    let find = |row: &Row| row.find.quantile(0.5);
    let lines = vec![
        line("ipfrs: add", 0, true, add),
        line("ipfrs: look-up", 1, true, find),
        line("Kubo: add", 0, false, add),
        line("Kubo: look-up", 1, false, find),
    ];
    Chart {
        name: "kubo-pins".to_owned(),
        title: "Time to add and to look up one pin".to_owned(),
        x: Axis::logarithmic("pins"),
        y: Axis::logarithmic("ms"),
        // Kubo has no points where it is not installed.
        lines: lines.into_iter().filter(|line| line.points.len() > 1).collect(),
    }
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let ours: Vec<_> = rows.iter().filter(|row| row.is_ours).collect();
    let (Some(least), Some(most)) = (ours.first(), ours.last()) else { return Vec::new() };
    if least.pins == most.pins {
        return Vec::new();
    }
    let goal = |what: &str, figure: fn(&Row) -> f64| Goal {
        what: format!("{what}: {} / {} pins", most.pins, least.pins),
        figure: figure(most) / figure(least),
        bound: GROWTH,
    };
    vec![
        goal("add of one pin, time", |row| row.add),
        goal("look-up of one pin, median time", |row| row.find.quantile(0.5)),
        goal("the same with type=recursive", |row| row.find_recursive.quantile(0.5)),
    ]
}

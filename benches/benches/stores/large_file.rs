//! Memory of the gateway while a file of several gigabytes is added and fetched.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ipfrs_benches::process::memory;
use ipfrs_benches::{Client, GatewayProcess, Profile, Table, add_file, get, settle, write_random_file};

use crate::options::Options;

/// Interval between samples of the memory.
const SAMPLE: Duration = Duration::from_millis(5);
/// Upper bound: 150 MB.
const GOAL_MIB: f64 = 143.0;

pub(crate) fn measure(options: &Options, directory: &Path) -> Result<Table> {
    let (path, repo) = (directory.join("large"), directory.join("large-repo"));
    write_random_file(&path, options.file_mib, options.file_mib)?;
    let mut file = File::open(&path)?;
    let megabytes = file.metadata()?.len() as f64 / 1e6;
    let gateway = GatewayProcess::start(&repo, None)?;
    let mut client = Client::connect(gateway.address())?;
    let mut rows = Vec::new();
    let mut row = |label: &str, (seconds, mib): (f64, f64)| {
        let verdict = if mib < GOAL_MIB { "reached" } else { "missed" };
        let rate = format!("{:.0}", megabytes / seconds);
        rows.push(vec![
            label.to_owned(),
            rate,
            format!("{mib:.0}"),
            format!("under {GOAL_MIB:.0} (150 MB)"),
            verdict.to_owned(),
        ]);
    };
    settle();
    let (cid, adding) = peak(gateway.pid(), || add_file(&mut client, Profile::DagPb, &mut file))?;
    row("added", adding);
    let fetch = || {
        client.send(&get(&format!("/ipfs/{cid}")))?;
        client.discard(200)
    };
    row("fetched", peak(gateway.pid(), fetch)?.1);
    drop(gateway);
    fs::remove_file(path)?;
    fs::remove_dir_all(repo)?;
    Ok(Table::new(
        format!("A file of {} MiB, one connection", options.file_mib),
        ["", "MB/s", "maximum anonymous memory (RssAnon), MiB", "goal", ""],
        rows,
    ))
}

/// Runs `work` and returns its result, its duration in seconds, and the maximum anonymous memory of the process
/// during it, in MiB.
fn peak<T>(pid: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, (f64, f64))> {
    let (maximum, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(memory) = memory(pid) {
                    maximum.fetch_max(memory.anonymous, Ordering::Relaxed);
                }
                thread::sleep(SAMPLE);
            }
        });
        let worked = work();
        is_over.store(true, Ordering::Relaxed);
        worked
    })?;
    Ok((done, (start.elapsed().as_secs_f64(), maximum.into_inner() as f64 / f64::from(1 << 20))))
}

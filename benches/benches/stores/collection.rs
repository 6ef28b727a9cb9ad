//! Garbage collection that frees half of a pack while a client reads.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::{CarFile, Client, GatewayProcess, Latencies, Table, get_range, import_car, post, raw_cid};

use crate::options::Options;

const BLOCK_BYTES: usize = 256 * 1_024;
const RANGE_BYTES: u64 = 1_024;
/// Duration of the reads without concurrent garbage collection.
const ALONE: Duration = Duration::from_secs(3);

pub(crate) fn measure(options: &Options, directory: &Path) -> Result<Table> {
    let repo = directory.join("collected");
    let blocks = options.pack_mib * 4;
    // Every other block is pinned.
    let car = CarFile::write(&directory.join("collected.car"), 0..blocks, BLOCK_BYTES, 2)?;
    let gateway = GatewayProcess::start(&repo, None)?;
    let mut client = Client::connect(gateway.address())?;
    import_car(&mut client, &car)?;
    let pinned = (0..blocks).step_by(2).map(|seed| raw_cid(seed, BLOCK_BYTES)).collect::<Result<Vec<_>>>()?;
    let before = pack_bytes(&repo)?;

    let is_over = AtomicBool::new(false);
    let mut alone = Latencies::default();
    let mut reader = Client::connect(gateway.address())?;
    let mut targets = pinned.iter().cycle().map(|cid| get_range(&format!("/ipfs/{cid}"), 4_096, RANGE_BYTES));
    let mut read = |times: &mut Latencies, goes_on: &dyn Fn() -> bool| -> Result<()> {
        while goes_on() {
            let request = targets.next().context("nothing is pinned")?;
            times.time(|| reader.exchange(&request, 206, RANGE_BYTES))?;
        }
        Ok(())
    };
    let start = Instant::now();
    read(&mut alone, &|| start.elapsed() < ALONE)?;

    let (beside, seconds) = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut beside = Latencies::default();
            read(&mut beside, &|| !is_over.load(Ordering::Relaxed)).map(|()| beside)
        });
        let start = Instant::now();
        let collected = client
            .send(&post("/api/v0/repo/gc?quiet=true&silent=true", "application/octet-stream", "", 0))
            .and_then(|()| client.discard(200));
        let seconds = start.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        collected?;
        let beside = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        Ok::<_, anyhow::Error>((beside, seconds))
    })?;
    let after = pack_bytes(&repo)?;
    drop(gateway);
    fs::remove_dir_all(&repo)?;
    fs::remove_file(&car.path)?;
    let mib = |bytes: u64| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20));
    let row = |label: &str, figure: String| vec![label.to_owned(), figure];
    Ok(Table::new(
        format!("A collection of half of {} MiB (blocks of 256 KiB, every other one pinned)", options.pack_mib),
        ["what", "figure"],
        [
            row("seconds until the response", format!("{seconds:.2}")),
            row("packs on disk before", mib(before)),
            row("packs on disk after", mib(after)),
            row("a reader of 1 KiB ranges before", alone.show()),
            row("the reader beside the collection", beside.show()),
        ],
    ))
}

fn pack_bytes(repo: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(repo.join("packs"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

//! Stores of increasing numbers of small blocks compared with a store of a thousand: import, opening, GETs and
//! memory, and for the largest store also verification and the rebuild of its index.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{
    Axis, CarFile, Chart, Client, Cores, GatewayProcess, Latencies, Line, Offsets, Point, Series, Table, get,
    import_car, post, process, raw_cid, settle,
};
use serde_json::{Value, json};

use crate::options::Options;

const BLOCK_BYTES: usize = 1_024;
/// Sizes of the stores in blocks. Only sizes below that of the largest store are used.
const SIZES: [u64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];
/// Maximum number of blocks in one CAR. The largest store is imported from several CARs, so that they need not be on
/// disk at the same time.
const CAR_BLOCKS: usize = 1_000_000;
/// Number of colours in a chart.
const COLORS: usize = 6;
/// Number of GETs per store and round.
const GETS: usize = 4_000;
/// Number of content IDs in a `batch/has` request, and number of such requests per round.
const HAS_CIDS: usize = 100;
const HAS_REQUESTS: usize = 100;
/// Maximum time to open the large store, in seconds.
const OPEN_GOAL_SECONDS: f64 = 2.0;
/// Maximum latency of a GET from the large store, relative to the small store.
const GET_GOAL: f64 = 1.5;
/// Minimum MB/s of block data at which the largest store imports CARs.
const IMPORT_GOAL: f64 = 150.0;
/// Maximum disk space per block in addition to its data, in bytes.
const OVERHEAD_GOAL: f64 = 80.0;

/// A filled store with its figures.
struct Filled {
    repo: PathBuf,
    blocks: u64,
    import_seconds: f64,
    open_seconds: Series,
    gets: Latencies,
    has: Latencies,
    /// Anonymous memory after a round, in MB.
    memory_mb: Series,
    disk: Disk,
}

/// Disk space of files in bytes, in whole file-system blocks.
#[derive(Default, Clone, Copy)]
struct Disk {
    packs: u64,
    /// All other files, nearly all of which is the index.
    others: u64,
}

impl Disk {
    /// Returns the disk space of all files of a repo.
    fn of(repo: &Path) -> Result<Self> {
        let packs = allocated(&repo.join("packs"))?;
        Ok(Self { packs, others: allocated(repo)? - packs })
    }
}

fn allocated(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // `st_blocks` counts in units of 512 bytes on every file system.
        bytes += if metadata.is_dir() { allocated(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

impl Filled {
    /// Imports `blocks` blocks into a new store, in CARs of a million blocks each.
    fn new(directory: &Path, blocks: u64) -> Result<Self> {
        let repo = directory.join(format!("{blocks}-blocks"));
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut import_seconds = 0.0;
        for first in (0..blocks).step_by(CAR_BLOCKS) {
            let seeds = first..blocks.min(first + CAR_BLOCKS as u64);
            // A single root, because pinning is not measured.
            let car = CarFile::write(&directory.join(format!("{first}.car")), seeds, BLOCK_BYTES, CAR_BLOCKS)?;
            settle();
            let start = Instant::now();
            import_car(&mut Client::connect(gateway.address())?, &car)?;
            import_seconds += start.elapsed().as_secs_f64();
            fs::remove_file(&car.path)?;
        }
        Ok(Self {
            repo,
            blocks,
            import_seconds,
            open_seconds: Series::default(),
            gets: Latencies::default(),
            has: Latencies::default(),
            memory_mb: Series::default(),
            disk: Disk::default(),
        })
    }

    /// Opens the store and requests blocks from all of it. The response cache does not hold responses to requests
    /// with a file name.
    fn round(&mut self, cores: &Cores, round: u64) -> Result<()> {
        cores.for_servers()?;
        let start = Instant::now();
        let gateway = GatewayProcess::start(&self.repo, Some(1))?;
        self.open_seconds.push(start.elapsed().as_secs_f64());
        cores.for_clients()?;
        let mut client = Client::connect(gateway.address())?;
        let count = self.blocks;
        for place in Offsets::new(count + round, 1 + round).take(GETS) {
            let target = format!("/ipfs/{}?format=raw&filename=b", raw_cid(place % count, BLOCK_BYTES)?);
            self.gets.time(|| client.exchange(&get(&target), 200, BLOCK_BYTES as u64))?;
        }
        let mut places = Offsets::new(count + round, 1 + round).map(|place| place % count);
        for _ in 0..HAS_REQUESTS {
            let cids = places.by_ref().take(HAS_CIDS).map(|place| raw_cid(place, BLOCK_BYTES));
            let cids = cids.collect::<Result<Vec<_>>>()?;
            let body = json!({ "cids": cids }).to_string();
            let head = post("/v1/block/batch/has", "application/json", "", body.len() as u64);
            let request = [head.as_slice(), body.as_bytes()].concat();
            let mut answer = Vec::new();
            self.has.time(|| {
                client.send(&request)?;
                answer = client.read(200)?;
                Ok(())
            })?;
            let answer: Value = serde_json::from_slice(&answer)?;
            let there = answer["results"].as_array().into_iter().flatten().filter(|result| result["exists"] == true);
            ensure!(there.count() == HAS_CIDS, "some blocks are missing from the store: {answer}");
        }
        self.memory_mb.push(process::memory(gateway.pid())?.anonymous as f64 / 1e6);
        Ok(())
    }

    /// Returns the number of blocks.
    fn count(&self) -> f64 {
        self.blocks as f64
    }

    /// Returns the size of all blocks, in MB.
    fn payload_mb(&self) -> f64 {
        self.count() * BLOCK_BYTES as f64 / 1e6
    }

    /// Returns the disk space per block in addition to its data, in bytes.
    fn overhead(&self) -> f64 {
        (self.disk.packs + self.disk.others) as f64 / self.count() - BLOCK_BYTES as f64
    }

    /// Deletes the index and returns the seconds until the gateway accepts requests.
    fn rebuild(&self) -> Result<f64> {
        for entry in fs::read_dir(&self.repo)? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if name.to_string_lossy().starts_with("index") {
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        let start = Instant::now();
        let gateway = GatewayProcess::start(&self.repo, None)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut client = Client::connect(gateway.address())?;
        for seed in (0..self.blocks).step_by(usize::try_from(self.blocks / 1_000)?) {
            let target = format!("/ipfs/{}?format=raw", raw_cid(seed, BLOCK_BYTES)?);
            client.exchange(&get(&target), 200, BLOCK_BYTES as u64)?;
        }
        Ok(seconds)
    }

    /// Returns the seconds that `repo/verify` takes to read every block and compare it with its hash.
    fn verify(&self) -> Result<f64> {
        let gateway = GatewayProcess::start(&self.repo, None)?;
        let mut client = Client::connect(gateway.address())?;
        let start = Instant::now();
        client.send(&post("/api/v0/repo/verify", "application/octet-stream", "", 0))?;
        let answer = client.read(200)?;
        let seconds = start.elapsed().as_secs_f64();
        let text = String::from_utf8_lossy(&answer);
        ensure!(!text.contains("corrupt"), "the store is damaged: {text}");
        Ok(seconds)
    }
}

/// Measures the stores and returns the tables and charts.
pub(crate) fn measure(options: &Options, directory: &Path) -> Result<(Vec<Table>, Vec<Chart>)> {
    let cores = Cores::new(true)?;
    let sizes = SIZES.into_iter().filter(|size| *size < options.blocks).chain([options.blocks]);
    let mut stores = sizes.map(|size| Filled::new(directory, size)).collect::<Result<Vec<_>>>()?;
    for round in 0..options.rounds {
        for store in &mut stores {
            store.round(&cores, round)?;
        }
    }
    cores.for_anything()?;
    for store in &mut stores {
        store.disk = Disk::of(&store.repo)?;
    }
    let [few, .., many] = &stores[..] else { bail!("there is only one store: set BLOCKS to more than {}", SIZES[0]) };
    let (all, chart) = all_sizes(&stores);
    let tables = vec![all, largest(few, many)?];
    stores.iter().try_for_each(|store| fs::remove_dir_all(&store.repo))?;
    Ok((tables, vec![chart]))
}

/// Returns a table with one row, and a chart with one point of each line, for each store.
fn all_sizes(stores: &[Filled]) -> (Table, Chart) {
    type Figure = fn(&Filled) -> f64;
    /// Each figure should remain constant or grow at most logarithmically.
    const FIGURES: [(&str, Figure); 7] = [
        ("start of the process until its first response", |store| store.open_seconds.median()),
        ("GET, p50", |store| store.gets.quantile(0.5)),
        ("GET, p99", |store| store.gets.quantile(0.99)),
        ("batch/has of 100, p50", |store| store.has.quantile(0.5)),
        ("import, seconds for each block", |store| store.import_seconds / store.count()),
        ("anonymous memory", |store| store.memory_mb.median()),
        ("on disk besides a block", Filled::overhead),
    ];
    let mut rows = Vec::new();
    for store in stores {
        rows.push(vec![
            store.blocks.to_string(),
            store.open_seconds.show(4),
            format!("{:.3}", store.gets.quantile(0.5)),
            format!("{:.3}", store.gets.quantile(0.99)),
            format!("{:.3}", store.has.quantile(0.5)),
            format!("{:.0}", store.count() / store.import_seconds / 1e3),
            store.memory_mb.show(0),
            format!("{:.0}", store.overhead()),
        ]);
    }
    let lines = FIGURES.into_iter().enumerate().map(|(color, (name, figure))| {
        let of_smallest = stores.first().map_or(1.0, figure);
        let points = stores.iter().map(|store| Point::one(store.count(), figure(store) / of_smallest));
        // There are fewer colours than lines.
        let is_dashed = color >= COLORS;
        Line { name: name.to_owned(), color, is_dashed, points: points.collect() }
    });
    let chart = Chart {
        name: "growth".to_owned(),
        title: format!("Stores of blocks of 1 KiB, beside one of {}", SIZES[0]),
        x: Axis::logarithmic("blocks"),
        y: Axis::linear("times as much as in the smallest store"),
        lines: lines.collect(),
    };
    let table = Table::new(
        "Stores of blocks of 1 KiB",
        [
            "blocks",
            "start until the first response, s",
            "GET p50, ms",
            "GET p99, ms",
            "batch/has of 100 p50, ms",
            "import, thousand blocks/s",
            "anonymous memory (RssAnon), MB",
            "on disk besides the blocks, bytes for each",
        ],
        rows,
    );
    (table, chart)
}

/// Returns a table that compares the largest store with the smallest one.
fn largest(few: &Filled, many: &Filled) -> Result<Table> {
    let overhead = many.overhead();
    let (verify_seconds, rebuild_seconds) = (many.verify()?, many.rebuild()?);
    let ratio = |share| many.gets.quantile(share) / few.gets.quantile(share);
    let without_goal = |label: &str, figure: String| vec![label.to_owned(), figure, String::new(), String::new()];
    let with_goal = |label: &str, figure: String, goal: String, is_reached| {
        vec![label.to_owned(), figure, goal, if is_reached { "reached" } else { "missed" }.to_owned()]
    };
    let rate = |seconds: f64| {
        let blocks_per_second = many.count() / seconds / 1e3;
        format!("{:.0} MB/s, {blocks_per_second:.0} thousand blocks/s ({seconds:.2} s)", many.payload_mb() / seconds)
    };
    let rows = vec![
        with_goal(
            "CAR import, every hash verified, durable when answered",
            rate(many.import_seconds),
            format!("at least {IMPORT_GOAL} MB/s"),
            many.payload_mb() / many.import_seconds >= IMPORT_GOAL,
        ),
        without_goal("verifying every block of the store", rate(verify_seconds)),
        with_goal(
            "start of the process until its first response, s",
            many.open_seconds.show(3),
            format!("under {OPEN_GOAL_SECONDS:.0}"),
            many.open_seconds.median() < OPEN_GOAL_SECONDS,
        ),
        without_goal("the same, store of 1,000", few.open_seconds.show(3)),
        without_goal("the same, index deleted before", rate(rebuild_seconds)),
        without_goal("GET of random blocks", many.gets.show()),
        without_goal("GET, store of 1,000", few.gets.show()),
        with_goal(
            "GET, median of the large store / of the small one",
            format!("{:.2}", ratio(0.5)),
            format!("at most {GET_GOAL}"),
            ratio(0.5) <= GET_GOAL,
        ),
        without_goal("GET, p99 of the large store / of the small one", format!("{:.2}", ratio(0.99))),
        with_goal(
            "on disk besides the blocks, bytes for each",
            format!("{overhead:.0}"),
            format!("at most {OVERHEAD_GOAL}"),
            overhead <= OVERHEAD_GOAL,
        ),
        without_goal("of these outside of the packs", format!("{:.0}", many.disk.others as f64 / many.count())),
    ];
    Ok(Table::new(format!("The store of {} blocks of 1 KiB", many.blocks), ["what", "figure", "goal", ""], rows))
}

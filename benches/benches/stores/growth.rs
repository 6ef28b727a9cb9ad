//! A store of many small blocks beside one of a thousand: import, opening, GETs, verifying, an index made anew.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{CarFile, Client, Cores, GatewayProcess, Offsets, Series, Table, get, import_car, post};

use crate::latency::Latencies;
use crate::options::Options;

const BLOCK_BYTES: usize = 1_024;
const FEW: u64 = 1_000;
/// GETs of each store in a round.
const GETS: usize = 4_000;
/// Most seconds that opening the large store may take.
const OPEN_GOAL_SECONDS: f64 = 2.0;
/// Most that a GET of the large store may take, in GETs of the small one.
const GET_GOAL: f64 = 1.5;

/// A store that was filled, and how it did.
struct Filled {
    repo: PathBuf,
    cids: Vec<String>,
    payload_mb: f64,
    import_seconds: f64,
    open_seconds: Series,
    gets: Latencies,
}

impl Filled {
    /// Imports so many blocks into a new store.
    fn new(directory: &Path, blocks: u64) -> Result<Self> {
        // Few roots: what is measured is not pinning.
        let car = CarFile::write(&directory.join(format!("{blocks}.car")), blocks, BLOCK_BYTES, blocks as usize)?;
        let repo = directory.join(format!("{blocks}-blocks"));
        let gateway = GatewayProcess::start(&repo, None)?;
        let start = Instant::now();
        import_car(&mut Client::connect(gateway.address())?, &car)?;
        let import_seconds = start.elapsed().as_secs_f64();
        fs::remove_file(&car.path)?;
        let payload_mb = car.payload as f64 / 1e6;
        Ok(Self {
            repo,
            cids: car.cids,
            payload_mb,
            import_seconds,
            open_seconds: Series::default(),
            gets: Latencies::default(),
        })
    }

    /// Opens it, and asks for blocks all over it. No answer is kept ready for a request with a query.
    fn round(&mut self, cores: &Cores, round: u64) -> Result<()> {
        cores.for_servers()?;
        let start = Instant::now();
        let gateway = GatewayProcess::start(&self.repo, Some(1))?;
        self.open_seconds.push(start.elapsed().as_secs_f64());
        cores.for_clients()?;
        let mut client = Client::connect(gateway.address())?;
        let count = self.cids.len() as u64;
        for place in Offsets::new(count + round, 1 + round).take(GETS) {
            let target = format!("/ipfs/{}?format=raw", self.cids[(place % count) as usize]);
            self.gets.time(|| client.exchange(&get(&target), 200, BLOCK_BYTES as u64))?;
        }
        Ok(())
    }

    /// Seconds until the gateway answers after its index was deleted.
    fn rebuild(&self) -> Result<f64> {
        let index = self.repo.join("index.redb");
        fs::remove_file(&index).with_context(|| format!("cannot remove {}", index.display()))?;
        let start = Instant::now();
        let gateway = GatewayProcess::start(&self.repo, None)?;
        let seconds = start.elapsed().as_secs_f64();
        for cid in self.cids.iter().step_by(self.cids.len() / 1_000) {
            let target = format!("/ipfs/{cid}?format=raw");
            Client::connect(gateway.address())?.exchange(&get(&target), 200, BLOCK_BYTES as u64)?;
        }
        Ok(seconds)
    }

    /// Seconds that it takes to read every block and compare it with its hash.
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

    fn disk_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for directory in [self.repo.clone(), self.repo.join("packs")] {
            for entry in fs::read_dir(directory)? {
                let metadata = entry?.metadata()?;
                bytes += if metadata.is_file() { metadata.len() } else { 0 };
            }
        }
        Ok(bytes)
    }
}

pub(crate) fn measure(options: &Options, directory: &Path) -> Result<Table> {
    let cores = Cores::new(true)?;
    let mut stores = [Filled::new(directory, FEW)?, Filled::new(directory, options.blocks)?];
    for round in 0..options.rounds {
        for store in &mut stores {
            store.round(&cores, round)?;
        }
    }
    cores.for_anything()?;
    let [few, many] = &stores;
    let (verify_seconds, rebuild_seconds) = (many.verify()?, many.rebuild()?);
    let overhead = (many.disk_bytes()? as f64 - many.payload_mb * 1e6) / many.cids.len() as f64;
    let ratio = |share| many.gets.quantile(share) / few.gets.quantile(share);
    let verdict = |is_reached| if is_reached { "reached" } else { "missed" }.to_owned();
    let plain = |what: &str, figure: String| vec![what.to_owned(), figure, String::new(), String::new()];
    let rate = |seconds: f64| {
        let blocks_per_second = many.cids.len() as f64 / seconds / 1e3;
        format!("{:.0} MB/s, {blocks_per_second:.0} thousand blocks/s ({seconds:.2} s)", many.payload_mb / seconds)
    };
    let rows = vec![
        plain("CAR import, every hash verified, durable when answered", rate(many.import_seconds)),
        plain("verifying every block of the store", rate(verify_seconds)),
        vec![
            "start of the process until it answers, s".to_owned(),
            many.open_seconds.show(3),
            format!("under {OPEN_GOAL_SECONDS:.0}"),
            verdict(many.open_seconds.median() < OPEN_GOAL_SECONDS),
        ],
        plain("the same, store of 1,000", few.open_seconds.show(3)),
        plain("the same, index deleted before", rate(rebuild_seconds)),
        plain("GET of blocks all over it", many.gets.show()),
        plain("GET, store of 1,000", few.gets.show()),
        vec![
            "GET, median of the large store / of the small one".to_owned(),
            format!("{:.2}", ratio(0.5)),
            format!("at most {GET_GOAL}"),
            verdict(ratio(0.5) <= GET_GOAL),
        ],
        plain("GET, p99 of the large store / of the small one", format!("{:.2}", ratio(0.99))),
        plain("on disk besides the blocks, bytes for each", format!("{overhead:.0}")),
    ];
    stores.iter().try_for_each(|store| fs::remove_dir_all(&store.repo))?;
    Ok(Table {
        title: format!("A store of {} blocks of 1 KiB", options.blocks),
        head: vec!["what", "figure", "goal", ""],
        rows,
    })
}

//! Blocks from Kubo's `block/get` compared with our batches, and reads from Kubo's gateway.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::{
    Batch, Bound, Client, Goal, Kubo as Program, KuboDaemon, Multipart, Profile, Series, Table, add_file, get, load,
    post, random, seconds_each,
};

use crate::batch::{COUNTS, GOALS, KIB, SIZES, WAYS};
use crate::figures::{Measurement, turns};
use crate::site::{SMALL_BYTES, Site};

/// Approximate size of the requests that add blocks, in bytes.
const FORM_BYTES: usize = 32 << 20;
/// Number of connections that request the small file.
const CONNECTIONS: usize = 64;

pub(crate) struct KuboReads {
    /// Kubo. Nothing is measured if it is not installed.
    kubo: Option<Kubo>,
    file_mib: u64,
    sizes: Vec<Size>,
    /// Figures of Kubo and of our gateway.
    served: [Served; 2],
}

struct Kubo {
    name: String,
    repo: PathBuf,
    /// Paths at Kubo's gateway.
    large: String,
    small: String,
}

/// Blocks of one size.
struct Size {
    /// Requests to `block/get`, each for one block.
    one_by_one: Vec<Vec<u8>>,
    batch: Batch,
    /// Milliseconds for all blocks: of `block/get` at index 0, of each other way at its index in [`WAYS`].
    milliseconds: [Series; WAYS.len()],
}

/// Read figures of a gateway.
#[derive(Default)]
struct Served {
    gb_per_second: Series,
    per_second: Series,
    p50_ms: Series,
    p99_ms: Series,
}

impl KuboReads {
    /// Fills a Kubo repo and checks its responses.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let (mut kubo, mut sizes) = (None, Vec::new());
        if let Some(program) = &site.kubo {
            let (found, requests) = Kubo::prepare(site, program)?;
            kubo = Some(found);
            let mut client = Client::connect(site.gateway.address())?;
            for (bytes, requests) in SIZES.into_iter().zip(requests) {
                for count in COUNTS {
                    sizes.push(Size {
                        one_by_one: requests[..count].to_vec(),
                        batch: Batch::prepare(&mut client, count, bytes)?,
                        milliseconds: Default::default(),
                    });
                }
            }
        }
        Ok(Self { kubo, file_mib: site.options.file_mib, sizes, served: Default::default() })
    }

    fn name(&self) -> &str {
        self.kubo.as_ref().map_or("", |kubo| &kubo.name)
    }
}

impl Kubo {
    /// Prepares Kubo, and returns it with requests for the maximum number of blocks of each of [`SIZES`].
    fn prepare(site: &Site, program: &Program) -> Result<(Self, Vec<Vec<Vec<u8>>>)> {
        let repo = site.scratch("kubo");
        site.cores.for_anything()?;
        program.init(&repo, false)?;
        let daemon = KuboDaemon::start(program, &repo)?;
        let large = add_file(&mut Client::connect(daemon.rpc)?, Profile::DagPb, &mut site.large_file()?)?;
        let small = add(&daemon, &[random(0, SMALL_BYTES)])?.concat();
        let mut requests = Vec::new();
        for bytes in SIZES {
            let blocks: Vec<_> = (0..COUNTS[COUNTS.len() - 1]).map(|index| random(index as u64, bytes)).collect();
            let mut of_size = Vec::new();
            for some in blocks.chunks((FORM_BYTES / bytes).max(1)) {
                let cids = add(&daemon, some)?;
                of_size
                    .extend(cids.iter().map(|cid| post(&format!("/api/v0/block/get?arg={cid}"), "text/plain", "", 0)));
            }
            let mut client = Client::connect(daemon.rpc)?;
            for (request, block) in of_size.iter().zip(&blocks) {
                client.send(request)?;
                client.compare(200, block.as_slice()).context("Kubo returns a different block")?;
            }
            requests.push(of_size);
        }
        let name = program.name();
        let found = Self { name, repo, large: format!("/ipfs/{large}"), small: format!("/ipfs/{small}") };
        let mut client = Client::connect(daemon.gateway)?;
        client.send(&get(&found.large))?;
        client.compare(200, site.large_file()?).context("Kubo's gateway serves different bytes")?;
        drop(daemon);
        site.cores.for_clients()?;
        Ok((found, requests))
    }
}

/// Adds each of the files as a block, on a new connection because Kubo closes connections after a number of such
/// requests.
fn add(daemon: &KuboDaemon, files: &[Vec<u8>]) -> Result<Vec<String>> {
    let mut form = Multipart::default();
    files.iter().for_each(|file| form.file(file));
    form.send(&mut Client::connect(daemon.rpc)?, Profile::RawBlocks)
}

impl Size {
    fn fetch(&self, way: usize, client: &mut Client) -> Result<()> {
        if way > 0 {
            return WAYS[way].1(&self.batch, client);
        }
        let bytes = self.batch.block_bytes() as u64;
        self.one_by_one.iter().try_for_each(|request| client.exchange(request, 200, bytes))
    }

    /// Returns the indices of the [`WAYS`] that can transfer this number of bytes, with Kubo at index 0.
    fn ways(&self) -> impl Iterator<Item = usize> + use<> {
        let fits_json = self.batch.fits_json();
        (0..WAYS.len()).filter(move |way| *way != 1 || fits_json)
    }

    fn gain(&self, way: usize) -> f64 {
        self.milliseconds[0].median() / self.milliseconds[way].median()
    }
}

impl Measurement for KuboReads {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let (Some(kubo), Some(program)) = (&self.kubo, &site.kubo) else { return Ok(()) };
        // Started anew in each round, so that it does no work while other parts are measured.
        site.cores.for_servers()?;
        let daemon = KuboDaemon::start(program, &kubo.repo)?;
        site.cores.for_clients()?;
        // Do not measure one-time work after the start.
        for size in &self.sizes {
            size.fetch(0, &mut Client::connect(daemon.rpc)?)?;
        }
        Client::connect(daemon.gateway)?.exchange(&get(&kubo.large), 200, site.large_bytes())?;
        for size in &mut self.sizes {
            let ways: Vec<_> = size.ways().collect();
            for way in turns(round, ways.len()).map(|turn| ways[turn]) {
                let address = if way == 0 { daemon.rpc } else { site.gateway.address() };
                let mut client = Client::connect(address)?;
                let each = seconds_each(site.options.slice() / 3, || size.fetch(way, &mut client))?;
                size.milliseconds[way].push(each * 1e3);
            }
        }
        let ours =
            |path: fn(&Site) -> Option<&str>| path(site).context("the gateway serves nothing").map(str::to_owned);
        let large =
            ours(|site| site.large.iter().find(|it| it.pids == [site.gateway.pid()]).map(|it| it.path.as_str()))?;
        let small = ours(|site| site.small.last().map(|target| target.path.as_str()))?;
        let all = [(daemon.gateway, kubo.large.clone(), kubo.small.clone()), (site.gateway.address(), large, small)];
        for turn in turns(round, all.len()) {
            let ((address, large, small), served) = (&all[turn], &mut self.served[turn]);
            let mut client = Client::connect(*address)?;
            let start = Instant::now();
            client.exchange(&get(large), 200, site.large_bytes())?;
            served.gb_per_second.push(site.large_bytes() as f64 / 1e9 / start.elapsed().as_secs_f64());
            let (body, time) = (random(0, SMALL_BYTES), Duration::from_secs(site.options.wrk_seconds));
            let run = load(*address, &get(small), &body, CONNECTIONS, time)?;
            served.per_second.push(run.per_second);
            served.p50_ms.push(run.quantile(0.5));
            served.p99_ms.push(run.quantile(0.99));
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let blocks = self.sizes.iter().flat_map(|size| {
            size.ways().map(|way| {
                let how = if way == 0 { "Kubo, block/get each" } else { WAYS[way].0 };
                vec![
                    format!("{} KiB", size.batch.block_bytes() / KIB),
                    size.batch.count().to_string(),
                    how.to_owned(),
                    size.milliseconds[way].show(3),
                    format!("{:.1}", size.gain(way)),
                ]
            })
        });
        let servers = [self.name(), "ipfrs"].into_iter().zip(&self.served).filter(|_| self.kubo.is_some());
        let served = servers.map(|(name, served)| {
            vec![
                name.to_owned(),
                served.gb_per_second.show(2),
                served.per_second.show(0),
                served.p50_ms.show(3),
                served.p99_ms.show(3),
            ]
        });
        vec![
            Table::new(
                format!("Blocks in one batch, beside block/get of {}, one connection", self.name()),
                ["of", "blocks", "how", "ms for all", "times as fast as Kubo"],
                blocks,
            ),
            Table::new(
                format!("Gateways, one core: GET of {} MiB, and of 1 KiB on {CONNECTIONS} connections", self.file_mib),
                ["server", "GB/s", "requests/s of 1 KiB", "p50 ms", "p99 ms"],
                served,
            ),
        ]
    }

    fn goals(&self) -> Vec<Goal> {
        let goals = self.sizes.iter().filter(|size| size.batch.block_bytes() == SIZES[0]).flat_map(|size| {
            let goal = GOALS.into_iter().find(|(count, _)| *count == size.batch.count());
            goal.into_iter().flat_map(move |(count, minimum)| {
                size.ways().skip(1).map(move |way| Goal {
                    what: format!("{count} blocks of 1 KiB, client apart: {} / Kubo, block/get each", WAYS[way].0),
                    figure: size.gain(way),
                    bound: Bound::AtLeast(minimum),
                })
            })
        });
        goals.collect()
    }
}

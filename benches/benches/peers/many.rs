//! Random requests to many small files, and the export of their directory.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipfrs_benches::process::{cpu_seconds, memory};
use ipfrs_benches::{
    Bound, Client, Fetch, GatewayProcess, Goal, Loaded, Series, Table, add_directory, get, load_varied, random,
};

use crate::figures::{Measurement, goals_beside_nginx, turns};
use crate::site::{Site, Target};
use ipfrs_benches::nginx::{NGINX, Nginx};

/// Size of each file, in bytes.
const FILE_BYTES: usize = 4_096;
const CONNECTIONS: usize = 64;
/// The working sets, as fractions of all files.
const SETS: [usize; 3] = [50, 5, 1];
/// Maximum number of files with a deep path.
const MAX_DEEP_FILES: usize = 20_000;
/// Numbers of files in further directories.
const SMALLER_DIRECTORIES: [usize; 3] = [10, 1_000, 100_000];
/// Required ratios to nginx for all files: requests per second by path, by content ID, and raw.
const GOALS: [(&str, f64); 3] = [("by path", 1.5), ("by content ID", 1.8), ("raw", 2.0)];
/// Required files and blocks per second of the exports.
const CAR_GOAL: f64 = 800_000.0;
const TAR_GOAL: f64 = 300_000.0;
/// Number of directories below which the file of the deepest path is.
const DEPTHS: [usize; 3] = [1, 4, 9];

pub(crate) struct ManyFiles {
    files: usize,
    www: PathBuf,
    repo: PathBuf,
    ways: Vec<Way>,
    exports: [Export; 2],
    /// Anonymous memory of the gateway after the loads, in MB.
    megabytes: Series,
}

/// A way to request the files.
struct Way {
    server: &'static str,
    name: String,
    /// Targets of the requests.
    targets: Vec<String>,
    /// Loads for each of the working sets.
    loads: Vec<Load>,
}

#[derive(Default, Clone)]
struct Load {
    per_second: Series,
    p99_ms: Series,
    /// CPU time of the server per request, in microseconds.
    micros: Series,
    client_busy: Series,
}

struct Export {
    name: &'static str,
    target: String,
    items: f64,
    per_second: Series,
    first_byte_ms: Series,
}

/// The servers of one round.
struct Servers {
    gateway: GatewayProcess,
    nginx: Option<Nginx>,
}

impl ManyFiles {
    /// Creates the files and a repo that contains them in one directory.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let files = site.options.files;
        let (www, repo) = (site.scratch("many-www"), site.scratch("many-repo"));
        fs::create_dir(&www)?;
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut client = Client::connect(gateway.address())?;
        let name = |number: usize| format!("{number:07}.bin");
        let content = |number: usize| random(number as u64, FILE_BYTES);
        for number in 0..files {
            fs::write(www.join(name(number)), content(number))?;
        }
        let mut cids = add_directory(&mut client, files, FILE_BYTES, name, content)?;
        let root = cids.pop().context("no directory was added")?;
        let mut ways = vec![
            Way::new("ipfrs", "by path", (0..files).map(|number| format!("/ipfs/{root}/{}", name(number)))),
            Way::new("ipfrs", "by content ID", cids.iter().map(|cid| format!("/ipfs/{cid}"))),
            Way::new("ipfrs", "raw", cids.iter().map(|cid| format!("/ipfs/{cid}?format=raw"))),
        ];
        for depth in DEPTHS {
            let directories = "d/".repeat(depth);
            let count = files.min(MAX_DEEP_FILES);
            let path = |number| format!("{directories}{}", name(number));
            let mut added = add_directory(&mut client, count, FILE_BYTES, path, content)?;
            let root = added.pop().context("no directory was added")?;
            let targets = (0..count).map(|number| format!("/ipfs/{root}/{directories}{}", name(number)));
            ways.push(Way::new("ipfrs", &format!("by path, {} segments", depth + 1), targets));
        }
        for count in SMALLER_DIRECTORIES.into_iter().filter(|count| *count < files) {
            let mut added = add_directory(&mut client, count, FILE_BYTES, name, content)?;
            let root = added.pop().context("no directory was added")?;
            let targets = (0..count).map(|number| format!("/ipfs/{root}/{}", name(number)));
            ways.push(Way::new("ipfrs", &format!("by path, directory of {count}"), targets));
        }
        if site.nginx.is_some() {
            ways.push(Way::new(NGINX, "by path", (0..files).map(|number| format!("/{}", name(number)))));
        }
        let exports = [("CAR", "?format=car"), ("TAR", "?format=tar")].map(|(name, query)| Export {
            name,
            target: format!("/ipfs/{root}{query}"),
            items: files as f64,
            per_second: Series::default(),
            first_byte_ms: Series::default(),
        });
        Ok(Self { files, www, repo, ways, exports, megabytes: Series::default() })
    }

    fn start(&self, site: &Site, round: usize) -> Result<Servers> {
        site.cores.for_servers()?;
        let gateway = GatewayProcess::start(&self.repo, Some(1))?;
        let directory = site.scratch(&format!("many-nginx-{round}"));
        let nginx = site.nginx.as_ref().map(|_| Nginx::start(&directory, &self.www)).transpose()?;
        site.cores.for_clients()?;
        Ok(Servers { gateway, nginx })
    }
}

impl Way {
    fn new(server: &'static str, name: &str, targets: impl Iterator<Item = String>) -> Self {
        let loads = vec![Load::default(); SETS.len()];
        Self { server, name: name.to_owned(), targets: targets.collect(), loads }
    }
}

impl Servers {
    /// Returns the server of a way, without a path. Of nginx, the one with `tcp_nopush`.
    fn target(&self, server: &'static str) -> Result<Target> {
        if server != NGINX {
            let (address, pids) = (self.gateway.address(), vec![self.gateway.pid()]);
            return Ok(Target { name: server, address, path: String::new(), pids });
        }
        let nginx = self.nginx.as_ref().context("nginx does not run")?;
        let [(name, address), _] = nginx.servers();
        Ok(Target { name, address, path: String::new(), pids: nginx.workers().to_vec() })
    }
}

impl Load {
    fn measure(&mut self, target: &Target, fetches: &[Fetch], site: &Site, seed: usize) -> Result<()> {
        let (before, time) = (cpu_seconds(&target.pids)?, Duration::from_secs(site.options.wrk_seconds));
        let loaded = load_varied(target.address, fetches, uniform(fetches.len(), seed), CONNECTIONS, time)?;
        let Loaded { per_second, busy, .. } = loaded;
        self.per_second.push(per_second);
        self.p99_ms.push(loaded.quantile(0.99));
        self.micros.push((cpu_seconds(&target.pids)? - before) * 1e6 / (per_second * time.as_secs_f64()));
        self.client_busy.push(busy * 100.0);
        Ok(())
    }
}

/// Returns random indices below `count`.
pub(crate) fn uniform(count: usize, seed: usize) -> impl FnMut() -> usize {
    let state = Cell::new(seed as u64 + 1);
    move || {
        // splitmix64
        state.set(state.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mixed = (state.get() ^ (state.get() >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % count as u64) as usize
    }
}

impl Measurement for ManyFiles {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let servers = self.start(site, round)?;
        for turn in turns(round, self.ways.len()) {
            let way = &mut self.ways[turn];
            let target = servers.target(way.server)?;
            for (load, fraction) in way.loads.iter_mut().zip(SETS) {
                let count = (way.targets.len() / fraction).max(1);
                // Every file of the set was requested twice before, as in a server that has run for some time.
                let fetches: Vec<_> = way.targets[..count]
                    .iter()
                    .map(|path| Fetch { request: get(path), body_bytes: FILE_BYTES as u64 })
                    .collect();
                let mut warm = (0..2 * count).map(|number| number % count);
                let longest = Duration::from_secs(site.options.wrk_seconds);
                let start = Instant::now();
                let mut client = Client::connect(target.address)?;
                while let Some(number) = warm.next().filter(|_| start.elapsed() < longest) {
                    client.exchange(&fetches[number].request, 200, FILE_BYTES as u64)?;
                }
                load.measure(&target, &fetches, site, round)?;
            }
        }
        self.megabytes.push(memory(servers.gateway.pid())?.anonymous as f64 / 1e6);
        for export in &mut self.exports {
            let mut client = Client::connect(servers.gateway.address())?;
            let start = Instant::now();
            client.send(&get(&export.target))?;
            client.await_first_byte()?;
            export.first_byte_ms.push(start.elapsed().as_secs_f64() * 1e3);
            client.discard(200)?;
            export.per_second.push(export.items / start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.ways.iter().flat_map(|way| {
            way.loads.iter().zip(SETS).map(move |(load, fraction)| {
                vec![
                    way.server.to_owned(),
                    way.name.clone(),
                    (way.targets.len() / fraction).max(1).to_string(),
                    load.per_second.show(0),
                    load.p99_ms.show(2),
                    load.micros.show(1),
                    format!("{:.0}", load.client_busy.median()),
                ]
            })
        });
        let loads = Table::new(
            format!("Random GETs of {FILE_BYTES} bytes, {CONNECTIONS} connections, {} files, one worker", self.files),
            ["server", "requested", "different files", "requests/s", "p99 ms", "server CPU µs each", "client busy, %"],
            rows,
        );
        let rows = self
            .exports
            .iter()
            .map(|export| vec![export.name.to_owned(), export.per_second.show(0), export.first_byte_ms.show(1)]);
        let title = format!("Export of a directory of {} files, one worker", self.files);
        let exports = Table::new(title, ["as", "files/s", "first byte after ms"], rows);
        let rows = [vec![self.megabytes.show(0)]];
        let memory = Table::new("Anonymous memory of the gateway after the random GETs", ["MB"], rows);
        vec![loads, exports, memory]
    }

    fn goals(&self) -> Vec<Goal> {
        let last = |way: &Way| way.loads.last().cloned().unwrap_or_default();
        let Some(nginx) = self.ways.iter().find(|way| way.server == NGINX).map(last) else { return Vec::new() };
        let mut goals = Vec::new();
        for (name, least) in GOALS {
            for way in self.ways.iter().filter(|way| way.server != NGINX && way.name == name) {
                let (ours, what) = (last(way), format!("random files of 4 KiB {name}"));
                let rates = [(NGINX, &nginx.per_second), (way.server, &ours.per_second)];
                let waits = [(NGINX, &nginx.p99_ms), (way.server, &ours.p99_ms)];
                goals.extend(goals_beside_nginx(&format!("{what}, requests/s"), &rates, Bound::AtLeast(least)));
                goals.extend(goals_beside_nginx(&format!("{what}, p99"), &waits, Bound::AtMost(1.0)));
            }
        }
        for (export, least) in self.exports.iter().zip([CAR_GOAL, TAR_GOAL]) {
            let what = format!("{} of a directory, files/s", export.name);
            goals.push(Goal { what, figure: export.per_second.median(), bound: Bound::AtLeast(least) });
        }
        goals
    }
}

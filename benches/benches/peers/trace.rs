//! A trace of a busy gateway: objects of many sizes, requested with a Zipf distribution, while others are added and
//! removed.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ipfrs_benches::process::{cpu_seconds, memory};
use ipfrs_benches::{
    Bound, Client, Fetch, GatewayProcess, Goal, Multipart, Profile, Series, Table, get, load_varied, post, random,
};

use crate::figures::{Measurement, goals_beside_nginx};
use crate::many::uniform;
use crate::site::Site;
use ipfrs_benches::nginx::{NGINX, Nginx};

const CONNECTIONS: usize = 64;
/// Exponent of the Zipf distribution.
const ZIPF: f64 = 0.9;
/// Sizes in bytes: minimum, median and maximum, and the standard deviation of the natural logarithm.
const SIZES: (f64, f64, f64, f64) = (1_024.0, 8_192.0, 10_485_760.0, 1.2);
/// Number of intervals whose figures show a drift.
const INTERVALS: usize = 5;
/// Number of objects added between two garbage collections.
const ADDS_PER_GC: u64 = 200;
/// Size of an added object, in bytes.
const ADDED_BYTES: usize = 8_192;
/// Number of reads for each added object: 5 % are adds.
const READS_PER_ADD: u64 = 19;

pub(crate) struct Trace {
    www: PathBuf,
    repo: PathBuf,
    sizes: Vec<u64>,
    cids: Vec<String>,
    servers: Vec<Server>,
    adds: Series,
    gcs: Series,
}

struct Server {
    name: &'static str,
    /// For each of the intervals.
    intervals: Vec<Interval>,
    per_second: Series,
    p99_ms: Series,
}

#[derive(Default, Clone)]
struct Interval {
    per_second: Series,
    p99_ms: Series,
    micros: Series,
    megabytes: Series,
}

impl Trace {
    /// Creates the objects, as files for nginx and in a repo.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let (www, repo) = (site.scratch("trace-www"), site.scratch("trace-repo"));
        fs::create_dir(&www)?;
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut client = Client::connect(gateway.address())?;
        let mut draw = uniform(1 << 32, 7);
        let sizes: Vec<u64> = (0..site.options.trace_objects).map(|_| log_normal(&mut draw)).collect();
        let mut cids = Vec::with_capacity(sizes.len());
        let (mut form, mut bytes, mut count) = (Multipart::default(), 0, 0);
        for (number, size) in sizes.iter().enumerate() {
            let content = random(number as u64 + (1 << 40), usize::try_from(*size)?);
            let directory = www.join((number % 1_000).to_string());
            fs::create_dir_all(&directory)?;
            fs::write(directory.join(number.to_string()), &content)?;
            form.file(&content);
            (bytes, count) = (bytes + content.len(), count + 1);
            if bytes > 64 << 20 || count == 5_000 || number + 1 == sizes.len() {
                cids.extend(std::mem::take(&mut form).send(&mut client, Profile::Raw)?);
                (bytes, count) = (0, 0);
            }
        }
        let server = |name| Server {
            name,
            intervals: vec![Interval::default(); INTERVALS],
            per_second: Series::default(),
            p99_ms: Series::default(),
        };
        let servers = site.nginx.iter().map(|_| NGINX).chain(["ipfrs"]).map(server).collect();
        Ok(Self { www, repo, sizes, cids, servers, adds: Series::default(), gcs: Series::default() })
    }
}

/// Returns a size of the log-normal distribution.
fn log_normal(draw: &mut impl FnMut() -> usize) -> u64 {
    let (least, median, most, deviation) = SIZES;
    let mut uniform = || (draw() as f64 + 1.0) / ((1_u64 << 32) as f64 + 1.0);
    // Box and Muller.
    let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
    (median * (deviation * normal).exp()).clamp(least, most) as u64
}

/// Returns indices below `count`; the n-th is drawn in proportion to n to the power of -[`ZIPF`].
fn zipf(count: usize, seed: usize) -> impl FnMut() -> usize {
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=count)
        .map(|rank| {
            sum += (rank as f64).powf(-ZIPF);
            sum
        })
        .collect();
    let mut draw = uniform(1 << 32, seed);
    move || {
        let at = draw() as f64 / (1_u64 << 32) as f64 * sum;
        sums.partition_point(|below| *below < at).min(count - 1)
    }
}

/// Adds objects, one for every [`READS_PER_ADD`] reads, unpins a fifth of them, and collects garbage. Returns the
/// numbers of adds and of collections.
fn write(server: SocketAddr, reads: &AtomicU64, is_over: &AtomicBool, seed: u64) -> Result<(u64, u64)> {
    let mut client = Client::connect(server)?;
    let (mut adds, mut gcs) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        if adds * READS_PER_ADD > reads.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut form = Multipart::default();
        form.file(&random((seed << 44) + adds, ADDED_BYTES));
        let cid = form.send(&mut client, Profile::Raw)?.concat();
        adds += 1;
        if adds % 5 == 0 {
            client.send(&post(&format!("/api/v0/pin/rm?arg={cid}"), "text/plain", "", 0))?;
            client.discard(200)?;
        }
        if adds % ADDS_PER_GC == 0 {
            client.send(&post("/api/v0/repo/gc?quiet=true", "text/plain", "", 0))?;
            client.discard(200)?;
            gcs += 1;
        }
    }
    Ok((adds, gcs))
}

impl Trace {
    fn fetches(&self, server: &str) -> Vec<Fetch> {
        let path = |number: usize, cid: &String| match server {
            NGINX => format!("/{}/{number}", number % 1_000),
            _ => format!("/ipfs/{cid}"),
        };
        let objects = self.cids.iter().zip(&self.sizes).enumerate();
        objects.map(|(number, (cid, size))| Fetch { request: get(&path(number, cid)), body_bytes: *size }).collect()
    }

    /// Loads one server for the whole time.
    fn load(&mut self, place: usize, address: SocketAddr, pids: &[u32], site: &Site, round: usize) -> Result<()> {
        let name = self.servers[place].name;
        let fetches = self.fetches(name);
        let time = Duration::from_secs(site.options.trace_seconds) / INTERVALS as u32;
        let (reads, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let writer = (name != NGINX).then(|| {
            let (reads, is_over) = (reads.clone(), is_over.clone());
            thread::spawn(move || write(address, &reads, &is_over, round as u64 + 1))
        });
        // The requests of all intervals are one sequence.
        let mut draw = zipf(fetches.len(), round);
        let scatter = Cell::new(0);
        let mut rates = 0.0;
        let loaded = (0..INTERVALS).try_for_each(|interval| {
            let before = cpu_seconds(pids)?;
            let choose = || {
                scatter.set(scatter.get() + 1);
                reads.fetch_add(1, Ordering::Relaxed);
                // Popular objects are anywhere in the store.
                (draw() * 7_919) % fetches.len()
            };
            let loaded = load_varied(address, &fetches, choose, CONNECTIONS, time)?;
            let figures = &mut self.servers[place].intervals[interval];
            figures.per_second.push(loaded.per_second);
            figures.p99_ms.push(loaded.quantile(0.99));
            figures.micros.push((cpu_seconds(pids)? - before) * 1e6 / (loaded.per_second * time.as_secs_f64()));
            let anonymous: u64 = pids.iter().map(|pid| memory(*pid).map_or(0, |memory| memory.anonymous)).sum();
            figures.megabytes.push(anonymous as f64 / 1e6);
            rates += loaded.per_second;
            anyhow::Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let written = writer.map(|writer| writer.join().ok().context("the writer panicked")?).transpose();
        loaded?;
        if let Some((adds, gcs)) = written? {
            self.adds.push(adds as f64);
            self.gcs.push(gcs as f64);
        }
        let server = &mut self.servers[place];
        let p99 = server.intervals.iter().map(|interval| interval.p99_ms.max()).fold(0.0, f64::max);
        server.per_second.push(rates / INTERVALS as f64);
        server.p99_ms.push(p99);
        Ok(())
    }
}

impl Measurement for Trace {
    /// Measures each server once in the first round only, because a run takes minutes.
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        if round > 0 {
            return Ok(());
        }
        for place in 0..self.servers.len() {
            site.cores.for_servers()?;
            let is_nginx = self.servers[place].name == NGINX;
            let nginx = is_nginx.then(|| Nginx::start(&site.scratch("trace-nginx"), &self.www)).transpose()?;
            let gateway = (!is_nginx).then(|| GatewayProcess::start(&self.repo, Some(1))).transpose()?;
            site.cores.for_clients()?;
            if let Some(nginx) = &nginx {
                let [(_, address), _] = nginx.servers();
                self.load(place, address, nginx.workers(), site, round)?;
            }
            if let Some(gateway) = &gateway {
                self.load(place, gateway.address(), &[gateway.pid()], site, round)?;
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.servers.iter().flat_map(|server| {
            server.intervals.iter().enumerate().map(move |(number, interval)| {
                vec![
                    server.name.to_owned(),
                    (number + 1).to_string(),
                    interval.per_second.show(0),
                    interval.p99_ms.show(2),
                    interval.micros.show(1),
                    interval.megabytes.show(0),
                ]
            })
        });
        let bytes: u64 = self.sizes.iter().sum();
        let title = format!(
            "Trace: {} objects, {:.1} GB, Zipf {ZIPF}, {CONNECTIONS} connections, one worker; ipfrs with {:.0} adds and \
             {:.0} garbage collections, nginx with reads only",
            self.sizes.len(),
            bytes as f64 / 1e9,
            self.adds.sum(),
            self.gcs.sum(),
        );
        let head =
            ["server", "fifth of the time", "requests/s", "p99 ms", "server CPU µs each", "anonymous memory, MB"];
        vec![Table::new(title, head, rows)]
    }

    fn goals(&self) -> Vec<Goal> {
        type Of = fn(&Server) -> &Series;
        let series = |of: Of| -> Vec<_> { self.servers.iter().map(|server| (server.name, of(server))).collect() };
        [
            goals_beside_nginx("trace, requests/s", &series(|server| &server.per_second), Bound::AtLeast(0.9)),
            goals_beside_nginx("trace, highest p99", &series(|server| &server.p99_ms), Bound::AtMost(1.5)),
        ]
        .concat()
    }
}

//! Files on disk that are not in the page cache: a single large file, and many files with concurrent requests for a
//! hot file.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use ipfrs_benches::process::read_from_disk;
use ipfrs_benches::{
    Bound, Client, GatewayProcess, Goal, Latencies, Multipart, Profile, Series, Table, add_file, get, random, settle,
    write_random_file,
};
use rustix::fs::{Advice, fadvise};
use rustix::process::setpriority_process;

use crate::figures::{Measurement, goals_beside_nginx, turns};
use crate::site::{SMALL_BYTES, Site};
use ipfrs_benches::nginx::{NGINX, Nginx};

/// Number of clients, each of which reads one cold file.
const CLIENTS: usize = 50;
/// Minimum ratio to nginx's MB/s.
const GOAL: Bound = Bound::AtLeast(0.9);
/// Latency bound of the hot file under load, in milliseconds.
const HOT_GOAL: Bound = Bound::AtMost(5.0);
/// Minimum fraction of a file that must come from disk for the file to count as cold.
const LEAST_COLD: f64 = 0.8;
/// Duration of the requests for the hot file alone, before clients request cold files.
const ALONE: Duration = Duration::from_secs(1);
/// Scheduling priority (nice value) of the clients that read cold files, so that they do not displace the client of
/// the hot file from its core.
const LEAST_URGENT: i32 = 19;

pub(crate) struct Cold {
    www: PathBuf,
    repo: PathBuf,
    file_mib: u64,
    cold_mib: u64,
    servers: Vec<Server>,
}

/// A server to compare: nginx or the gateway.
struct Server {
    name: &'static str,
    hot: String,
    cold: Vec<String>,
    /// Variants of the large file.
    large: Vec<Large>,
    cold_mb_per_second: Series,
    /// 99th percentile of the hot file in milliseconds, alone. The following three are measured with concurrent cold
    /// reads.
    alone_p99: Series,
    p50: Series,
    p99: Series,
    longest: Series,
}

struct Large {
    name: &'static str,
    path: String,
    mb_per_second: Series,
    /// Percentage of the file that came from disk.
    from_disk: Series,
}

/// A server that was started after the cache was dropped, because mapped pages cannot be dropped.
struct Running {
    address: SocketAddr,
    pids: Vec<u32>,
    /// Owner of the server process: one of these two. Dropping it stops the server.
    _gateway: Option<GatewayProcess>,
    _nginx: Option<Nginx>,
}

impl Cold {
    /// Creates the files and a repo that contains them.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let (www, repo) = (site.scratch("cold-www"), site.scratch("cold-repo"));
        let cold_mib = site.options.cold_mib;
        fs::create_dir(&www)?;
        fs::hard_link(site.large_path(), www.join("large"))?;
        fs::write(www.join("hot"), random(21, SMALL_BYTES))?;
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut client = Client::connect(gateway.address())?;
        let mut cold = Vec::new();
        for index in 0..CLIENTS {
            let path = www.join(format!("cold-{index}"));
            write_random_file(&path, index as u64, cold_mib)?;
            cold.push(format!("/ipfs/{}", add_file(&mut client, Profile::DagPb, &mut File::open(&path)?)?));
        }
        let mut form = Multipart::default();
        form.file(&random(21, SMALL_BYTES));
        let hot = format!("/ipfs/{}", form.send(&mut client, Profile::DagPb)?.concat());
        let large = |name, path| Large { name, path, mb_per_second: Series::default(), from_disk: Series::default() };
        let mut ours = Vec::new();
        for (name, profile) in
            [("ipfrs, dag-pb leaves of 256 KiB", Profile::DagPb), ("ipfrs, raw leaves of 1 MiB", Profile::Raw)]
        {
            ours.push(large(name, format!("/ipfs/{}", add_file(&mut client, profile, &mut site.large_file()?)?)));
        }
        let nginx = site.nginx.iter().map(|_| {
            let cold = (0..CLIENTS).map(|index| format!("/cold-{index}")).collect();
            Server::new(NGINX, "/hot".to_owned(), cold, vec![large(NGINX, "/large".to_owned())])
        });
        let servers = nginx.chain([Server::new("ipfrs", hot, cold, ours)]).collect();
        Ok(Self { www, repo, file_mib: site.options.file_mib, cold_mib, servers })
    }

    fn start(&self, site: &Site, name: &str, round: usize) -> Result<Running> {
        drop_from_cache(&self.www)?;
        drop_from_cache(&self.repo)?;
        site.cores.for_servers()?;
        let running = if name == NGINX {
            let directory = site.scratch(&format!("cold-nginx-{round}"));
            if directory.exists() {
                fs::remove_dir_all(&directory)?;
            }
            let nginx = Nginx::start(&directory, &self.www)?;
            let (_, address) = nginx.servers()[0];
            Running { address, pids: nginx.workers().to_vec(), _gateway: None, _nginx: Some(nginx) }
        } else {
            let gateway = GatewayProcess::start(&self.repo, Some(1))?;
            let (address, pids) = (gateway.address(), vec![gateway.pid()]);
            Running { address, pids, _gateway: Some(gateway), _nginx: None }
        };
        site.cores.for_clients()?;
        Ok(running)
    }
}

impl Server {
    fn new(name: &'static str, hot: String, cold: Vec<String>, large: Vec<Large>) -> Self {
        let [cold_mb_per_second, alone_p99, p50, p99, longest] = Default::default();
        Self { name, hot, cold, large, cold_mb_per_second, alone_p99, p50, p99, longest }
    }

    /// Requests the hot file continuously while other clients read one cold file each.
    fn mixed(&mut self, site: &Site, running: &Running) -> Result<()> {
        let cold_bytes = site.options.cold_mib << 20;
        let mut client = Client::connect(running.address)?;
        let request = get(&self.hot);
        let mut time_request =
            |times: &mut Latencies| times.time(|| client.exchange(&request, 200, SMALL_BYTES as u64));
        let (start, mut alone, mut beside) = (Instant::now(), Latencies::default(), Latencies::default());
        while start.elapsed() < ALONE {
            time_request(&mut alone)?;
        }
        let (reading, read_before) = (AtomicUsize::new(self.cold.len()), read_from_disk(&running.pids)?);
        let start = Instant::now();
        let seconds = thread::scope(|scope| {
            let read = |path: &str| {
                let exchange = || {
                    setpriority_process(None, LEAST_URGENT)?;
                    Client::connect(running.address)?.exchange(&get(path), 200, cold_bytes)
                };
                // Decrement the count on failure too, because the main client waits for all readers.
                let done = exchange();
                reading.fetch_sub(1, Ordering::Relaxed);
                done.map(|()| start.elapsed().as_secs_f64())
            };
            let readers: Vec<_> = self.cold.iter().map(|path| scope.spawn(move || read(path))).collect();
            while reading.load(Ordering::Relaxed) > 0 {
                time_request(&mut beside)?;
            }
            readers.into_iter().try_fold(0.0_f64, |longest, reader| {
                let seconds = reader.join().map_err(|_| anyhow!("a reader panicked"))?;
                Ok::<_, anyhow::Error>(longest.max(seconds?))
            })
        })?;
        let bytes = cold_bytes as f64 * self.cold.len() as f64;
        ensure_cold(site, read_from_disk(&running.pids)? - read_before, bytes)?;
        self.cold_mb_per_second.push(bytes / 1e6 / seconds);
        self.alone_p99.push(alone.quantile(0.99));
        self.p50.push(beside.quantile(0.5));
        self.p99.push(beside.quantile(0.99));
        self.longest.push(beside.quantile(1.0));
        Ok(())
    }
}

/// Returns the percentage of `bytes` that came from disk. If no figures are requested, the files may be in memory.
fn ensure_cold(site: &Site, read: f64, bytes: f64) -> Result<f64> {
    let share = read / bytes;
    ensure!(
        !site.options.arguments.is_full || share >= LEAST_COLD,
        "only {:.0} % of a file that should be cold was read from the disk",
        share * 100.0
    );
    Ok(share * 100.0)
}

/// Drops the files in a directory from the page cache, except for pages that a process has mapped.
fn drop_from_cache(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_from_cache(&path)?;
        } else {
            let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
            // Unwritten pages are not dropped.
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed).context("the page cache cannot be dropped")?;
        }
    }
    Ok(())
}

impl Measurement for Cold {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for turn in turns(round, self.servers.len()) {
            let name = self.servers[turn].name;
            let running = self.start(site, name, round)?;
            for large in &mut self.servers[turn].large {
                settle();
                let (bytes, before) = (site.large_bytes() as f64, read_from_disk(&running.pids)?);
                let mut client = Client::connect(running.address)?;
                let start = Instant::now();
                client.exchange(&get(&large.path), 200, site.large_bytes())?;
                large.mb_per_second.push(bytes / 1e6 / start.elapsed().as_secs_f64());
                large.from_disk.push(ensure_cold(site, read_from_disk(&running.pids)? - before, bytes)?);
            }
            drop(running);
            let running = self.start(site, name, round)?;
            settle();
            self.servers[turn].mixed(site, &running)?;
        }
        // Load the large file into the page cache again for the other parts.
        io::copy(&mut site.large_file()?, &mut io::sink())?;
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let large = self.servers.iter().flat_map(|server| &server.large).map(|large| {
            vec![large.name.to_owned(), large.mb_per_second.show(0), format!("{:.0}", large.from_disk.median())]
        });
        let hot = self.servers.iter().map(|server| {
            vec![
                server.name.to_owned(),
                server.cold_mb_per_second.show(0),
                server.alone_p99.show(3),
                server.p50.show(3),
                server.p99.show(3),
                server.longest.show(1),
            ]
        });
        vec![
            Table::new(
                format!("GET of {} MiB that is not in the page cache", self.file_mib),
                ["server", "MB/s", "of it from the disk, %"],
                large,
            ),
            Table::new(
                format!(
                    "GETs of a hot file of 1 KiB, one after the other, while {CLIENTS} clients read a cold file of {} MiB \
                     each, one worker",
                    self.cold_mib
                ),
                ["server", "cold files, MB/s", "hot alone, p99 ms", "hot beside them, p50 ms", "p99 ms", "longest ms"],
                hot,
            ),
        ]
    }

    fn goals(&self) -> Vec<Goal> {
        let large = self.servers.iter().flat_map(|server| &server.large);
        let rates: Vec<_> = large.map(|large| (large.name, &large.mb_per_second)).collect();
        let ours = self.servers.iter().filter(|server| server.name != NGINX);
        let hot = ours.map(|server| Goal {
            what: format!("hot GET of 1 KiB beside {CLIENTS} clients that read cold files, p99 in ms"),
            figure: server.p99.median(),
            bound: HOT_GOAL,
        });
        let what = format!("GET of {} MiB from the disk, MB/s", self.file_mib);
        goals_beside_nginx(&what, &rates, GOAL).into_iter().chain(hot).collect()
    }
}

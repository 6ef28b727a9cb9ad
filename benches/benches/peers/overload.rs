//! Overload: ten times as many clients as the gateway takes requests at once, beside a download and health checks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{
    Answered, Bound, Client, GatewayProcess, Goal, Latencies, Offsets, Profile, Series, Settings, Table, add_file, get,
    get_range, send_and_receive,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::figures::{Measurement, turns};
use crate::site::Site;

/// `gateway.max_concurrent_requests` of the measured gateway.
const CAPACITY: usize = 64;
/// Clients without and with overload.
const CLIENTS: [usize; 2] = [CAPACITY, 10 * CAPACITY];
/// Bytes of each requested range.
const RANGE_BYTES: u64 = 256 * 1_024;
/// Interval of health checks.
const HEALTH_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that the download reads, and how often.
const DOWNLOAD_BYTES: usize = 64 * 1_024;
const DOWNLOAD_INTERVAL: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 64 * 1_024;

/// Required ratios: of responses per second with overload to those without, and of their 99th percentiles.
const RATE_GOAL: Bound = Bound::AtLeast(0.9);
const P99_GOAL: Bound = Bound::AtMost(3.0);

pub(crate) struct Overload {
    gateway: GatewayProcess,
    path: String,
    file_bytes: u64,
    loads: [Load; CLIENTS.len()],
}

#[derive(Default)]
struct Load {
    per_second: Series,
    p99_ms: Series,
    refused_per_second: Series,
    health_p99_ms: Series,
    /// Connections that ended, health checks and downloads included.
    errors: Series,
}

/// Responses and failures of one client.
#[derive(Default)]
struct Seen {
    latencies: Latencies,
    refused: u64,
    errors: u64,
}

impl Overload {
    /// Adds the large file to a repo of its own and starts the gateway.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let repo = site.scratch("overload-repo");
        let gateway = GatewayProcess::start(&repo, None)?;
        let large = add_file(&mut Client::connect(gateway.address())?, Profile::DagPb, &mut site.large_file()?)?;
        drop(gateway);
        site.cores.for_servers()?;
        let limit = Some(CAPACITY);
        let settings = Settings { workers: Some(1), max_concurrent_requests: limit, ..Settings::default() };
        let gateway = GatewayProcess::start_with(&repo, &settings)?;
        site.cores.for_clients()?;
        Ok(Self { gateway, path: format!("/ipfs/{large}"), file_bytes: site.large_bytes(), loads: Default::default() })
    }
}

impl Measurement for Overload {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let seconds = site.options.wrk_seconds;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        for turn in turns(round, CLIENTS.len()) {
            let target =
                Target { server: self.gateway.address(), path: self.path.as_str().into(), file_bytes: self.file_bytes };
            let (all, health, download) = runtime.block_on(load(&target, CLIENTS[turn], Duration::from_secs(seconds)));
            let load = &mut self.loads[turn];
            load.per_second.push(all.latencies.count() as f64 / seconds as f64);
            load.p99_ms.push(all.latencies.quantile(0.99));
            load.refused_per_second.push(all.refused as f64 / seconds as f64);
            load.health_p99_ms.push(health.latencies.quantile(0.99));
            load.errors.push((all.errors + health.errors + health.refused + download.errors + download.refused) as f64);
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |(clients, load): (usize, &Load)| {
            vec![
                clients.to_string(),
                load.per_second.show(0),
                load.p99_ms.show(1),
                load.refused_per_second.show(0),
                load.health_p99_ms.show(1),
                format!("{:.0}", load.errors.max()),
            ]
        };
        vec![Table::new(
            format!("Overload: ranges of 256 KiB, {CAPACITY} requests at once, one worker"),
            [
                "clients",
                "responses/s",
                "their p99 ms",
                "refused/s",
                "health check, p99 ms",
                "ended connections and failed health checks or downloads in a run",
            ],
            CLIENTS.into_iter().zip(&self.loads).map(row),
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let [calm, crowded] = &self.loads;
        let what = |what: &str| format!("overload, {} / {} clients: {what}", CLIENTS[1], CLIENTS[0]);
        let goal = |name: &str, over: &Series, under: &Series, bound| Goal {
            what: what(name),
            figure: over.median() / under.median(),
            bound,
        };
        vec![
            goal("responses/s", &crowded.per_second, &calm.per_second, RATE_GOAL),
            goal("their p99", &crowded.p99_ms, &calm.p99_ms, P99_GOAL),
            Goal {
                what: "overload: ended connections, failed health checks and downloads, all rounds".to_owned(),
                figure: calm.errors.sum() + crowded.errors.sum(),
                bound: Bound::AtMost(0.0),
            },
        ]
    }
}

/// A large file at the gateway.
#[derive(Clone)]
struct Target {
    server: SocketAddr,
    path: Arc<str>,
    file_bytes: u64,
}

/// Sends requests for `time`. Returns the results of all clients, of the health checks and of a slow download.
async fn load(target: &Target, clients: usize, time: Duration) -> (Seen, Seen, Seen) {
    let end = Instant::now() + time;
    let download = tokio::spawn(download(target.clone(), end));
    let health = tokio::spawn(health(target.server, end));
    let mut running = JoinSet::new();
    for number in 0..clients {
        running.spawn(client(target.clone(), number, end));
    }
    let mut all = Seen::default();
    while let Some(seen) = running.join_next().await {
        let seen = seen.unwrap_or_else(|_| Seen { errors: 1, ..Seen::default() });
        all.latencies.extend(&seen.latencies);
        all.refused += seen.refused;
        all.errors += seen.errors;
    }
    let ended = |seen: Result<Seen, _>| seen.unwrap_or_else(|_| Seen { errors: 1, ..Seen::default() });
    (all, ended(health.await), ended(download.await))
}

/// Requests one range after the other, at random offsets.
async fn client(target: Target, number: usize, end: Instant) -> Seen {
    let mut offsets = Offsets::seeded(target.file_bytes, RANGE_BYTES, number as u64);
    repeat(target.server, number, end, Duration::ZERO, || {
        get_range(&target.path, offsets.next().unwrap_or_default(), RANGE_BYTES)
    })
    .await
}

async fn health(server: SocketAddr, end: Instant) -> Seen {
    repeat(server, CLIENTS[1], end, HEALTH_INTERVAL, || get("/health")).await
}

/// Sends a request, reads the response, and waits for `pause`, or after a refusal as long as the response says, until
/// `end`. Connects again after an error.
async fn repeat(
    server: SocketAddr,
    number: usize,
    end: Instant,
    pause: Duration,
    mut request: impl FnMut() -> Vec<u8>,
) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let exchanges = async {
            let mut stream = connect(server, number).await?;
            let mut buffer = vec![0; BUFFER_BYTES];
            loop {
                let start = Instant::now();
                let wait = match exchange(&mut stream, &request(), &mut buffer).await? {
                    None => {
                        seen.latencies.push(start.elapsed().as_secs_f64() * 1e3);
                        pause
                    }
                    Some(wait) => {
                        seen.refused += 1;
                        wait
                    }
                };
                sleep(wait).await;
            }
        };
        let ended: Result<Result<()>, _> = timeout_at(end, exchanges).await;
        seen.errors += u64::from(matches!(ended, Ok(Err(_))));
    }
    seen
}

/// Reads the whole file slowly until `end`.
async fn download(target: Target, end: Instant) -> Seen {
    let read = async {
        let mut stream = connect(target.server, CLIENTS[1] + 1).await?;
        stream.write_all(&get(&target.path)).await?;
        let mut buffer = vec![0; DOWNLOAD_BYTES];
        loop {
            ensure!(stream.read(&mut buffer).await? > 0, "the download ended");
            sleep(DOWNLOAD_INTERVAL).await;
        }
    };
    let ended: Result<Result<()>, _> = timeout_at(end, read).await;
    Seen { errors: u64::from(ended.is_ok()), ..Seen::default() }
}

/// Connects from an address of the client's own, because the gateway divides its permits among addresses.
async fn connect(server: SocketAddr, number: usize) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let own = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + u32::try_from(number)?);
    socket.bind((own, 0).into())?;
    let stream = socket.connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads the response. Returns how long to wait if it was refused.
async fn exchange(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> Result<Option<Duration>> {
    let Answered { head, status, .. } = send_and_receive(stream, request, buffer).await?;
    match status {
        200 | 206 => Ok(None),
        429 | 503 => {
            let seconds =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("retry-after: ")?.parse().ok());
            Ok(Some(Duration::from_secs(seconds.context("a refusal does not say when to come back")?)))
        }
        _ => bail!("unexpected response: {head}"),
    }
}

//! Overload: ten times as many clients as the gateway takes requests at once, beside a download and health checks.
//! Clients that read at once keep the processor busy and no request in progress, so they wait for each other. Clients
//! that read slowly take all permits. nginx, which refuses none, serves the same clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::nginx::NGINX;
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
/// Kinds of clients.
const KINDS: [Kind; 2] = [
    Kind { name: "256 KiB, read at once", range_bytes: 256 * 1_024, pause: Duration::ZERO },
    Kind { name: "1 MiB, read at 16 MB/s", range_bytes: 1_024 * 1_024, pause: Duration::from_millis(4) },
];
/// Receive buffer of a client, in bytes. What fits into buffers is no longer in progress for the gateway.
const RECEIVE_BUFFER: u32 = 128 * 1_024;
/// Interval of health checks.
const HEALTH_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes that the download reads, and how often.
const DOWNLOAD_BYTES: usize = 64 * 1_024;
const DOWNLOAD_INTERVAL: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 64 * 1_024;

/// Required ratios: of responses per second with overload to those without, and of their 99th percentiles.
const RATE_GOAL: Bound = Bound::AtLeast(0.9);
const P99_GOAL: Bound = Bound::AtMost(3.0);

/// Name of the gateway in the report.
const IPFRS: &str = "ipfrs";

pub(crate) struct Overload {
    servers: Vec<Server>,
    _gateway: GatewayProcess,
}

/// A server with its results.
struct Server {
    name: &'static str,
    target: Target,
    /// Results for each of [`KINDS`] and [`CLIENTS`].
    loads: [[Load; CLIENTS.len()]; KINDS.len()],
}

/// A kind of clients.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Bytes of each requested range.
    range_bytes: u64,
    /// Pause after each read of at most [`BUFFER_BYTES`].
    pause: Duration,
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
        let server = |name, server, path: &str, health: &str| {
            let target = Target { server, path: path.into(), health: health.into(), file_bytes: site.large_bytes() };
            Server { name, target, loads: Default::default() }
        };
        let mut servers = Vec::new();
        let of_nginx = site.large.iter().zip(&site.small).find(|(large, _)| large.name == NGINX);
        if let Some((large, small)) = of_nginx {
            servers.push(server(NGINX, large.address, &large.path, &small.path));
        }
        servers.push(server(IPFRS, gateway.address(), &format!("/ipfs/{large}"), "/health"));
        Ok(Self { servers, _gateway: gateway })
    }
}

impl Measurement for Overload {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let seconds = site.options.wrk_seconds;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        for (index, kind) in KINDS.into_iter().enumerate() {
            for turn in turns(round, CLIENTS.len()) {
                for server in turns(round, self.servers.len()) {
                    let Server { target, loads, .. } = &mut self.servers[server];
                    let time = Duration::from_secs(seconds);
                    let (all, health, download) = runtime.block_on(load(target, kind, CLIENTS[turn], time));
                    let load = &mut loads[index][turn];
                    load.per_second.push(all.latencies.count() as f64 / seconds as f64);
                    load.p99_ms.push(all.latencies.quantile(0.99));
                    load.refused_per_second.push(all.refused as f64 / seconds as f64);
                    load.health_p99_ms.push(health.latencies.quantile(0.99));
                    let others = health.errors + health.refused + download.errors + download.refused;
                    load.errors.push((all.errors + others) as f64);
                }
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |kind: Kind, clients: usize, server: &str, load: &Load| {
            vec![
                kind.name.to_owned(),
                clients.to_string(),
                server.to_owned(),
                load.per_second.show(0),
                load.p99_ms.show(1),
                load.refused_per_second.show(0),
                load.health_p99_ms.show(1),
                format!("{:.0}", load.errors.max()),
            ]
        };
        let mut rows = Vec::new();
        for (index, kind) in KINDS.into_iter().enumerate() {
            for (turn, clients) in CLIENTS.into_iter().enumerate() {
                for server in &self.servers {
                    rows.push(row(kind, clients, server.name, &server.loads[index][turn]));
                }
            }
        }
        vec![Table::new(
            format!("Overload: ranges of a file, {CAPACITY} requests at once, one worker"),
            [
                "range",
                "clients",
                "server",
                "responses/s",
                "their p99 ms",
                "refused/s",
                "health check, p99 ms",
                "ended connections and failed health checks or downloads in a run",
            ],
            rows,
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let ratio = |over: &Series, under: &Series| over.median() / under.median();
        let Some(gateway) = self.servers.iter().find(|server| server.name == IPFRS) else { return Vec::new() };
        let goals = KINDS.into_iter().zip(&gateway.loads).flat_map(|(kind, [calm, crowded])| {
            let what = |what: &str| format!("overload, {}, {} / {} clients: {what}", kind.name, CLIENTS[1], CLIENTS[0]);
            let rate = ratio(&crowded.per_second, &calm.per_second);
            let p99 = ratio(&crowded.p99_ms, &calm.p99_ms);
            [
                Goal { what: what("responses/s"), figure: rate, bound: RATE_GOAL },
                Goal { what: what("their p99"), figure: p99, bound: P99_GOAL },
            ]
        });
        let ended = Goal {
            what: "overload: ended connections, failed health checks and downloads, all rounds".to_owned(),
            figure: gateway.loads.iter().flatten().map(|load| load.errors.sum()).sum(),
            bound: Bound::AtMost(0.0),
        };
        goals.chain([ended]).collect()
    }
}

/// A large file at a server.
#[derive(Clone)]
struct Target {
    server: SocketAddr,
    path: Arc<str>,
    /// Path that health checks request.
    health: Arc<str>,
    file_bytes: u64,
}

/// Sends requests for `time`. Returns the results of all clients, of the health checks and of a slow download.
async fn load(target: &Target, kind: Kind, clients: usize, time: Duration) -> (Seen, Seen, Seen) {
    let end = Instant::now() + time;
    let download = tokio::spawn(download(target.clone(), end));
    let health = tokio::spawn(health(target.clone(), end));
    let mut running = JoinSet::new();
    for number in 0..clients {
        running.spawn(client(target.clone(), kind, number, end));
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
async fn client(target: Target, kind: Kind, number: usize, end: Instant) -> Seen {
    let bytes = kind.range_bytes;
    let mut offsets = Offsets::seeded(target.file_bytes, bytes, number as u64);
    let pauses = Pauses { reads: kind.pause, requests: Duration::ZERO };
    repeat(target.server, number, end, pauses, || get_range(&target.path, offsets.next().unwrap_or_default(), bytes))
        .await
}

async fn health(target: Target, end: Instant) -> Seen {
    let pauses = Pauses { reads: Duration::ZERO, requests: HEALTH_INTERVAL };
    repeat(target.server, CLIENTS[1], end, pauses, || get(&target.health)).await
}

/// Pauses of a client.
#[derive(Clone, Copy)]
struct Pauses {
    /// After each read of at most [`BUFFER_BYTES`].
    reads: Duration,
    /// Between a response and the next request. After a refusal the client waits as long as the response says.
    requests: Duration,
}

/// Sends a request and reads the response, again and again until `end`. Connects again after an error.
async fn repeat(
    server: SocketAddr,
    number: usize,
    end: Instant,
    pauses: Pauses,
    mut request: impl FnMut() -> Vec<u8>,
) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let exchanges = async {
            let mut stream = connect(server, number).await?;
            let mut buffer = vec![0; BUFFER_BYTES];
            loop {
                let start = Instant::now();
                let wait = match exchange(&mut stream, &request(), &mut buffer, pauses.reads).await? {
                    None => {
                        seen.latencies.push(start.elapsed().as_secs_f64() * 1e3);
                        pauses.requests
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
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    let stream = socket.connect(server).await.with_context(|| format!("cannot connect to {server}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request and reads the response. Returns how long to wait if it was refused.
async fn exchange(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &mut [u8],
    pause: Duration,
) -> Result<Option<Duration>> {
    let Answered { head, status, .. } = send_and_receive(stream, request, buffer, pause).await?;
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

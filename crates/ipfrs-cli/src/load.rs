//! Load generator of `bench http`. Persistent connections send one request after the other, either when the last
//! response has arrived or when the next request is due. Responses are counted and discarded.

mod line;
mod open_files;
mod schedule;
mod tally;
mod target;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use tokio::net::{TcpStream, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

use self::line::{Line, Server};
use self::schedule::{Schedule, Ticket};
use self::tally::Fault;
pub(crate) use self::tally::Tally;
pub(crate) use self::target::{Base, Span, Targets};
use crate::progress::Progress;

/// Number of separate tallies, so that tasks rarely wait for each other's lock.
const SHARDS: usize = 8;
/// Maximum number of connections that are opened concurrently.
const OPENING: usize = 256;
/// Maximum number of concurrent requests over all connections.
const MAX_LINES: usize = 100_000;
/// Pause after a failed attempt to open a connection.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Interval between updates of the progress bar.
const LOOK: Duration = Duration::from_millis(100);

/// Parameters of a load.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Concurrent requests per connection. 1 unless HTTP/2 is used.
    pub(crate) streams: usize,
    pub(crate) is_http2: bool,
    /// Requests per second over all connections. `None` sends each request when the previous response has arrived.
    pub(crate) rate: Option<f64>,
    /// Duration after which the run ends.
    pub(crate) duration: Option<Duration>,
    /// Number of requests after which the run ends.
    pub(crate) requests: Option<u64>,
    /// Initial period during which requests do not count.
    pub(crate) warmup: Duration,
    /// Timeout of each request, and of opening a connection.
    pub(crate) timeout: Duration,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Measured duration.
    pub(crate) elapsed: Duration,
    pub(crate) is_interrupted: bool,
    /// Requests that were in progress at the end.
    pub(crate) unfinished: u64,
    /// Requests that were due before the end but could not be sent.
    pub(crate) unsent: u64,
    /// Connections that replaced an earlier one.
    pub(crate) reopened: u64,
}

/// State shared by all tasks.
#[derive(Debug)]
struct Run {
    targets: Targets,
    schedule: Schedule,
    shards: Vec<Mutex<Tally>>,
    timeout: Duration,
}

impl Load {
    /// Loads the server at `base` until the run ends or the process receives an interrupt.
    ///
    /// # Errors
    /// Returns an error if no server is reachable, or if a file of which ranges are requested does not exist.
    pub(crate) async fn run(&self, base: &Base, mut targets: Targets, progress: &Progress) -> Result<Outcome> {
        if self.connections * self.streams > MAX_LINES {
            bail!("--connections times --streams is over the limit of {MAX_LINES} concurrent requests");
        }
        open_files::make_room(self.connections as u64)?;
        let address = self.reach(base).await?;
        let server = Arc::new(Server::new(address, self.is_http2, self.connections));
        self.request_lengths(&server, &mut targets).await?;
        let shards = (0..SHARDS).map(|_| Tally::new().map(Mutex::new)).collect::<Result<_>>()?;
        let expected = server.opened() + self.connections as u64;
        // From here on, SIGINT no longer terminates the process.
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
        let mut is_interrupted = false;
        let lines = tokio::select! {
            lines = self.open(&server) => lines,
            _ = interrupt.recv() => {
                is_interrupted = true;
                Vec::new()
            }
        };
        let schedule = Schedule::new(self.warmup, self.requests, self.rate);
        let run = Arc::new(Run { targets, schedule, shards, timeout: self.timeout });
        let mut tasks = run.start(lines);
        if !is_interrupted {
            tokio::select! {
                () = self.wait(&run, &mut tasks, progress) => {}
                _ = interrupt.recv() => is_interrupted = true,
            }
        }
        let end = Instant::now();
        run.schedule.end();
        tasks.shutdown().await;
        let tally = run.counted()?;
        let (taken, unsent) = run.schedule.taken_and_left(end);
        Ok(Outcome {
            elapsed: end.saturating_duration_since(run.schedule.measured_from()),
            is_interrupted,
            unfinished: taken.saturating_sub(tally.answers() + tally.failures()),
            unsent,
            reopened: server.opened().saturating_sub(expected),
            tally,
        })
    }

    /// Returns an address that accepts connections.
    async fn reach(&self, base: &Base) -> Result<SocketAddr> {
        let url = base.url();
        let addresses =
            lookup_host(base.address()).await.with_context(|| format!("cannot resolve the host of {url}"))?;
        let mut last = anyhow!("the name has no address");
        for address in addresses {
            match timeout(self.timeout, TcpStream::connect(address)).await {
                Ok(Ok(_)) => return Ok(address),
                Ok(Err(e)) => last = e.into(),
                Err(_) => last = anyhow!("no response within {:?}", self.timeout),
            }
        }
        Err(last.context(format!("cannot connect to {url}: is the gateway running, and is the URL right?")))
    }

    async fn request_lengths(&self, server: &Arc<Server>, targets: &mut Targets) -> Result<()> {
        let Some(mut line) = Line::of_connection(server, 1).pop() else { return Ok(()) };
        for (index, request) in targets.lengths_to_ask().into_iter().enumerate() {
            match timeout(self.timeout, line.exchange(request)).await {
                Ok(Ok(response)) => targets.set_length(index, response.status.as_u16(), &response.headers)?,
                Ok(Err(fault)) => bail!("the server did not report the lengths of the files: {}", fault.name()),
                Err(_) => bail!("the server did not report the lengths of the files within {:?}", self.timeout),
            }
        }
        Ok(())
    }

    /// Opens all connections before the first request, so that no latency includes the time to open one. A connection
    /// that cannot be opened is retried, and counted, with its first request.
    async fn open(&self, server: &Arc<Server>) -> Vec<Line> {
        let connections = (0..self.connections).map(|_| async {
            let mut lines = Line::of_connection(server, self.streams);
            if let Some(line) = lines.first_mut() {
                drop(timeout(self.timeout, line.open()).await);
            }
            lines
        });
        stream::iter(connections).buffer_unordered(OPENING).collect::<Vec<_>>().await.into_iter().flatten().collect()
    }

    /// Waits until all tasks have finished or the time is over.
    async fn wait(&self, run: &Run, tasks: &mut JoinSet<()>, progress: &Progress) {
        let end = self.duration.map(|duration| run.schedule.measured_from() + duration);
        let over = async {
            match end {
                Some(end) => sleep_until(end.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                () = &mut over => return,
                task = tasks.join_next() => if task.is_none() { return },
                _ = look.tick(), if progress.is_shown() => {
                    let passed = run.schedule.measured_from().elapsed();
                    progress.passed(passed, run.finished());
                }
            }
        }
    }
}

impl Run {
    /// Starts one task per line, and a thread that releases requests when they are due.
    fn start(self: &Arc<Self>, lines: Vec<Line>) -> JoinSet<()> {
        let count = lines.len();
        let mut tasks = JoinSet::new();
        for (index, line) in lines.into_iter().enumerate() {
            let run = Arc::clone(self);
            tasks.spawn(async move { run.drive(line, index % SHARDS).await });
        }
        let run = Arc::clone(self);
        tasks.spawn_blocking(move || run.schedule.keep_pace(count));
        tasks
    }

    /// Sends one request after the other.
    async fn drive(&self, mut line: Line, shard: usize) {
        while let Some(ticket) = self.schedule.next().await {
            let request = self.targets.request(ticket.number);
            let outcome = match timeout(self.timeout, line.exchange(request)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    line.give_up();
                    Err(Fault::Timeout)
                }
            };
            let latency = ticket.start.elapsed();
            let is_refused = matches!(outcome, Err(Fault::Connect));
            self.count(&ticket, shard, |tally| match outcome {
                Ok(response) => tally.answered(latency, &response),
                Err(fault) => tally.failed(fault),
            });
            if is_refused {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    fn count(&self, ticket: &Ticket, shard: usize, into: impl FnOnce(&mut Tally)) {
        let mut tally = self.shards[shard].lock();
        if ticket.counts && !self.schedule.is_over() {
            into(&mut tally);
        }
    }

    /// Returns the number of finished requests that count.
    fn finished(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock()).map(|tally| tally.answers() + tally.failures()).sum()
    }

    fn counted(&self) -> Result<Tally> {
        let mut all = Tally::new()?;
        self.shards.iter().try_for_each(|shard| all.add(&shard.lock()))?;
        Ok(all)
    }
}

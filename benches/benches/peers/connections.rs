//! Many persistent connections: the memory of an idle one, and the latency while all of them are in use.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::{
    Axis, Bound, Chart, Client, Crowd, GatewayProcess, Goal, Line, Multipart, Point, Profile, Series, Table, get,
    process, random,
};

use crate::figures::{Measurement, turns};
use crate::site::Site;
use ipfrs_benches::nginx::{NGINX, Nginx};

const SMALL_BYTES: usize = 1_024;
/// Size of the response that each connection fetches before it counts as idle, in bytes.
const LARGE_BYTES: usize = 1 << 20;
/// Time for servers to release memory that they no longer need.
const SETTLE: Duration = Duration::from_secs(1);
/// Duration for which connections are held, as a multiple of a load generator run: 30 seconds by default.
const HOLD: u64 = 15;
/// Maximum anonymous memory of an idle connection, in kilobytes.
const GOAL_KB: f64 = 12.0;
/// Number of open files of a server in addition to the measured connections.
const OTHER_FILES: u64 = 256;

pub(crate) struct Connections {
    /// Numbers of connections, in steps.
    steps: Vec<usize>,
    seconds: u32,
    www: PathBuf,
    repo: PathBuf,
    /// Paths at the gateway.
    small: String,
    large: String,
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    /// Anonymous memory in MB, in excess of the initial amount, for each of the steps.
    megabytes: Vec<Series>,
    p50_ms: Series,
    p99_ms: Series,
    longest_ms: Series,
    late: Series,
    errors: Series,
}

/// A server that runs for one round.
struct Running {
    address: SocketAddr,
    pids: Vec<u32>,
    small: String,
    large: String,
    /// Owner of the server process: one of these two. Dropping it stops the server.
    _gateway: Option<GatewayProcess>,
    _nginx: Option<Nginx>,
}

impl Connections {
    /// Creates the files and a repo that contains them.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let most = site.options.connections;
        let limit = process::open_file_limit();
        ensure!(
            limit.is_none_or(|limit| limit >= most as u64 + OTHER_FILES),
            "{most} connections need {} open files where {} are allowed: raise the hard limit (ulimit -H -n), or set \
             CONNECTIONS",
            most as u64 + OTHER_FILES,
            limit.unwrap_or_default()
        );
        let (www, repo) = (site.scratch("connections-www"), site.scratch("connections-repo"));
        fs::create_dir(&www)?;
        let (small, large) = (random(11, SMALL_BYTES), random(12, LARGE_BYTES));
        fs::write(www.join("small"), &small)?;
        fs::write(www.join("large"), &large)?;
        let gateway = GatewayProcess::start(&repo, None)?;
        let mut form = Multipart::default();
        form.file(&small);
        form.file(&large);
        let cids = form.send(&mut Client::connect(gateway.address())?, Profile::DagPb)?;
        let [small, large] = &cids[..] else { bail!("two files were added, but {} were reported", cids.len()) };
        let steps: Vec<_> = [100, 1_000, 10_000].into_iter().filter(|step| *step < most).chain([most]).collect();
        let names = site.nginx.iter().map(|_| NGINX).chain(["ipfrs"]);
        let servers = names.map(|name| Server {
            name,
            megabytes: vec![Series::default(); steps.len()],
            p50_ms: Series::default(),
            p99_ms: Series::default(),
            longest_ms: Series::default(),
            late: Series::default(),
            errors: Series::default(),
        });
        Ok(Self {
            seconds: u32::try_from(site.options.wrk_seconds * HOLD)?,
            www,
            repo,
            small: format!("/ipfs/{small}"),
            large: format!("/ipfs/{large}"),
            servers: servers.collect(),
            steps,
        })
    }

    fn most(&self) -> usize {
        self.steps.last().copied().unwrap_or_default()
    }

    /// Starts the server anew in each round, so that its memory belongs to the connections of this round.
    fn start(&self, site: &Site, name: &str, round: usize) -> Result<Running> {
        site.cores.for_servers()?;
        let running = if name == NGINX {
            let nginx = Nginx::start(&site.scratch(&format!("connections-nginx-{round}")), &self.www)?;
            let (_, address) = nginx.servers()[0];
            Running {
                address,
                pids: nginx.workers().to_vec(),
                small: "/small".to_owned(),
                large: "/large".to_owned(),
                _gateway: None,
                _nginx: Some(nginx),
            }
        } else {
            let gateway = GatewayProcess::start(&self.repo, Some(1))?;
            Running {
                address: gateway.address(),
                pids: vec![gateway.pid()],
                small: self.small.clone(),
                large: self.large.clone(),
                _gateway: Some(gateway),
                _nginx: None,
            }
        };
        site.cores.for_clients()?;
        Ok(running)
    }
}

impl Running {
    fn anonymous_mb(&self) -> Result<f64> {
        let mut bytes = 0;
        for pid in &self.pids {
            bytes += process::memory(*pid)?.anonymous;
        }
        Ok(bytes as f64 / 1e6)
    }

    fn measure(&self, steps: &[usize], seconds: u32, server: &mut Server) -> Result<()> {
        // Let the server allocate its permanent memory first, which belongs to no connection.
        let mut first = Client::connect(self.address)?;
        for (path, bytes) in [(&self.large, LARGE_BYTES), (&self.small, SMALL_BYTES)] {
            first.exchange(&get(path), 200, bytes as u64)?;
        }
        drop(first);
        sleep(SETTLE);
        let before = self.anonymous_mb()?;
        let mut crowd = Crowd::new(self.address)?;
        for (step, megabytes) in steps.iter().zip(&mut server.megabytes) {
            crowd.grow(*step, &get(&self.large), LARGE_BYTES as u64)?;
            sleep(SETTLE);
            megabytes.push((self.anonymous_mb()? - before).max(0.0));
        }
        let served = crowd.hold(&get(&self.small), SMALL_BYTES as u64, seconds);
        server.p50_ms.push(served.latencies.quantile(0.5));
        server.p99_ms.push(served.latencies.quantile(0.99));
        server.longest_ms.push(served.latencies.quantile(1.0));
        server.late.push(served.late as f64);
        server.errors.push(served.errors as f64);
        Ok(())
    }
}

impl Measurement for Connections {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for turn in turns(round, self.servers.len()) {
            let name = self.servers[turn].name;
            let running = self.start(site, name, round)?;
            let measured = running.measure(&self.steps, self.seconds, &mut self.servers[turn]);
            measured.with_context(|| format!("{name} did not serve them"))?;
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let memory = self.steps.iter().enumerate().flat_map(|(index, step)| {
            self.servers.iter().map(move |server| {
                let megabytes = &server.megabytes[index];
                let each = megabytes.median() * 1e3 / *step as f64;
                vec![step.to_string(), server.name.to_owned(), megabytes.show(1), format!("{each:.1}")]
            })
        });
        let served = self.servers.iter().map(|server| {
            vec![
                server.name.to_owned(),
                server.p50_ms.show(2),
                server.p99_ms.show(2),
                server.longest_ms.show(0),
                format!("{:.0}", server.late.max()),
                format!("{:.0}", server.errors.max()),
            ]
        });
        vec![
            Table::new(
                "Idle connections, each of which has fetched 1 MiB, one worker",
                ["connections", "server", "anonymous memory (RssAnon), MB more than before", "KB for each"],
                memory,
            ),
            Table::new(
                format!(
                    "{} connections, a GET of 1 KiB on each once a second for {} s, one worker",
                    self.most(),
                    self.seconds
                ),
                [
                    "server",
                    "p50 ms",
                    "p99 ms",
                    "longest ms",
                    "maximum of responses over a second in a run",
                    "maximum of errors in a run",
                ],
                served,
            ),
        ]
    }

    fn charts(&self) -> Vec<Chart> {
        let lines = self.servers.iter().enumerate().map(|(color, server)| Line {
            name: server.name.to_owned(),
            color,
            is_dashed: false,
            points: self.steps.iter().zip(&server.megabytes).map(|(x, mb)| Point::of(*x as f64, mb, 1.0)).collect(),
        });
        vec![Chart {
            name: "connections-memory".to_owned(),
            title: "Memory of idle connections, each of which has fetched 1 MiB".to_owned(),
            x: Axis::logarithmic("connections"),
            y: Axis::linear("anonymous memory, MB"),
            lines: lines.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let Some(ours) = self.servers.iter().find(|server| server.name != NGINX) else { return Vec::new() };
        let most = self.most();
        let megabytes = ours.megabytes.last().map_or(0.0, Series::median);
        vec![
            Goal {
                what: format!("{most} idle connections: KB of anonymous memory for each"),
                figure: megabytes * 1e3 / most as f64,
                bound: Bound::AtMost(GOAL_KB),
            },
            Goal {
                what: format!(
                    "{most} connections, a GET on each once a second: errors and responses over a second, all rounds"
                ),
                figure: ours.errors.sum() + ours.late.sum(),
                bound: Bound::AtMost(0.0),
            },
        ]
    }
}

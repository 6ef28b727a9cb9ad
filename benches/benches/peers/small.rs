//! GETs of 1 KiB on persistent connections, from wrk and from our own client.

use std::time::{Duration, Instant};

use anyhow::Result;
use ipfrs_benches::process::{cpu_seconds, ended_children_cpu_seconds};
use ipfrs_benches::{Axis, Bound, Chart, Goal, Line, Point, Series, Table, get, load, random};

use crate::figures::{Measurement, goals_beside_nginx, names, turns};
use crate::site::{SMALL_BYTES, Site, Target};
use crate::wrk;

const CONNECTIONS: [u32; 3] = [1, 64, 1_000];
/// Required ratios to nginx: of requests per second, and of the 99th percentile.
const GOAL: Bound = Bound::AtLeast(1.3);
const P99_GOAL: Bound = Bound::AtMost(1.0);
/// A client whose core is busier than this fraction is the bottleneck.
const LIMITING: f64 = 0.95;

/// Load generator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Wrk,
    Ours,
}

impl Sender {
    fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Ours => "ours",
        }
    }
}

pub(crate) struct SmallGets {
    /// wrk, if it is installed, and our own client.
    senders: Vec<Sender>,
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    /// Loads for each of [`CONNECTIONS`], one for each of the senders.
    loads: [Vec<Load>; CONNECTIONS.len()],
}

#[derive(Default, Clone)]
struct Load {
    per_second: Series,
    p50_ms: Series,
    p99_ms: Series,
    /// Utilization of the client's core and of the server's core, in percent.
    client_busy: Series,
    server_busy: Series,
    errors: Series,
}

impl SmallGets {
    pub(crate) fn new(site: &Site) -> Self {
        let wrk = site.wrk_version.as_ref().map(|_| Sender::Wrk);
        let senders: Vec<_> = wrk.into_iter().chain([Sender::Ours]).collect();
        let loads = || CONNECTIONS.map(|_| vec![Load::default(); senders.len()]);
        let servers = names(&site.small).into_iter().map(|name| Server { name, loads: loads() }).collect();
        Self { senders, servers }
    }

    /// Returns the index of the sender whose figures the goals use: wrk, unless wrk is the bottleneck.
    fn judge(&self, connections: usize) -> usize {
        let limits = |load: &Load| load.client_busy.median() > LIMITING * 100.0;
        let is_limited = self.servers.iter().any(|server| limits(&server.loads[connections][0]));
        if is_limited { self.senders.len() - 1 } else { 0 }
    }
}

impl Load {
    /// Runs the load once.
    fn measure(&mut self, sender: Sender, target: &Target, connections: u32, seconds: u64) -> Result<()> {
        let (start, before) = (Instant::now(), cpu_seconds(&target.pids)?);
        match sender {
            Sender::Wrk => {
                let client_before = ended_children_cpu_seconds()?;
                let run = wrk::run(target, connections, seconds)?;
                self.client_busy.push((ended_children_cpu_seconds()? - client_before) / seconds as f64 * 100.0);
                self.per_second.push(run.per_second);
                self.p50_ms.push(run.p50_ms);
                self.p99_ms.push(run.p99_ms);
                self.errors.push(run.errors);
            }
            Sender::Ours => {
                let (time, body) = (Duration::from_secs(seconds), random(0, SMALL_BYTES));
                let run = load(target.address, &get(&target.path), &body, connections as usize, time)?;
                self.client_busy.push(run.busy * 100.0);
                self.per_second.push(run.per_second);
                self.p50_ms.push(run.quantile(0.5));
                self.p99_ms.push(run.quantile(0.99));
                // The first error would have ended the run.
                self.errors.push(0.0);
            }
        }
        self.server_busy.push((cpu_seconds(&target.pids)? - before) / start.elapsed().as_secs_f64() * 100.0);
        Ok(())
    }

    fn row(&self, connections: u32, server: &str, sender: Sender) -> Vec<String> {
        vec![
            connections.to_string(),
            server.to_owned(),
            sender.name().to_owned(),
            self.per_second.show(0),
            self.p50_ms.show(3),
            self.p99_ms.show(3),
            format!("{:.0}", self.client_busy.median()),
            format!("{:.0}", self.server_busy.median()),
            format!("{:.0}", self.errors.max()),
        ]
    }
}

impl Measurement for SmallGets {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for (index, connections) in CONNECTIONS.into_iter().enumerate() {
            for (place, sender) in self.senders.iter().enumerate() {
                for turn in turns(round, self.servers.len()) {
                    let load = &mut self.servers[turn].loads[index][place];
                    load.measure(*sender, &site.small[turn], connections, site.options.wrk_seconds)?;
                }
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = CONNECTIONS.into_iter().enumerate().flat_map(|(index, connections)| {
            self.servers.iter().flat_map(move |server| {
                let loads = self.senders.iter().zip(&server.loads[index]);
                loads.map(move |(sender, load)| load.row(connections, server.name, *sender))
            })
        });
        vec![Table::new(
            "GETs of 1 KiB, one worker",
            [
                "connections",
                "server",
                "client",
                "requests/s",
                "p50 ms",
                "p99 ms",
                "client busy, %",
                "server busy, %",
                "maximum of errors in a run",
            ],
            rows,
        )]
    }

    fn charts(&self) -> Vec<Chart> {
        type Percentile = fn(&Load) -> &Series;
        const PERCENTILES: [(&str, Percentile); 2] = [("p50", |load| &load.p50_ms), ("p99", |load| &load.p99_ms)];
        let lines = self.servers.iter().enumerate().flat_map(|(color, server)| {
            PERCENTILES.into_iter().map(move |(percentile, of)| {
                let loads = CONNECTIONS.iter().zip(&server.loads);
                let points = loads.filter_map(|(connections, loads)| {
                    Some(Point::of(f64::from(*connections), of(loads.last()?), 1.0))
                });
                let name = format!("{}, {percentile}", server.name);
                Line { name, color, is_dashed: percentile == "p50", points: points.collect() }
            })
        });
        vec![Chart {
            name: "latency".to_owned(),
            title: "GETs of 1 KiB from our client, one worker: response times".to_owned(),
            x: Axis::logarithmic("connections"),
            y: Axis::logarithmic("ms"),
            lines: lines.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let of_load = |(index, connections): (usize, u32)| {
            type Of = fn(&Load) -> &Series;
            let judge = self.judge(index);
            let series = |of: Of| -> Vec<_> {
                self.servers.iter().map(|server| (server.name, of(&server.loads[index][judge]))).collect()
            };
            let plural = if connections == 1 { "" } else { "s" };
            let sender = self.senders[judge].name();
            let what = format!("1 KiB at {connections} connection{plural} (client: {sender})");
            [
                goals_beside_nginx(&format!("{what}, requests/s"), &series(|load| &load.per_second), GOAL),
                goals_beside_nginx(&format!("{what}, p99"), &series(|load| &load.p99_ms), P99_GOAL),
            ]
            .concat()
        };
        CONNECTIONS.into_iter().enumerate().flat_map(of_load).collect()
    }
}

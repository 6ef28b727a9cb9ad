//! GETs of 1 KiB on connections that are kept alive, from wrk.

use anyhow::Result;
use ipfrs_benches::{Axis, Chart, Line, Point, Series, Table};

use crate::figures::{Bound, Goal, Measurement, goals_beside_nginx, names, turns};
use crate::site::Site;
use crate::wrk;

const CONNECTIONS: [u32; 3] = [1, 64, 1_000];
/// Of nginx: requests/s, and the 99th percentile.
const GOAL: Bound = Bound::AtLeast(1.3);
const P99_GOAL: Bound = Bound::AtMost(1.0);

pub(crate) struct SmallGets {
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    /// For each of [`CONNECTIONS`].
    loads: [Load; CONNECTIONS.len()],
}

#[derive(Default)]
struct Load {
    per_second: Series,
    p50_ms: Series,
    p99_ms: Series,
    errors: Series,
}

impl SmallGets {
    pub(crate) fn new(site: &Site) -> Self {
        // Without wrk there is nothing to show.
        let names = if site.wrk_version.is_some() { names(&site.small) } else { Vec::new() };
        Self { servers: names.into_iter().map(|name| Server { name, loads: Default::default() }).collect() }
    }
}

impl Measurement for SmallGets {
    fn name(&self) -> &'static str {
        "small file"
    }

    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for (index, connections) in CONNECTIONS.into_iter().enumerate() {
            for turn in turns(round, self.servers.len()) {
                let run = wrk::run(&site.small[turn], connections, site.options.wrk_seconds)?;
                let load = &mut self.servers[turn].loads[index];
                load.per_second.push(run.per_second);
                load.p50_ms.push(run.p50_ms);
                load.p99_ms.push(run.p99_ms);
                load.errors.push(run.errors);
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = CONNECTIONS.into_iter().enumerate().flat_map(|(index, connections)| {
            self.servers.iter().map(move |server| {
                let load = &server.loads[index];
                vec![
                    connections.to_string(),
                    server.name.to_owned(),
                    load.per_second.show(0),
                    load.p50_ms.show(3),
                    load.p99_ms.show(3),
                    format!("{:.0}", load.errors.max()),
                ]
            })
        });
        vec![Table {
            title: "GETs of 1 KiB, one worker".to_owned(),
            head: vec!["connections", "server", "requests/s", "p50 ms", "p99 ms", "most errors in a run"],
            rows: rows.collect(),
        }]
    }

    fn charts(&self) -> Vec<Chart> {
        type Percentile = fn(&Load) -> &Series;
        const PERCENTILES: [(&str, Percentile); 2] = [("p50", |load| &load.p50_ms), ("p99", |load| &load.p99_ms)];
        let lines = self.servers.iter().enumerate().flat_map(|(color, server)| {
            PERCENTILES.into_iter().map(move |(percentile, of)| {
                let points = CONNECTIONS.iter().zip(&server.loads);
                let points = points.map(|(connections, load)| Point::of(f64::from(*connections), of(load), 1.0));
                let name = format!("{}, {percentile}", server.name);
                Line { name, color, is_dashed: percentile == "p50", points: points.collect() }
            })
        });
        vec![Chart {
            name: "latency",
            title: "GETs of 1 KiB, one worker: how long answers take".to_owned(),
            x: Axis::logarithmic("connections"),
            y: Axis::logarithmic("ms"),
            lines: lines.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let of_load = |(index, connections): (usize, u32)| {
            type Of = fn(&Load) -> &Series;
            let series = |of: Of| -> Vec<_> {
                self.servers.iter().map(|server| (server.name, of(&server.loads[index]))).collect()
            };
            let what = match connections {
                1 => "1 KiB at 1 connection".to_owned(),
                more => format!("1 KiB at {more} connections"),
            };
            [
                goals_beside_nginx(&format!("{what}, requests/s"), &series(|load| &load.per_second), GOAL),
                goals_beside_nginx(&format!("{what}, p99"), &series(|load| &load.p99_ms), P99_GOAL),
            ]
            .concat()
        };
        CONNECTIONS.into_iter().enumerate().flat_map(of_load).collect()
    }
}

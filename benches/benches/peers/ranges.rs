//! Sequential range requests for the large file on one connection.

use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use ipfrs_benches::{Axis, Bound, Chart, Client, Goal, Line, Offsets, Point, Series, Table, get_range, seconds_each};

use crate::figures::{Measurement, goals_beside_nginx, names, turns};
use crate::site::{Site, Target};

const SIZES: [(&str, u64); 4] = [("1 KiB", 1 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("10 MiB", 10 << 20)];
/// Minimum ratio to nginx's requests per second.
const GOAL: Bound = Bound::AtLeast(1.0);
/// Number of different ranges.
const RANGES: usize = 256;

pub(crate) struct Ranges {
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    /// Requests per second for each of [`SIZES`].
    per_second: [Series; SIZES.len()],
}

impl Ranges {
    pub(crate) fn new(site: &Site) -> Self {
        let servers = names(&site.large).into_iter().map(|name| Server { name, per_second: Default::default() });
        Self { servers: servers.collect() }
    }
}

impl Measurement for Ranges {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for (index, (_, length)) in SIZES.into_iter().enumerate() {
            for turn in turns(round, self.servers.len()) {
                let target = &site.large[turn];
                let mut client = Client::connect(target.address)?;
                if round == 0 {
                    compare(site, target, &mut client, length)?;
                }
                let offsets = Offsets::new(site.large_bytes(), length).take(RANGES);
                let requests: Vec<_> = offsets.map(|start| get_range(&target.path, start, length)).collect();
                let mut requests = requests.iter().cycle();
                let each = seconds_each(site.options.slice(), || {
                    requests.next().map_or(Ok(()), |request| client.exchange(request, 206, length))
                })?;
                self.servers[turn].per_second[index].push(1.0 / each);
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = SIZES.into_iter().enumerate().flat_map(|(index, (size, length))| {
            self.servers.iter().map(move |server| {
                let series = &server.per_second[index];
                let megabytes = series.median() * length as f64 / 1e6;
                vec![size.to_owned(), server.name.to_owned(), series.show(0), format!("{megabytes:.0}")]
            })
        });
        vec![Table::new("Ranges, one connection", ["range", "server", "requests/s", "MB/s"], rows)]
    }

    fn charts(&self) -> Vec<Chart> {
        let lines = self.servers.iter().enumerate().map(|(color, server)| {
            let points = SIZES.iter().zip(&server.per_second).map(|((_, length), series)| {
                let length = *length as f64;
                Point::of(length, series, length / 1e6)
            });
            Line { name: server.name.to_owned(), color, is_dashed: false, points: points.collect() }
        });
        vec![Chart {
            name: "ranges".to_owned(),
            title: "Ranges of the large file, one after the other on one connection".to_owned(),
            x: Axis::bytes("size of the range"),
            y: Axis::logarithmic("MB/s"),
            lines: lines.collect(),
        }]
    }

    fn goals(&self) -> Vec<Goal> {
        let of_size = |(index, (size, _)): (usize, (&str, u64))| {
            let rates: Vec<_> = self.servers.iter().map(|server| (server.name, &server.per_second[index])).collect();
            goals_beside_nginx(&format!("Ranges of {size}, requests/s"), &rates, GOAL)
        };
        SIZES.into_iter().enumerate().flat_map(of_size).collect()
    }
}

/// Checks one range byte for byte.
fn compare(site: &Site, target: &Target, client: &mut Client, length: u64) -> Result<()> {
    let start = Offsets::new(site.large_bytes(), length).next().unwrap_or_default();
    let mut expected = vec![0; usize::try_from(length)?];
    site.large_file()?.read_exact_at(&mut expected, start)?;
    client.send(&get_range(&target.path, start, length))?;
    client.compare(206, expected.as_slice()).with_context(|| format!("{} serves different bytes", target.name))
}

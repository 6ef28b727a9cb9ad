//! GETs of the whole large file by a client that drops the bytes.

use std::time::Instant;

use anyhow::Result;
use ipfrs_benches::{Bound, Client, Goal, Series, Table, get, process::cpu_seconds};

use crate::figures::{Measurement, goals_beside_nginx, names, turns};
use crate::site::Site;

/// Number of GETs in one round. The system reports CPU time in ticks of 10 ms, a large part of the time of one GET.
const TRANSFERS: u32 = 4;
/// Required ratios to nginx: of GB/s, and of CPU seconds per GB.
const GOAL: Bound = Bound::AtLeast(1.0);
const CPU_GOAL: Bound = Bound::AtMost(1.1);

pub(crate) struct LargeGets {
    file_mib: u64,
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    gb_per_second: Series,
    cpu_seconds_per_gb: Series,
}

impl LargeGets {
    pub(crate) fn new(site: &Site) -> Self {
        let servers = names(&site.large).into_iter().map(|name| Server {
            name,
            gb_per_second: Series::default(),
            cpu_seconds_per_gb: Series::default(),
        });
        Self { file_mib: site.options.file_mib, servers: servers.collect() }
    }
}

impl Measurement for LargeGets {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        let gigabytes = site.large_bytes() as f64 * f64::from(TRANSFERS) / 1e9;
        for turn in turns(round, self.servers.len()) {
            let (target, server) = (&site.large[turn], &mut self.servers[turn]);
            let mut client = Client::connect(target.address)?;
            let request = get(&target.path);
            let (start, cpu_before) = (Instant::now(), cpu_seconds(&target.pids)?);
            for _ in 0..TRANSFERS {
                client.exchange(&request, 200, site.large_bytes())?;
            }
            let seconds = start.elapsed().as_secs_f64();
            let cpu = cpu_seconds(&target.pids)? - cpu_before;
            server.gb_per_second.push(gigabytes / seconds);
            server.cpu_seconds_per_gb.push(cpu / gigabytes);
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |server: &Server| {
            vec![server.name.to_owned(), server.gb_per_second.show(2), server.cpu_seconds_per_gb.show(3)]
        };
        vec![Table::new(
            format!("GET of {} MiB", self.file_mib),
            ["server", "GB/s", "server CPU s/GB"],
            self.servers.iter().map(row),
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let rates: Vec<_> = self.servers.iter().map(|server| (server.name, &server.gb_per_second)).collect();
        let cpu: Vec<_> = self.servers.iter().map(|server| (server.name, &server.cpu_seconds_per_gb)).collect();
        let what = format!("GET of {} MiB", self.file_mib);
        [
            goals_beside_nginx(&format!("{what}, GB/s"), &rates, GOAL),
            goals_beside_nginx(&format!("{what}, server CPU s/GB"), &cpu, CPU_GOAL),
        ]
        .concat()
    }
}

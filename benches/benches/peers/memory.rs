//! Memory of the servers after each round of requests.

use anyhow::Result;
use ipfrs_benches::{Series, Table, process::memory};

use crate::figures::Measurement;
use crate::site::Site;
use ipfrs_benches::nginx::NGINX;

pub(crate) struct MemoryUse {
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    pid: u32,
    peak_resident_mib: Series,
    anonymous_mib: Series,
}

impl MemoryUse {
    pub(crate) fn new(site: &Site) -> Self {
        let workers = site.nginx.iter().flat_map(|nginx| nginx.workers()).map(|pid| (NGINX, *pid));
        let all = workers.chain([("ipfrs", site.gateway.pid())]);
        let servers = all.map(|(name, pid)| Server {
            name,
            pid,
            peak_resident_mib: Series::default(),
            anonymous_mib: Series::default(),
        });
        Self { servers: servers.collect() }
    }
}

impl Measurement for MemoryUse {
    fn round(&mut self, _site: &Site, _round: usize) -> Result<()> {
        for server in &mut self.servers {
            let memory = memory(server.pid)?;
            server.peak_resident_mib.push(memory.peak_resident as f64 / f64::from(1 << 20));
            server.anonymous_mib.push(memory.anonymous as f64 / f64::from(1 << 20));
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |server: &Server| {
            let figures =
                [&server.peak_resident_mib, &server.anonymous_mib].map(|series| format!("{:.0}", series.max()));
            [vec![server.name.to_owned()], figures.to_vec()].concat()
        };
        vec![Table::new(
            "Memory of the serving processes, all of the above served",
            ["server", "peak resident (VmHWM, mapped files included), MiB", "anonymous (RssAnon), MiB"],
            self.servers.iter().map(row),
        )]
    }
}

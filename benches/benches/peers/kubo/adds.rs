//! Adds the large file to Kubo and to the gateway over HTTP.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Bound, Client, GatewayProcess, Goal, KuboDaemon, Profile, Series, Table, add_file, settle};

use crate::figures::{Measurement, turns};
use crate::site::Site;

/// Minimum ratio to Kubo's MB/s.
const GOAL: Bound = Bound::AtLeast(5.0);

/// Server that receives the file, and the durability of the file when the server responds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Kubo with its defaults: the files are passed to the operating system, without waiting for the disk.
    Kubo,
    /// Kubo with `"sync": true` for flatfs: the files are durable.
    KuboSynced,
    /// The gateway: the file is durable.
    Ours,
}

const SERVERS: [Server; 3] = [Server::Kubo, Server::KuboSynced, Server::Ours];

#[derive(Default)]
pub(crate) struct KuboAdds {
    /// Name and version of Kubo. Nothing is measured if it is not installed.
    name: Option<String>,
    file_mib: u64,
    /// MB/s for each of [`SERVERS`].
    mb_per_second: [Series; SERVERS.len()],
}

impl KuboAdds {
    pub(crate) fn new(site: &Site) -> Self {
        let name = site.kubo.as_ref().map(|kubo| kubo.name());
        Self { name, file_mib: site.options.file_mib, ..Self::default() }
    }

    fn server_name(&self, server: Server) -> String {
        let kubo = self.name.as_deref().unwrap_or_default();
        match server {
            Server::Kubo => format!("{kubo}, flatfs as it is by default (`sync` false)"),
            Server::KuboSynced => format!("{kubo}, flatfs with `sync` true"),
            Server::Ours => "ipfrs, durable before the response".to_owned(),
        }
    }
}

/// Returns the MB/s of adding the file to a new repo.
fn measure(site: &Site, server: Server, repo: &Path) -> Result<f64> {
    let mut file = site.large_file()?;
    let (_kubo, _ours, address);
    match (&site.kubo, server) {
        (Some(program), Server::Kubo | Server::KuboSynced) => {
            program.init(repo, server == Server::KuboSynced)?;
            let daemon = KuboDaemon::start(program, repo)?;
            address = daemon.rpc;
            _kubo = daemon;
        }
        _ => {
            let gateway = GatewayProcess::start(repo, None)?;
            address = gateway.address();
            _ours = gateway;
        }
    }
    let mut client = Client::connect(address)?;
    settle();
    let start = Instant::now();
    let cid = add_file(&mut client, Profile::DagPb, &mut file)?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        site.large.iter().any(|target| target.path.ends_with(&cid)),
        "the file was added with a different CID, {cid}"
    );
    Ok(site.large_bytes() as f64 / 1e6 / seconds)
}

impl Measurement for KuboAdds {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        if self.name.is_none() {
            return Ok(());
        }
        // Servers use all cores here, as in production.
        site.cores.for_anything()?;
        for turn in turns(round, SERVERS.len()) {
            let repo = site.scratch("added");
            // The first run makes the host provide memory again, the second one is measured.
            for is_measured in [false, true] {
                let measured = measure(site, SERVERS[turn], &repo)
                    .with_context(|| format!("to {}", self.server_name(SERVERS[turn])))?;
                if is_measured {
                    self.mb_per_second[turn].push(measured);
                }
                fs::remove_dir_all(&repo).with_context(|| format!("cannot remove {}", repo.display()))?;
            }
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = SERVERS.iter().zip(&self.mb_per_second).filter(|_| self.name.is_some());
        let rows = rows.map(|(server, series)| vec![self.server_name(*server), series.show(0)]);
        vec![Table::new(format!("add of {} MiB over one connection", self.file_mib), ["server", "MB/s"], rows)]
    }

    fn goals(&self) -> Vec<Goal> {
        let [by_default, synced, ours] = &self.mb_per_second;
        let goal = |series: &Series, kind| Goal {
            what: format!("add of {} MiB, MB/s: ipfrs / Kubo {kind}", self.file_mib),
            figure: ours.median() / series.median(),
            bound: GOAL,
        };
        let goals = [goal(by_default, "by default, which syncs nothing"), goal(synced, "with sync, as durable")];
        goals.into_iter().filter(|_| self.name.is_some()).collect()
    }
}

//! GETs of 1 KiB over cleartext HTTP/2, many streams on one connection, from h2load.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ipfrs_benches::{Bound, Goal, Series, Table};

use crate::figures::{Measurement, goals_beside_nginx, turns};
use crate::nginx::NGINX;
use crate::site::Site;

const STREAMS: u32 = 100;
const GOAL: Bound = Bound::AtLeast(1.0);

pub(crate) struct Http2 {
    servers: Vec<Server>,
}

struct Server {
    name: &'static str,
    address: SocketAddr,
    path: String,
    per_second: Series,
}

impl Http2 {
    pub(crate) fn new(site: &Site) -> Self {
        let nginx = site.nginx.as_ref().map(|nginx| (NGINX, nginx.http2_address()));
        let all = nginx.into_iter().chain([("ipfrs", site.gateway.address())]).filter_map(|(name, address)| {
            let target = site.small.iter().find(|target| target.name == name)?;
            Some(Server { name, address, path: target.path.clone(), per_second: Series::default() })
        });
        // Without h2load there is nothing to show.
        Self { servers: if site.h2load_version.is_some() { all.collect() } else { Vec::new() } }
    }
}

impl Measurement for Http2 {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for turn in turns(round, self.servers.len()) {
            let server = &mut self.servers[turn];
            let url = format!("http://{}{}", server.address, server.path);
            server.per_second.push(per_second(&url, site.options.wrk_seconds)?);
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let rows = self.servers.iter().map(|server| vec![server.name.to_owned(), server.per_second.show(0)]);
        vec![Table::new(
            format!("GETs of 1 KiB over HTTP/2 without TLS, {STREAMS} streams on one connection, one worker"),
            ["server", "requests/s"],
            rows,
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let rates: Vec<_> = self.servers.iter().map(|server| (server.name, &server.per_second)).collect();
        goals_beside_nginx(&format!("1 KiB over HTTP/2, {STREAMS} streams, requests/s"), &rates, GOAL)
    }
}

fn per_second(url: &str, seconds: u64) -> Result<f64> {
    let arguments = ["-t1", "-c1", &format!("-m{STREAMS}"), &format!("-D{seconds}"), url];
    let output =
        Command::new("h2load").args(arguments).stdin(Stdio::null()).output().context("h2load cannot be run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).with_context(|| format!("h2load said: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Of lines like `finished in 3.00s, 51234.67 req/s, 60.34MB/s` and `requests: 9 total, ..., 0 failed, ...`.
fn parse(text: &str) -> Result<f64> {
    let counted = |line: &str, what: &str| -> Option<f64> {
        let part = text.lines().find(|found| found.starts_with(line))?.split(", ").find(|part| part.ends_with(what))?;
        part.trim_end_matches(what).rsplit(' ').next()?.parse().ok()
    };
    for kind in [" failed", " errored", " timeout"] {
        ensure!(counted("requests:", kind) == Some(0.0), "requests have{kind}");
    }
    ensure!(
        counted("status codes:", " 5xx") == Some(0.0) && counted("status codes:", " 4xx") == Some(0.0),
        "were refused"
    );
    counted("finished in", " req/s").context("there is no rate")
}

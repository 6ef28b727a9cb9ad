//! HTTPS with one cipher: a large file (curl), 1 KiB on 64 connections (wrk), and full handshakes (openssl).

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ipfrs_benches::nginx::{NGINX, Nginx};
use ipfrs_benches::process::{cpu_seconds, version};
use ipfrs_benches::{
    Bound, Certificate, Client, GatewayProcess, Goal, Multipart, Profile, Series, Settings, Table, add_file, random,
};

use crate::figures::{Measurement, goals_beside_nginx, turns};
use crate::site::{SMALL_BYTES, Site};
use crate::wrk;

const CIPHER: &str = "TLS_AES_256_GCM_SHA384";
const CONNECTIONS: u32 = 64;
/// Required ratios to nginx: of MB/s, and of requests and handshakes per second of CPU time.
const GET_GOAL: Bound = Bound::AtLeast(0.9);
const GOAL: Bound = Bound::AtLeast(1.0);

/// The servers, or none if a client is not installed.
pub(crate) struct Tls {
    file_mib: u64,
    servers: Vec<Server>,
    /// Owners of the processes. Dropping them stops the servers.
    _gateway: Option<GatewayProcess>,
    _nginx: Option<Nginx>,
}

struct Server {
    name: &'static str,
    address: SocketAddr,
    pids: Vec<u32>,
    small: String,
    large: String,
    mb_per_second: Series,
    requests_per_second: Series,
    requests_per_cpu_second: Series,
    handshakes_per_second: Series,
    handshakes_per_cpu_second: Series,
}

impl Tls {
    /// Starts the servers with one certificate, and checks that they agree on the cipher.
    pub(crate) fn prepare(site: &Site) -> Result<Self> {
        let file_mib = site.options.file_mib;
        let is_required = site.options.arguments.require_peers;
        let curl = version("curl", "--version", "curl", is_required)?;
        let openssl = version("openssl", "version", "openssl", is_required)?;
        if curl.is_none() || openssl.is_none() || site.wrk_version.is_none() {
            return Ok(Self { file_mib, servers: Vec::new(), _gateway: None, _nginx: None });
        }
        let directory = site.scratch("tls");
        fs::create_dir(&directory)?;
        let certificate = Certificate::write(&directory)?;
        let repo = directory.join("repo");
        let (small, large) = fill(&repo, site)?;
        site.cores.for_servers()?;
        let settings = Settings { workers: Some(1), certificate: Some(certificate.clone()), ..Settings::default() };
        let gateway = GatewayProcess::start_with(&repo, &settings)?;
        let start = |_: &Nginx| Nginx::start_https(&directory.join("nginx"), site.www(), &certificate);
        let nginx = site.nginx.as_ref().map(start).transpose()?;
        site.cores.for_clients()?;
        let mut servers = Vec::new();
        if let Some(nginx) = &nginx {
            servers.push(Server::new(NGINX, nginx.https_address(), nginx.workers(), "/small", "/large"));
        }
        servers.push(Server::new("ipfrs", gateway.address(), &[gateway.pid()], &small, &large));
        for server in &servers {
            server.check()?;
        }
        Ok(Self { file_mib, servers, _gateway: Some(gateway), _nginx: nginx })
    }
}

/// Adds the files to a new repo, and returns their paths.
fn fill(repo: &Path, site: &Site) -> Result<(String, String)> {
    let gateway = GatewayProcess::start(repo, None)?;
    let mut client = Client::connect(gateway.address())?;
    let mut form = Multipart::default();
    form.file(&random(0, SMALL_BYTES));
    let small = form.send(&mut client, Profile::DagPb)?.concat();
    let large = add_file(&mut client, Profile::DagPb, &mut site.large_file()?)?;
    Ok((format!("/ipfs/{small}"), format!("/ipfs/{large}")))
}

impl Server {
    fn new(name: &'static str, address: SocketAddr, pids: &[u32], small: &str, large: &str) -> Self {
        Self {
            name,
            address,
            pids: pids.to_vec(),
            small: small.to_owned(),
            large: large.to_owned(),
            mb_per_second: Series::default(),
            requests_per_second: Series::default(),
            requests_per_cpu_second: Series::default(),
            handshakes_per_second: Series::default(),
            handshakes_per_cpu_second: Series::default(),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Checks the small file and the cipher that the server chooses.
    fn check(&self) -> Result<()> {
        let small = output("curl", &["-sSfk", &self.url(&self.small)])?;
        ensure!(small.stdout == random(0, SMALL_BYTES), "{} serves different bytes", self.name);
        let connect = self.address.to_string();
        let connected = output("openssl", &["s_client", "-brief", "-connect", &connect])?;
        let text = String::from_utf8_lossy(&connected.stderr);
        let expected = format!("Ciphersuite: {CIPHER}");
        ensure!(text.lines().any(|line| line == expected), "{} has another cipher than {CIPHER}: {text}", self.name);
        Ok(())
    }

    fn measure(&mut self, bytes: u64, seconds: u64) -> Result<()> {
        let start = Instant::now();
        output("curl", &["-sSfk", "-o", "/dev/null", &self.url(&self.large)])?;
        self.mb_per_second.push(bytes as f64 / start.elapsed().as_secs_f64() / 1e6);

        let (start, before) = (Instant::now(), cpu_seconds(&self.pids)?);
        let run = wrk::run_url(&self.url(&self.small), CONNECTIONS, seconds)?;
        ensure!(run.errors == 0.0, "{} has {} errors", self.name, run.errors);
        let requests = run.per_second * start.elapsed().as_secs_f64();
        self.requests_per_second.push(run.per_second);
        self.requests_per_cpu_second.push(requests / (cpu_seconds(&self.pids)? - before));

        let (connect, time) = (self.address.to_string(), seconds.to_string());
        let (start, before) = (Instant::now(), cpu_seconds(&self.pids)?);
        let timed = output("openssl", &["s_time", "-new", "-connect", &connect, "-time", &time])?;
        let elapsed = start.elapsed().as_secs_f64();
        let count = handshakes(&String::from_utf8_lossy(&timed.stdout))?;
        self.handshakes_per_second.push(count / elapsed);
        self.handshakes_per_cpu_second.push(count / (cpu_seconds(&self.pids)? - before));
        Ok(())
    }
}

/// Returns the count in a line such as `5123 connections in 1.50s; 3415.33 connections/user sec, bytes read 0`.
fn handshakes(text: &str) -> Result<f64> {
    let count = text.lines().find_map(|line| line.split_once(" connections in ")?.0.parse().ok());
    count.with_context(|| format!("openssl printed: {text}"))
}

fn output(program: &str, arguments: &[&str]) -> Result<Output> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{program} cannot be run"))?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

impl Measurement for Tls {
    fn round(&mut self, site: &Site, round: usize) -> Result<()> {
        for turn in turns(round, self.servers.len()) {
            self.servers[turn].measure(site.large_bytes(), site.options.wrk_seconds)?;
        }
        Ok(())
    }

    fn tables(&self) -> Vec<Table> {
        let row = |server: &Server| {
            vec![
                server.name.to_owned(),
                server.mb_per_second.show(0),
                server.requests_per_second.show(0),
                server.requests_per_cpu_second.show(0),
                server.handshakes_per_second.show(0),
                server.handshakes_per_cpu_second.show(0),
            ]
        };
        vec![Table::new(
            format!("HTTPS with {CIPHER}, one worker"),
            [
                "server",
                &format!("GET of {} MiB, MB/s", self.file_mib),
                &format!("1 KiB at {CONNECTIONS} connections, requests/s"),
                "requests per CPU second",
                "full handshakes/s, one client",
                "handshakes per CPU second",
            ],
            self.servers.iter().map(row),
        )]
    }

    fn goals(&self) -> Vec<Goal> {
        let all = |of: fn(&Server) -> &Series| -> Vec<_> {
            self.servers.iter().map(|server| (server.name, of(server))).collect()
        };
        let large = format!("GET of {} MiB over HTTPS, MB/s", self.file_mib);
        let small = format!("1 KiB over HTTPS at {CONNECTIONS} connections, requests per CPU second");
        [
            goals_beside_nginx(&large, &all(|server| &server.mb_per_second), GET_GOAL),
            goals_beside_nginx(&small, &all(|server| &server.requests_per_cpu_second), GOAL),
            goals_beside_nginx(
                "Full handshakes per CPU second",
                &all(|server| &server.handshakes_per_cpu_second),
                GOAL,
            ),
        ]
        .concat()
    }
}

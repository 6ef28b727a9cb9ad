//! Ambiguous requests by way of nginx and HAProxy. The proxies refuse one target. If the gateway sees it nevertheless,
//! it has read a request where the proxy has read a body. If another client gets a wrong response, the responses no
//! longer belong to their requests.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ipfrs_benches::nginx::signal;
use ipfrs_benches::process::{BECOME, PATIENCE, POLL, has_ended, version};
use ipfrs_benches::{Client, get};
use rustix::process::{Signal, getuid};

use crate::payloads::{self, HIDDEN};
use crate::site::{SMALL_BYTES, Target};

/// Time for which a proxy may be silent about an ambiguous request: it waits for more of it.
const SILENCE: Duration = Duration::from_millis(200);
/// Requests of another client after each ambiguous one.
const OTHERS: usize = 2;

/// A running proxy. Dropping it stops it.
struct Proxy {
    child: Child,
    address: SocketAddr,
}

pub(crate) fn smuggling(target: &Target) -> Result<String> {
    let mut found = Vec::new();
    // HAProxy is optional.
    for (name, package, is_required) in [("nginx", "nginx-light", target.require_peers), ("haproxy", "haproxy", false)]
    {
        let Some(version) = version(name, "-v", package, is_required)? else { continue };
        let proxy = Proxy::start(name, target)?;
        let payloads: Vec<_> = payloads::all().into_iter().step_by(target.step).collect();
        for payload in &payloads {
            pass(proxy.address, target, payload).with_context(|| format!("{name}: {}", payload.escape_ascii()))?;
        }
        let version = version.split([' ', '/']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        found.push(format!("{name} {}: {} requests", version.unwrap_or_default(), payloads.len()));
    }
    ensure_unseen(target)?;
    if found.is_empty() {
        return Ok("left out: neither nginx nor HAProxy is installed".to_owned());
    }
    // Otherwise, the metrics would not tell.
    let mut client = Client::connect(target.gateway.address())?;
    client.send(&get(HIDDEN))?;
    client.discard(200)?;
    ensure!(ensure_unseen(target).is_err(), "the metrics do not count requests for {HIDDEN}");
    Ok(format!("{}; none was smuggled, no response went to another client", found.join("; ")))
}

/// Sends an ambiguous request through a proxy, and then requests of another client.
fn pass(proxy: SocketAddr, target: &Target, payload: &[u8]) -> Result<()> {
    let mut attacker = TcpStream::connect(proxy)?;
    attacker.set_read_timeout(Some(SILENCE))?;
    // The proxy may close the connection at any byte.
    let _ = attacker.write_all(payload);
    let _ = attacker.read(&mut [0; 1_024]);
    for _ in 0..OTHERS {
        let mut client = Client::connect(proxy)?;
        client.exchange(&get(&target.small), 200, SMALL_BYTES as u64).context("another client got a wrong response")?;
    }
    // Again while the connection of the attacker ends.
    let _ = attacker.shutdown(Shutdown::Write);
    ensure_unseen(target)
}

/// Checks that the gateway has seen no request for the target that the proxies refuse.
fn ensure_unseen(target: &Target) -> Result<()> {
    let mut client = Client::connect(target.gateway.address())?;
    client.send(&get("/metrics"))?;
    let metrics = String::from_utf8(client.read(200)?)?;
    let route = format!("\"{HIDDEN}\"");
    ensure!(!metrics.contains(&route), "the gateway has seen a request that its proxy has not");
    Ok(())
}

impl Proxy {
    /// Starts nginx or HAProxy in front of the gateway.
    fn start(name: &str, target: &Target) -> Result<Self> {
        // Neither can say which port the system has chosen.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let (directory, gateway) = (&target.scratch, target.gateway.address());
        let (file, log) = (directory.join(name), directory.join(format!("{name}.log")));
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(BECOME).arg(name);
        if name == "nginx" {
            fs::write(&file, nginx(directory, address, gateway))?;
            command.arg("-e").arg(&log).arg("-p").arg(directory).arg("-c").arg(&file);
        } else {
            fs::write(&file, haproxy(address, gateway))?;
            command.arg("-db").arg("-f").arg(&file);
        }
        let output = fs::File::create(directory.join(format!("{name}.output")))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut proxy = Self { child: command.spawn().with_context(|| format!("{name} cannot be started"))?, address };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if proxy.child.try_wait()?.is_some() || Instant::now() > deadline {
                let output = fs::read_to_string(directory.join(format!("{name}.output"))).unwrap_or_default();
                bail!("{name} did not start: {output}{}", fs::read_to_string(log).unwrap_or_default());
            }
            thread::sleep(POLL);
        }
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !has_ended(&mut self.child) {
            eprintln!("hostile: a proxy does not terminate");
        }
    }
}

/// Returns a configuration that reuses connections to the gateway, as attacks need it.
fn nginx(directory: &Path, address: SocketAddr, gateway: SocketAddr) -> String {
    // Only root can change the user of the workers, and nginx warns about the attempt otherwise.
    let user = if getuid().is_root() { "user root;" } else { "" };
    let directory = directory.display();
    format!(
        "{user}
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    upstream gateway {{
        server {gateway};
        keepalive 1;
    }}
    server {{
        listen {address};
        location = {HIDDEN} {{ return 403; }}
        location / {{
            proxy_pass http://gateway;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host 127.0.0.1;
            proxy_request_buffering off;
        }}
    }}
}}
"
    )
}

/// Returns a configuration that reuses connections to the gateway for all clients.
fn haproxy(address: SocketAddr, gateway: SocketAddr) -> String {
    format!(
        "global
    maxconn 1000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
    http-reuse always
frontend front
    bind {address}
    http-request deny if {{ path {HIDDEN} }}
    default_backend gateway
backend gateway
    http-request set-header Host 127.0.0.1
    server gateway {gateway}
"
    )
}

//! nginx with one worker, configured for large and for frequently requested files.
//!
//! The benchmark passes open listeners to nginx, as an upgrade of nginx does, because nginx cannot configure the
//! congestion control of its listeners. Like the gateway, they must not use pacing on loopback.
//!
//! `tcp_nopush` speeds up some responses and adds the 40 ms of a delayed acknowledgement to others of about one
//! segment. nginx therefore serves with and without it, and the comparison uses its better figure.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::certificate::Certificate;
use crate::process::{BECOME, PATIENCE, POLL, children, has_ended};

/// Common prefix of the names of nginx in the report.
pub const NGINX: &str = "nginx";

/// Number of listeners: with `tcp_nopush`, without it, for HTTP/2, and for HTTPS.
const SERVERS: usize = 4;
/// Congestion control of the gateway on loopback. If BBR were the system default, it would pace only nginx's
/// connections.
const CONGESTION_CONTROL: &str = "reno";

/// A running nginx. Dropping it stops it.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    /// Addresses of the listeners with `tcp_nopush`, without it, for HTTP/2, and for HTTPS.
    addresses: [SocketAddr; SERVERS],
    /// Process IDs of the workers.
    workers: Vec<u32>,
}

impl Nginx {
    /// Serves the files in `www`. nginx's own files are in `directory`. Returns when nginx accepts requests. `main`
    /// must pass the arguments after [`BECOME`] to [`become_program`](crate::process::become_program).
    ///
    /// # Errors
    /// Returns an error with nginx's log if it does not start.
    pub fn start(directory: &Path, www: &Path) -> Result<Self> {
        Self::start_with(directory, www, None)
    }

    /// Serves the files in `www` as [`Self::start`] does, and also over HTTPS.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_https(directory: &Path, www: &Path, certificate: &Certificate) -> Result<Self> {
        Self::start_with(directory, www, Some(certificate))
    }

    fn start_with(directory: &Path, www: &Path, certificate: Option<&Certificate>) -> Result<Self> {
        fs::create_dir(directory)?;
        let listeners = listeners()?;
        let mut addresses = [SocketAddr::from(([0; 4], 0)); SERVERS];
        for (address, listener) in addresses.iter_mut().zip(&listeners) {
            *address = listener.local_addr()?;
        }
        let configuration = directory.join("nginx.conf");
        fs::write(&configuration, configuration_text(directory, www, addresses, certificate))?;
        let log = directory.join("error.log");
        let mut command = Command::new(env::current_exe().context("this program cannot be found")?);
        command.arg(BECOME).arg("nginx").arg("-e").arg(&log).arg("-p").arg(directory).arg("-c").arg(&configuration);
        let inherited = listeners.each_ref().map(|listener| format!("{};", listener.as_raw_fd())).concat();
        command.env("NGINX", inherited).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("nginx cannot be started")?;
        let mut nginx = Self { child, addresses, workers: Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        while nginx.workers.is_empty() {
            let is_gone = nginx.child.try_wait()?.is_some();
            if is_gone || Instant::now() > deadline {
                bail!("nginx did not start: {}", fs::read_to_string(log).unwrap_or_default());
            }
            if TcpStream::connect(addresses[0]).is_ok() {
                nginx.workers = children(nginx.child.id())?;
            }
            thread::sleep(POLL);
        }
        Ok(nginx)
    }

    /// Returns the names in the report, each with its address.
    #[must_use]
    pub fn servers(&self) -> [(&'static str, SocketAddr); 2] {
        [(NGINX, self.addresses[0]), ("nginx, tcp_nopush off", self.addresses[1])]
    }

    /// Returns the address of the cleartext HTTP/2 listener.
    #[must_use]
    pub fn http2_address(&self) -> SocketAddr {
        self.addresses[2]
    }

    /// Returns the address of the HTTPS listener, which only [`Self::start_https`] uses.
    #[must_use]
    pub fn https_address(&self) -> SocketAddr {
        self.addresses[3]
    }

    /// Returns the process IDs of the workers.
    #[must_use]
    pub fn workers(&self) -> &[u32] {
        &self.workers
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !has_ended(&mut self.child) {
            eprintln!("peers: nginx does not terminate and is killed");
            self.workers.iter().for_each(|worker| signal(*worker, Signal::KILL));
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                eprintln!("peers: nginx cannot be killed: {error}");
            }
        }
    }
}

/// Sends a signal to a child process.
pub fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if let Err(error) = kill_process(pid, signal) {
        eprintln!("peers: process {pid} cannot be signaled: {error}");
    }
}

/// Opens listeners that child processes inherit until the listeners are dropped.
fn listeners() -> Result<[TcpListener; SERVERS]> {
    let bind = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        set_tcp_congestion(&listener, CONGESTION_CONTROL).context("the congestion control cannot be set")?;
        fcntl_setfd(&listener, FdFlags::empty())?;
        anyhow::Ok(listener)
    };
    Ok([bind()?, bind()?, bind()?, bind()?])
}

fn configuration_text(
    directory: &Path,
    www: &Path,
    addresses: [SocketAddr; SERVERS],
    certificate: Option<&Certificate>,
) -> String {
    // Only root can change the user of the workers, and nginx warns about the attempt otherwise.
    let user = if getuid().is_root() { "user root;" } else { "" };
    let [address, plain_address, http2_address, https_address] = addresses;
    let (directory, www) = (directory.display(), www.display());
    let https = certificate.map_or_else(String::new, |Certificate { certificate, key }| {
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "    server {{
        listen {https_address} ssl backlog=4096;
        root {www};
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.3;
    }}
"
        )
    });
    format!(
        "{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{
    worker_connections 16384;
}}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    tcp_nodelay on;
    sendfile_max_chunk 2m;
    keepalive_requests 1000000000;
    keepalive_timeout 75s;
    open_file_cache max=10000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen {address} backlog=4096;
        root {www};
        tcp_nopush on;
    }}
    server {{
        listen {plain_address} backlog=4096;
        root {www};
        tcp_nopush off;
    }}
    server {{
        listen {http2_address} http2 backlog=4096;
        root {www};
        http2_max_concurrent_streams 256;
    }}
{https}}}
"
    )
}

//! nginx with one worker, set up as one does for large and for hot files.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getuid, kill_process};

use crate::process::{PATIENCE, POLL, children, has_ended};

/// A running nginx. Dropping it stops it.
pub(crate) struct Nginx {
    child: Child,
    address: SocketAddr,
    /// The processes that serve.
    workers: Vec<u32>,
}

impl Nginx {
    /// Serves the files in `www`. Its own files go to `directory`. Returns once it answers.
    pub(crate) fn start(directory: &Path, www: &Path) -> Result<Self> {
        fs::create_dir(directory)?;
        // Free when it was asked for. Should another process take it before nginx does, nginx ends and says so.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let configuration = directory.join("nginx.conf");
        fs::write(&configuration, configuration_text(directory, www, address))?;
        let log = directory.join("error.log");
        let mut command = Command::new("nginx");
        command.arg("-e").arg(&log).arg("-p").arg(directory).arg("-c").arg(&configuration).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("nginx cannot be started")?;
        let mut nginx = Self { child, address, workers: Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        while nginx.workers.is_empty() {
            let is_gone = nginx.child.try_wait()?.is_some();
            if is_gone || Instant::now() > deadline {
                bail!("nginx did not start: {}", fs::read_to_string(log).unwrap_or_default());
            }
            if TcpStream::connect(address).is_ok() {
                nginx.workers = children(nginx.child.id())?;
            }
            thread::sleep(POLL);
        }
        Ok(nginx)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The processes that serve.
    pub(crate) fn workers(&self) -> &[u32] {
        &self.workers
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        signal(self.child.id(), Signal::TERM);
        if !has_ended(&mut self.child) {
            eprintln!("peers: nginx does not end and is killed");
            self.workers.iter().for_each(|worker| signal(*worker, Signal::KILL));
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
                eprintln!("peers: nginx cannot be killed: {error}");
            }
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    if let Err(error) = kill_process(pid, signal) {
        eprintln!("peers: process {pid} takes no signal: {error}");
    }
}

fn configuration_text(directory: &Path, www: &Path, address: SocketAddr) -> String {
    // Whoever is not root cannot give its workers another user, and nginx warns of an attempt.
    let user = if getuid().is_root() { "user root;" } else { "" };
    let (directory, www) = (directory.display(), www.display());
    format!(
        "{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{
    worker_connections 8192;
}}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    sendfile_max_chunk 2m;
    keepalive_requests 1000000000;
    keepalive_timeout 75s;
    open_file_cache max=1000;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen {address} backlog=4096;
        root {www};
    }}
}}
"
    )
}

//! The `[server]` section.

use std::time::Duration;

use ipfrs_core::{Error, Result, cores};
use serde::Deserialize;

/// `[server]`: listen address and limits of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address or name to listen on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one.
    pub port: u16,
    /// Public names that requests may name in `Host`, besides those of `[gateway.hosts]`; empty for all.
    pub hosts: Vec<String>,
    /// Number of threads that serve requests; default: the number of cores.
    pub workers: Option<usize>,
    /// Whether the daemon may listen on addresses other than loopback, although any client that reaches it may write.
    pub allow_unauthenticated: bool,
    /// Maximum number of open connections; further ones wait. One client on another machine has at most as many as are
    /// free for others; further ones are closed.
    pub max_connections: usize,
    /// Maximum size of a request head, in bytes. Larger ones receive a 431 response.
    pub max_header_bytes: usize,
    /// Maximum seconds until the head of a request is complete, including idle time since the previous request.
    pub header_timeout_seconds: u64,
    /// Maximum seconds for which a client may accept no bytes of a response before the connection or stream ends.
    pub write_timeout_seconds: u64,
    /// Whether plain GET requests with a cached response are served without hyper.
    pub fast_path: bool,
    /// Congestion control of listeners on loopback; empty for the system's default. Linux only.
    pub loopback_congestion_control: String,
    /// Maximum microseconds for which a worker polls for the next request of a client that sends requests in quick
    /// succession, instead of sleeping; 0 disables polling.
    pub busy_poll_microseconds: u64,
    /// Seconds that running transfers have to complete after a shutdown request.
    pub shutdown_grace_seconds: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            hosts: Vec::new(),
            workers: None,
            allow_unauthenticated: false,
            max_connections: 50_000,
            max_header_bytes: 64 * 1024,
            header_timeout_seconds: 30,
            write_timeout_seconds: 60,
            fast_path: true,
            loopback_congestion_control: "reno".to_owned(),
            busy_poll_microseconds: 0,
            shutdown_grace_seconds: 30,
        }
    }
}

impl ServerConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and the accepted
    /// range.
    pub fn validate(&self) -> Result<()> {
        if self.host.trim().is_empty() {
            return Err(Error::invalid("server.host = \"\": give an address such as \"127.0.0.1\", or a host name"));
        }
        let is_name = |host: &String| {
            let is_label = |label: &str| {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                label == "*" || (!label.is_empty() && label.bytes().all(is_plain))
            };
            host.split('.').all(is_label)
        };
        if let Some(wrong) = self.hosts.iter().find(|host| !is_name(host)) {
            return Err(Error::invalid(format!(
                "server.hosts: {wrong:?} is not a name: give names without port, such as \"example.org\" or \"*.example.org\""
            )));
        }
        if let Some(open) = self.hosts.iter().find(|host| host.split('.').all(|label| label == "*")) {
            return Err(Error::invalid(format!(
                "server.hosts: {open:?} consists only of *, so it fits names of anyone: give names, or [] for all names"
            )));
        }
        if let Some(workers) = self.workers {
            in_range("server.workers", workers as u64, 1, 1_024)?;
        }
        in_range("server.max_connections", self.max_connections as u64, 1, 1_000_000)?;
        // hyper needs at least 8 KiB. With more than 1 MiB, the heads of many connections could exhaust the memory.
        in_range("server.max_header_bytes", self.max_header_bytes as u64, 8 * 1024, 1024 * 1024)?;
        in_range("server.header_timeout_seconds", self.header_timeout_seconds, 1, 3_600)?;
        in_range("server.write_timeout_seconds", self.write_timeout_seconds, 1, 86_400)?;
        // While a worker polls, its other connections wait.
        in_range("server.busy_poll_microseconds", self.busy_poll_microseconds, 0, 1_000)?;
        in_range("server.shutdown_grace_seconds", self.shutdown_grace_seconds, 0, 86_400)
    }

    /// Returns the number of threads that serve requests.
    #[must_use]
    pub fn worker_threads(&self) -> usize {
        self.workers.unwrap_or_else(cores)
    }

    /// Returns [`header_timeout_seconds`](Self::header_timeout_seconds) as a duration.
    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_seconds)
    }

    /// Returns [`write_timeout_seconds`](Self::write_timeout_seconds) as a duration.
    pub(crate) fn write_timeout(&self) -> Duration {
        Duration::from_secs(self.write_timeout_seconds)
    }

    /// Returns [`busy_poll_microseconds`](Self::busy_poll_microseconds) as a duration.
    pub(crate) fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.busy_poll_microseconds)
    }

    /// Returns [`shutdown_grace_seconds`](Self::shutdown_grace_seconds) as a duration.
    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_seconds)
    }
}

fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{key} = {value}: accepted values are {least} to {most}")))
}

//! The `[server]` section.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[server]`: where the daemon listens and what one connection may cost.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address or name to listen on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one.
    pub port: u16,
    /// Threads that serve requests; default: the number of cores.
    pub workers: Option<usize>,
    /// Whether the daemon may listen beyond loopback although anyone who reaches it may write.
    pub allow_unauthenticated: bool,
    /// Most connections that are open at the same time; further ones wait.
    pub max_connections: usize,
    /// Most bytes of a request's head; over it the answer is 431.
    pub max_header_bytes: usize,
    /// Seconds in which the head of a request must be complete, idle time between two requests included.
    pub header_timeout_seconds: u64,
    /// Seconds that a client may take nothing of an answer before it is given up.
    pub write_timeout_seconds: u64,
    /// Most microseconds that a worker looks for the next request of a client that asks again at once, instead of sleeping; 0:
    /// none.
    pub busy_poll_microseconds: u64,
    /// Seconds that running transfers have to end after a request to stop.
    pub shutdown_grace_seconds: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            workers: None,
            allow_unauthenticated: false,
            max_connections: 50_000,
            max_header_bytes: 64 * 1024,
            header_timeout_seconds: 30,
            write_timeout_seconds: 60,
            busy_poll_microseconds: 50,
            shutdown_grace_seconds: 30,
        }
    }
}

impl ServerConfig {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        if self.host.trim().is_empty() {
            return Err(Error::invalid("server.host = \"\": give an address such as \"127.0.0.1\", or a host name"));
        }
        if let Some(workers) = self.workers {
            in_range("server.workers", workers as u64, 1, 1_024)?;
        }
        in_range("server.max_connections", self.max_connections as u64, 1, 1_000_000)?;
        // hyper needs 8 KiB to work with; over 1 MiB, heads of many connections would be a way to fill memory.
        in_range("server.max_header_bytes", self.max_header_bytes as u64, 8 * 1024, 1024 * 1024)?;
        in_range("server.header_timeout_seconds", self.header_timeout_seconds, 1, 3_600)?;
        in_range("server.write_timeout_seconds", self.write_timeout_seconds, 1, 86_400)?;
        // All other connections of the worker wait meanwhile.
        in_range("server.busy_poll_microseconds", self.busy_poll_microseconds, 0, 1_000)?;
        in_range("server.shutdown_grace_seconds", self.shutdown_grace_seconds, 0, 86_400)
    }

    /// Threads that serve requests.
    #[must_use]
    pub fn worker_threads(&self) -> usize {
        self.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get))
    }

    /// [`header_timeout_seconds`](Self::header_timeout_seconds) as a duration.
    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_secs(self.header_timeout_seconds)
    }

    /// [`write_timeout_seconds`](Self::write_timeout_seconds) as a duration.
    pub(crate) fn write_timeout(&self) -> Duration {
        Duration::from_secs(self.write_timeout_seconds)
    }

    /// [`busy_poll_microseconds`](Self::busy_poll_microseconds) as a duration.
    pub(crate) fn busy_poll(&self) -> Duration {
        Duration::from_micros(self.busy_poll_microseconds)
    }

    /// [`shutdown_grace_seconds`](Self::shutdown_grace_seconds) as a duration.
    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_seconds)
    }
}

fn in_range(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{key} = {value}: accepted are {least} to {most}")))
}

//! A client with ordinary requests beside an attack, which also samples the memory of the gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use ipfrs_benches::process::memory;
use ipfrs_benches::{Client, Latencies, get};

use crate::site::{SMALL_BYTES, Target};

/// Pause between requests.
const INTERVAL: Duration = Duration::from_millis(10);

/// A running probe.
pub(crate) struct Probe {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen>>,
}

/// Observations of a probe.
#[derive(Default)]
pub(crate) struct Seen {
    /// Latencies on one connection.
    pub(crate) kept: Latencies,
    /// Latencies on a new connection each, which includes connecting.
    pub(crate) new: Latencies,
    /// Maximum of the anonymous memory of the gateway, in bytes.
    pub(crate) anonymous_bytes: u64,
}

impl Probe {
    /// Starts requesting the small file.
    pub(crate) fn start(target: &Target) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (address, pid, request) = (target.gateway.address(), target.gateway.pid(), get(&target.small));
        let over = is_over.clone();
        let thread = thread::spawn(move || watch(address, pid, &request, &over));
        Self { is_over, thread }
    }

    /// Ends the probe.
    ///
    /// # Errors
    /// Returns an error if one of its requests failed.
    pub(crate) fn end(self) -> Result<Seen> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("its thread has failed"))?
    }
}

fn watch(address: SocketAddr, pid: u32, request: &[u8], is_over: &AtomicBool) -> Result<Seen> {
    let mut seen = Seen::default();
    let mut kept = Client::connect(address)?;
    while !is_over.load(Ordering::Relaxed) {
        seen.kept.time(|| kept.exchange(request, 200, SMALL_BYTES as u64))?;
        seen.new.time(|| Client::connect(address)?.exchange(request, 200, SMALL_BYTES as u64))?;
        seen.anonymous_bytes = seen.anonymous_bytes.max(memory(pid)?.anonymous);
        thread::sleep(INTERVAL);
    }
    Ok(seen)
}

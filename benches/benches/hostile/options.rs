//! Options of a run: arguments, and environment variables for its size.

use std::time::Duration;

use anyhow::{Result, ensure};
use ipfrs_benches::{Arguments, number};

pub(crate) const USAGE: &str = "usage: cargo bench --bench hostile [-- [--write FILE] [--json FILE] [--only PART,...]]

  --write FILE      also write the figures into FILE, between its markers; relative to the workspace
  --json FILE       also write the figures into FILE
  --only PART,...   only these parts: http2, connections, requests, websocket, proxies; both files keep the figures of
                    the others

environment: SECONDS (5, of each attack that has no end of its own), CLIENTS (1000; ten times as many are silent),
GATEWAY (an `ipfrs-cli` to attack instead of the gateway in this program)";

/// Size of a run.
pub(crate) struct Options {
    /// Duration of an attack that has no end of its own.
    pub(crate) time: Duration,
    /// Number of slow clients.
    pub(crate) clients: usize,
    /// Command-line arguments.
    pub(crate) arguments: Arguments,
}

impl Options {
    /// Reads the size of the run from the environment.
    pub(crate) fn read(arguments: Arguments) -> Result<Self> {
        // `cargo test --benches` passes no arguments. It checks how the gateway reacts, not how fast it is.
        let (seconds, clients) = if arguments.is_full { (5, 1_000) } else { (1, 20) };
        let (seconds, clients) = (number("SECONDS", seconds)?, number("CLIENTS", clients)?);
        ensure!((1..=20).contains(&seconds), "SECONDS = {seconds}: give 1 to 20, as silent connections end after 30");
        ensure!((1..=2_000).contains(&clients), "CLIENTS = {clients}: give 1 to 2000");
        Ok(Self { time: Duration::from_secs(seconds), clients, arguments })
    }

    /// Describes the size of the run.
    pub(crate) fn size(&self) -> String {
        format!("Attacks without an end of their own take {} s. CLIENTS is {}.", self.time.as_secs(), self.clients)
    }
}

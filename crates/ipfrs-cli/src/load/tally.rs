//! Outcomes of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::{HeaderMap, StatusCode};
use hdrhistogram::Histogram;

/// Lowest latency that the histogram can distinguish, in nanoseconds.
const LOWEST_NANOSECONDS: u64 = 1_000;
/// Highest latency that the histogram records. Longer ones count as an hour.
const HIGHEST_NANOSECONDS: u64 = 3_600 * 1_000_000_000;
/// Significant decimal digits of a recorded latency.
const DIGITS: u8 = 3;

/// Reason that a request did not receive a complete response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The connection could not be opened.
    Connect,
    /// The request took longer than the timeout.
    Timeout,
    /// The connection, or the HTTP/2 stream, was reset.
    Reset,
    /// The connection was closed before the response headers arrived.
    Closed,
    /// The body was truncated: the connection broke, or the body is shorter than its `Content-Length`.
    CutOff,
    /// The server violated the HTTP version that the client requested.
    Protocol,
}

impl Fault {
    /// Returns the name of the fault in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::CutOff => "cut_off",
            Self::Protocol => "protocol",
        }
    }
}

/// A complete response.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) status: StatusCode,
    /// Headers of the response.
    pub(super) headers: HeaderMap,
    /// Size of the body, in bytes.
    pub(super) bytes: u64,
    /// Whether the headers specify the length of the body.
    pub(super) is_sized: bool,
}

/// Counters of finished requests. Their memory does not grow with the number of requests.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Latency of each request with a complete response, in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Number of responses by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Number of requests without a complete response, by reason.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Size of all response bodies, in bytes.
    pub(crate) body_bytes: u64,
    /// Number of responses with a `Content-Length` that matched the body.
    pub(crate) sized: u64,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        let latencies = Histogram::new_with_bounds(LOWEST_NANOSECONDS, HIGHEST_NANOSECONDS, DIGITS)
            .context("cannot create a histogram of latencies")?;
        Ok(Self { latencies, statuses: BTreeMap::new(), faults: BTreeMap::new(), body_bytes: 0, sized: 0 })
    }

    /// Counts a complete response.
    pub(super) fn answered(&mut self, latency: Duration, response: &Completed) {
        self.latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        *self.statuses.entry(response.status.as_u16()).or_default() += 1;
        self.body_bytes += response.bytes;
        self.sized += u64::from(response.is_sized);
    }

    /// Counts a request without a complete response.
    pub(super) fn failed(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Adds the counters of another tally.
    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies).context("the histograms differ")?;
        other.statuses.iter().for_each(|(status, count)| *self.statuses.entry(*status).or_default() += count);
        other.faults.iter().for_each(|(fault, count)| *self.faults.entry(*fault).or_default() += count);
        self.body_bytes += other.body_bytes;
        self.sized += other.sized;
        Ok(())
    }

    /// Returns the number of requests with a complete response.
    pub(crate) fn answers(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Returns the number of requests without a complete response.
    pub(crate) fn failures(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Returns the number of complete responses with a status below 400.
    pub(crate) fn successes(&self) -> u64 {
        self.statuses.range(..400).map(|(_, count)| count).sum()
    }
}

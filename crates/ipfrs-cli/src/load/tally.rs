//! What came of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::line::Answer;

/// Latencies are told apart from here on, in nanoseconds.
const LOWEST_NANOSECONDS: u64 = 1_000;
/// Latencies above an hour count as one.
const HIGHEST_NANOSECONDS: u64 = 3_600 * 1_000_000_000;
/// Decimal digits of a latency that are kept.
const DIGITS: u8 = 3;

/// Why a request was not answered whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// No connection could be opened.
    Connect,
    /// It took longer than it may.
    Timeout,
    /// The connection, or the stream of HTTP/2, was reset.
    Reset,
    /// The connection was closed before the head of the answer had come.
    Closed,
    /// The body ended before its end: it broke off, or is shorter than its `Content-Length`.
    CutOff,
    /// What came is not the HTTP that was asked for.
    Protocol,
}

impl Fault {
    /// The name by which it is printed.
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

/// Counts of finished requests, in memory of a fixed size whatever their number.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Nanoseconds of each request that was answered whole.
    pub(crate) latencies: Histogram<u64>,
    /// Answers by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Requests that were not answered whole, by reason.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Bytes of the bodies of answers.
    pub(crate) body_bytes: u64,
    /// Answers that said how long their body is, and were right.
    pub(crate) sized: u64,
}

impl Tally {
    pub(crate) fn new() -> Result<Self> {
        let latencies = Histogram::new_with_bounds(LOWEST_NANOSECONDS, HIGHEST_NANOSECONDS, DIGITS)
            .context("no histogram of latencies could be made")?;
        Ok(Self { latencies, statuses: BTreeMap::new(), faults: BTreeMap::new(), body_bytes: 0, sized: 0 })
    }

    /// Counts an answer that arrived whole.
    pub(super) fn answered(&mut self, latency: Duration, answer: &Answer) {
        self.latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        *self.statuses.entry(answer.status.as_u16()).or_default() += 1;
        self.body_bytes += answer.bytes;
        self.sized += u64::from(answer.is_sized);
    }

    /// Counts a request that was not answered whole.
    pub(super) fn failed(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Adds what another one counted.
    pub(super) fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies).context("the histograms differ")?;
        other.statuses.iter().for_each(|(status, count)| *self.statuses.entry(*status).or_default() += count);
        other.faults.iter().for_each(|(fault, count)| *self.faults.entry(*fault).or_default() += count);
        self.body_bytes += other.body_bytes;
        self.sized += other.sized;
        Ok(())
    }

    /// Requests that were answered whole.
    pub(crate) fn answers(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Requests that were not.
    pub(crate) fn failures(&self) -> u64 {
        self.faults.values().sum()
    }

    /// Answers that report no failure.
    pub(crate) fn successes(&self) -> u64 {
        self.statuses.range(..400).map(|(_, count)| count).sum()
    }
}

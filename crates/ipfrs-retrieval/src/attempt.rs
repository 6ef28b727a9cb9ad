//! Report of a retrieval: which sources were tried, and the outcome of each attempt.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipfrs_core::{Cid, Error, ErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of attempts in one report.
pub(crate) const MAX_ATTEMPTS: usize = 200;

/// Kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// A gateway of the configuration.
    Gateway,
    /// An HTTP server that a router or a client named.
    Provider,
    /// A peer, which exchanges blocks by Bitswap.
    Peer,
    /// A router, which names providers.
    Router,
}

impl SourceKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Gateway, Self::Provider, Self::Peer, Self::Router];

    /// Returns the name in reports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Provider => "provider",
            Self::Peer => "peer",
            Self::Router => "router",
        }
    }
}

/// Outcomes of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The source delivered what was requested.
    Delivered,
    /// The source responded that it does not have the content.
    Absent,
    /// The source responded that it is busy.
    Busy,
    /// The source could not be reached, or its response was an error or ended early.
    Failed,
    /// The source delivered bytes that do not match the content ID, or blocks that were not requested.
    Invalid,
    /// The content itself cannot be used: a block is too large, or is no valid node of its codec.
    Unusable,
    /// The source took too long.
    Slow,
    /// Another source was faster, or the client left.
    Cancelled,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 8] = [
        Self::Delivered,
        Self::Absent,
        Self::Busy,
        Self::Failed,
        Self::Invalid,
        Self::Unusable,
        Self::Slow,
        Self::Cancelled,
    ];

    /// Returns the name in reports and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Absent => "absent",
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Unusable => "unusable",
            Self::Slow => "slow",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One attempt to fetch something from a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Kind of the source.
    pub source: SourceKind,
    /// Scheme, host and port of the source, or `/p2p/` and the ID of a peer. Clients may know it.
    pub address: String,
    /// URL of the source without user name and password. Its path may contain a key, so only operators may know it.
    pub url: Option<String>,
    /// The content that was requested, such as `block bafy...`.
    pub request: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The outcome in words; empty if everything was delivered.
    pub detail: String,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// Start of the attempt, in milliseconds since the session began.
    pub start_ms: u64,
    /// Milliseconds from the start to the first byte of the response.
    pub first_byte_ms: Option<u64>,
    /// Milliseconds from the start to the end.
    pub duration_ms: u64,
    /// Received bytes.
    pub bytes: u64,
    /// Received blocks that are valid and were not known yet.
    pub blocks: u64,
}

/// Attempts of one session, in the order in which they ended.
#[derive(Debug)]
pub(crate) struct Trace {
    began: Instant,
    /// Number of attempts at HTTP sources and routers that have not ended.
    under_way: AtomicUsize,
    attempts: Mutex<Vec<Attempt>>,
}

impl Trace {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), under_way: AtomicUsize::new(0), attempts: Mutex::new(Vec::new()) }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Notes the beginning of an attempt, which is [added](Self::add) at its end.
    pub(crate) fn note_begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Adds an attempt that has ended. Of many, the first ones are kept, because they explain what happened.
    pub(crate) fn add(&self, attempt: Attempt) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut attempts = self.attempts.lock();
        if attempts.len() < MAX_ATTEMPTS {
            attempts.push(attempt);
        }
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().clone()
    }

    /// Returns the milliseconds from the beginning of the session to `instant`.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        millis(instant.saturating_duration_since(self.began))
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The cause of errors about a block that no source delivered: the attempts.
#[derive(Debug, Clone)]
pub struct Unretrieved {
    /// The missing block.
    pub cid: Cid,
    /// The attempts of the session that have ended.
    pub attempts: Arc<[Attempt]>,
    /// Number of attempts at HTTP sources and routers that have not ended.
    pub under_way: usize,
    /// The sources that were not asked because they failed before, and when the first of them is asked again.
    pub paused: Option<(usize, Duration)>,
}

impl Unretrieved {
    /// Returns the attempts if `error` is about a block that no source delivered.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        let first = std::error::Error::source(error);
        let mut causes = std::iter::successors(first, |cause| cause.source());
        causes.find_map(|cause| cause.downcast_ref::<Self>())
    }

    /// Returns the error that names the block and sums up the attempts. `timed_out` says whether the time limit of
    /// this many seconds ended the retrieval.
    pub(crate) fn into_error(self, timed_out: Option<u64>) -> Error {
        // The time limit cancels the attempts that are under way.
        let counts = |attempt: &&Attempt| timed_out.is_some() || attempt.outcome != Outcome::Cancelled;
        let tried: Vec<_> = self.attempts.iter().filter(counts).collect();
        let count = |outcome| tried.iter().filter(|attempt| attempt.outcome == outcome).count();
        let sums = Outcome::ALL.map(|outcome| (outcome, count(outcome)));
        let sums = sums.iter().map(|(outcome, n)| (outcome.name(), *n)).chain([("without an answer", self.under_way)]);
        let sums: Vec<_> = sums.filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect();
        let summary = match (sums.is_empty(), self.paused) {
            (true, Some((count, first))) => format!(
                "{count} of the sources failed before and are not asked for a while, the first for another {} s: the log \
                 and ipfrs_retrieval_attempts_total tell why",
                first.as_secs() + 1
            ),
            (true, None) => "there is no source to try: configure retrieval.gateways, retrieval.routers or \
                     retrieval.bitswap.peers, or connect to a peer (swarm/connect)"
                .to_owned(),
            (false, _) => format!("attempts: {}", sums.join(", ")),
        };
        let cid = self.cid;
        let has_failed =
            |outcome| matches!(outcome, Outcome::Failed | Outcome::Invalid | Outcome::Unusable | Outcome::Busy);
        let kind = match tried.iter().any(|attempt| has_failed(attempt.outcome)) {
            true if timed_out.is_none() => ErrorKind::BadSource,
            _ => ErrorKind::Unretrievable,
        };
        let message = match timed_out {
            Some(seconds) => format!(
                "block {cid} is not in this store, and no source delivered it in {seconds} s \
                 (retrieval.timeout_seconds); {summary}"
            ),
            None => format!("block {cid} is not in this store, and no source delivered it; {summary}"),
        };
        Error::new(kind, message).with_source(self)
    }
}

impl fmt::Display for Unretrieved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no source delivered block {}", self.cid)
    }
}

impl std::error::Error for Unretrieved {}

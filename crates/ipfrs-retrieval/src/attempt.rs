//! Report of a retrieval: which sources were tried, and the outcome of each attempt.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ipfrs_core::{Cid, Error, ErrorKind};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum number of attempts in one report.
pub(crate) const MAX_ATTEMPTS: usize = 200;

/// Time for which requests rely on what an earlier request has found out: the providers that routers name, and that no
/// source delivers a stream.
pub(crate) const FAILURE_AGE: Duration = Duration::from_secs(5);

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
    /// Time from the beginning of the session to the start.
    pub start: Duration,
    /// Time from the start to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time from the start to the end.
    pub duration: Duration,
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
    ended: Mutex<EndedAttempts>,
}

#[derive(Debug, Default)]
struct EndedAttempts {
    last: VecDeque<Attempt>,
    totals: Totals,
}

/// Sums over attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) attempts: u64,
    /// Number of attempts that did not deliver.
    pub(crate) failures: u64,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        self.failures += u64::from(!matches!(attempt.outcome, Outcome::Delivered | Outcome::Cancelled));
        self.blocks += attempt.blocks;
        self.bytes += attempt.bytes;
    }
}

impl Trace {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), under_way: AtomicUsize::new(0), ended: Mutex::default() }
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

    /// Adds an attempt that has ended. Of many, the last ones are kept, because requests that wait need them.
    pub(crate) fn add(&self, attempt: Attempt) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        let mut ended = self.ended.lock();
        ended.totals.add(&attempt);
        if ended.last.len() >= MAX_ATTEMPTS {
            ended.last.pop_front();
        }
        ended.last.push_back(attempt);
    }

    /// Returns the last attempts.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.ended.lock().last.iter().cloned().collect()
    }

    /// Returns the sums over all attempts that have ended.
    pub(crate) fn totals(&self) -> Totals {
        self.ended.lock().totals
    }

    /// Whether an attempt concerns a request that began at `since`: it ended later, or it was a lookup whose result is
    /// still used.
    pub(crate) fn concerns(&self, attempt: &Attempt, since: Instant) -> bool {
        let reused = if attempt.source == SourceKind::Router { FAILURE_AGE } else { Duration::ZERO };
        attempt.start + attempt.duration + reused >= self.at(since)
    }

    /// Returns the time from the beginning of the session to `instant`.
    pub(crate) fn at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.began)
    }
}

/// Returns at most [`MAX_ATTEMPTS`] of the attempts, in their order: some of each kind of source, failures before other
/// outcomes, and later ones before earlier ones.
pub(crate) fn most_useful(attempts: Vec<Attempt>) -> Vec<Attempt> {
    const OF_EACH_KIND: usize = MAX_ATTEMPTS / SourceKind::ALL.len();
    if attempts.len() <= MAX_ATTEMPTS {
        return attempts;
    }
    let use_of = |attempt: &Attempt| match attempt.outcome {
        Outcome::Invalid | Outcome::Unusable | Outcome::Failed | Outcome::Busy | Outcome::Slow => 0,
        Outcome::Delivered | Outcome::Absent => 1,
        Outcome::Cancelled => 2,
    };
    let mut ranked: Vec<_> = attempts.iter().enumerate().collect();
    ranked.sort_by_key(|(_, attempt)| (use_of(attempt), Reverse(attempt.start)));
    let mut counts: HashMap<SourceKind, usize> = HashMap::new();
    let (first, others): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(_, attempt)| {
        let count = counts.entry(attempt.source).or_default();
        *count += 1;
        *count <= OF_EACH_KIND
    });
    let mut kept: Vec<_> = first.into_iter().chain(others).take(MAX_ATTEMPTS).map(|(at, _)| at).collect();
    kept.sort_unstable();
    kept.into_iter().map(|at| attempts[at].clone()).collect()
}

/// The cause of errors about a block that no source delivered: the attempts.
#[derive(Debug, Clone)]
pub struct Unretrieved {
    /// The missing block.
    pub cid: Cid,
    /// The attempts that have ended since the request began, as many as a report may have.
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
            (false, paused) => format!("attempts: {}{}", sums.join(", "), paused.map(pauses).unwrap_or_default()),
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

/// Returns the text about sources that are not asked at present.
fn pauses((count, first): (usize, Duration)) -> String {
    let seconds = first.as_secs() + 1;
    match count {
        1 => format!("; 1 source is not asked for another {seconds} s"),
        _ => format!("; {count} sources are not asked for a while, the first for another {seconds} s"),
    }
}

impl fmt::Display for Unretrieved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no source delivered block {}", self.cid)
    }
}

impl std::error::Error for Unretrieved {}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(source: SourceKind, outcome: Outcome, start: Duration) -> Attempt {
        Attempt {
            source,
            address: "http://192.0.2.1".to_owned(),
            url: None,
            request: String::new(),
            outcome,
            detail: String::new(),
            status: None,
            start,
            first_byte: None,
            duration: Duration::from_millis(10),
            bytes: 1,
            blocks: 0,
        }
    }

    #[test]
    fn trace_keeps_the_last_attempts_and_counts_all() {
        let (trace, number) = (Trace::begin(), MAX_ATTEMPTS as u64 + 50);
        for start in 0..number {
            trace.note_begin();
            trace.add(attempt(SourceKind::Gateway, Outcome::Failed, Duration::from_millis(start)));
        }
        let attempts = trace.attempts();
        assert_eq!((attempts.len(), attempts[0].start), (MAX_ATTEMPTS, Duration::from_millis(50)));
        assert_eq!(trace.totals(), Totals { attempts: number, failures: number, blocks: 0, bytes: number });
    }

    #[test]
    fn report_has_a_limit_and_keeps_some_attempts_of_each_kind() {
        let made = |source, outcome, count: u64| {
            (0..count).map(move |start| attempt(source, outcome, Duration::from_millis(start)))
        };
        let few: Vec<_> = made(SourceKind::Gateway, Outcome::Absent, MAX_ATTEMPTS as u64).collect();
        assert_eq!(most_useful(few.clone()), few);
        let gateways =
            made(SourceKind::Gateway, Outcome::Absent, 150).chain(made(SourceKind::Router, Outcome::Slow, 1));
        let peers = made(SourceKind::Peer, Outcome::Cancelled, 100).chain(made(SourceKind::Peer, Outcome::Failed, 180));
        let kept = most_useful(gateways.chain(peers).collect());
        assert_eq!(kept.len(), MAX_ATTEMPTS);
        let of = |source, outcome| -> Vec<_> {
            let matching = kept.iter().filter(|attempt| (attempt.source, attempt.outcome) == (source, outcome));
            matching.map(|attempt| attempt.start.as_millis()).collect()
        };
        assert_eq!(of(SourceKind::Gateway, Outcome::Absent), (100..150).collect::<Vec<_>>());
        assert_eq!(of(SourceKind::Router, Outcome::Slow), [0]);
        assert_eq!(of(SourceKind::Peer, Outcome::Failed), (31..180).collect::<Vec<_>>());
        assert!(of(SourceKind::Peer, Outcome::Cancelled).is_empty());
    }

    #[test]
    fn attempts_concern_requests_that_began_before_their_end() {
        let trace = Trace::begin();
        let at = |ms| trace.began() + Duration::from_millis(ms);
        let after = |ms| at(ms) + Duration::from_nanos(1);
        let absent = |kind| attempt(kind, Outcome::Absent, Duration::from_millis(100));
        let (gateway, router) = [SourceKind::Gateway, SourceKind::Router].map(absent).into();
        assert!(trace.concerns(&gateway, at(110)) && !trace.concerns(&gateway, after(110)));
        assert!(trace.concerns(&router, at(5_110)) && !trace.concerns(&router, after(5_110)));
    }

    #[test]
    fn error_names_sources_that_are_not_asked() {
        let cid = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku".parse().unwrap();
        let attempts = vec![attempt(SourceKind::Gateway, Outcome::Absent, Duration::ZERO)].into();
        let paused = Some((2, Duration::from_secs(8)));
        let error = Unretrieved { cid, attempts, under_way: 0, paused }.into_error(None);
        let expected = "attempts: 1 absent; 2 sources are not asked for a while, the first for another 9 s";
        assert!(error.message().ends_with(expected), "{error}");
    }
}

//! An attempt that is running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipfrs_core::without_credentials;
use reqwest::Url;
use tokio::time::Instant;

use crate::attempt::{Attempt, Outcome, SourceKind, Trace};
use crate::http::Failure;
use crate::metrics::ReceivedBytes;
use crate::shared::Shared as Retrieval;
use crate::source::Source;

/// Effect of a failure on the health of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The outcome counts.
    Source,
    /// A CAR ended early.
    Car,
    /// Nothing: a limit of this node ended the attempt.
    Nothing,
}

/// An attempt that is running. If it is dropped before its end, it is reported as cancelled.
pub(crate) struct RunningAttempt {
    retrieval: Arc<Retrieval>,
    trace: Arc<Trace>,
    source: Option<Arc<Source>>,
    kind: SourceKind,
    url: Url,
    request: String,
    start: Instant,
    pub(crate) first_byte: Option<Instant>,
    pub(crate) bytes: ReceivedBytes,
    pub(crate) blocks: u64,
    pub(crate) blame: Blame,
    has_ended: AtomicBool,
}

impl RunningAttempt {
    /// Records that the source has sent a CAR.
    pub(crate) fn note_car(&self) {
        if let Some(source) = &self.source {
            source.note_car();
        }
    }

    /// Begins an attempt at an HTTP source.
    pub(crate) fn begin(retrieval: &Arc<Retrieval>, trace: &Arc<Trace>, source: &Arc<Source>, request: String) -> Self {
        let (kind, url) = (source.kind, source.url.clone());
        Self::new(retrieval, trace, Some(Arc::clone(source)), kind, url, request)
    }

    /// Begins a lookup of providers.
    pub(crate) fn begin_lookup(retrieval: &Arc<Retrieval>, trace: &Arc<Trace>, router: &Url, request: String) -> Self {
        Self::new(retrieval, trace, None, SourceKind::Router, router.clone(), request)
    }

    fn new(
        retrieval: &Arc<Retrieval>,
        trace: &Arc<Trace>,
        source: Option<Arc<Source>>,
        kind: SourceKind,
        url: Url,
        request: String,
    ) -> Self {
        trace.note_begin();
        Self {
            retrieval: Arc::clone(retrieval),
            trace: Arc::clone(trace),
            source,
            kind,
            url,
            request,
            start: Instant::now(),
            first_byte: None,
            bytes: retrieval.metrics.received_bytes(kind),
            blocks: 0,
            blame: Blame::Source,
            has_ended: AtomicBool::new(false),
        }
    }

    /// Ends the attempt.
    pub(crate) fn end(&mut self, result: Result<(), &Failure>) {
        let (outcome, detail, status, retry_after) = match result {
            Ok(()) => (Outcome::Delivered, String::new(), Some(200), None),
            Err(failure) => (failure.outcome, failure.detail.clone(), failure.status, failure.retry_after),
        };
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let since_start = |instant: Instant| instant.saturating_duration_since(self.start);
        if let Some(source) = &self.source {
            if let Some(first_byte) = self.first_byte {
                source.note_first_byte(since_start(first_byte));
                source.note_transfer(self.bytes.sum(), first_byte.elapsed());
            }
            match self.blame {
                Blame::Source => source.note(outcome, self.start, retry_after),
                Blame::Car => source.note_broken_car(self.start),
                Blame::Nothing => {}
            }
            if outcome == Outcome::Invalid {
                let pause = source.paused_until().map_or(0, |until| until.duration_since(Instant::now()).as_secs() + 1);
                let source = without_credentials(self.url.as_str(), "");
                tracing::warn!(%source, request = %self.request, "the source is not used for {pause} s: {detail}");
            }
        }
        let attempt = Attempt {
            source: self.kind,
            address: self.url.origin().ascii_serialization(),
            url: Some(without_credentials(self.url.as_str(), "")),
            request: std::mem::take(&mut self.request),
            outcome,
            detail,
            status,
            start: self.trace.at(self.start),
            first_byte: self.first_byte.map(since_start),
            duration: self.start.elapsed(),
            bytes: self.bytes.sum(),
            blocks: self.blocks,
        };
        self.retrieval.metrics.count(&attempt);
        self.trace.add(attempt);
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.end(Err(&Failure::new(Outcome::Cancelled, "")));
    }
}

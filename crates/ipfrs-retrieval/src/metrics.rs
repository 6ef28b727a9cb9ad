//! Metrics of retrieval.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_core::{Error, Result};
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::attempt::{Attempt, Outcome, SourceKind};

/// Metrics of all sessions.
#[derive(Debug, Clone)]
pub(crate) struct RetrievalMetrics {
    pub(crate) attempts: IntCounterVec,
    pub(crate) blocks: IntCounterVec,
    pub(crate) bytes: IntCounterVec,
    pub(crate) first_byte: HistogramVec,
    pub(crate) sessions: IntGauge,
}

impl RetrievalMetrics {
    /// Creates the metrics and registers them.
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let counter = |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let metrics = || -> prometheus::Result<Self> {
            let first_byte = HistogramOpts::new(
                "ipfrs_retrieval_first_byte_seconds",
                "Time from a request to a source until its response begins",
            );
            let buckets = vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
            let metrics = Self {
                attempts: counter(
                    "ipfrs_retrieval_attempts_total",
                    "Attempts to fetch content or providers, by kind of source and outcome",
                    &["source", "outcome"],
                )?,
                blocks: counter("ipfrs_retrieval_blocks_total", "Verified blocks that sources delivered", &["source"])?,
                bytes: counter("ipfrs_retrieval_bytes_total", "Bytes received from sources", &["source"])?,
                first_byte: HistogramVec::new(first_byte.buckets(buckets), &["source"])?,
                sessions: IntGauge::new("ipfrs_retrieval_sessions", "Roots that are being fetched")?,
            };
            registry.register(Box::new(metrics.attempts.clone()))?;
            registry.register(Box::new(metrics.blocks.clone()))?;
            registry.register(Box::new(metrics.bytes.clone()))?;
            registry.register(Box::new(metrics.first_byte.clone()))?;
            registry.register(Box::new(metrics.sessions.clone()))?;
            Ok(metrics)
        };
        let metrics =
            metrics().map_err(|e| Error::internal("the metrics of retrieval cannot be registered").with_source(e))?;
        for kind in SourceKind::ALL {
            metrics.blocks.with_label_values(&[kind.name()]);
            metrics.bytes.with_label_values(&[kind.name()]);
            metrics.first_byte.with_label_values(&[kind.name()]);
            for outcome in Outcome::ALL {
                metrics.attempts.with_label_values(&[kind.name(), outcome.name()]);
            }
        }
        Ok(metrics)
    }

    /// Returns a count of the bytes of one attempt at a source of this kind.
    pub(crate) fn received_bytes(&self, kind: SourceKind) -> ReceivedBytes {
        ReceivedBytes { sum: Arc::default(), of_all: self.bytes.with_label_values(&[kind.name()]) }
    }

    /// Counts an attempt that has ended. Its bytes have been counted before.
    pub(crate) fn count(&self, attempt: &Attempt) {
        let source = attempt.source.name();
        self.attempts.with_label_values(&[source, attempt.outcome.name()]).inc();
        self.blocks.with_label_values(&[source]).inc_by(attempt.blocks);
        if let Some(first_byte) = attempt.first_byte {
            self.first_byte.with_label_values(&[source]).observe(first_byte.as_secs_f64());
        }
    }
}

/// Bytes that one attempt has received. The metrics count them as they arrive. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedBytes {
    sum: Arc<AtomicU64>,
    of_all: IntCounter,
}

impl ReceivedBytes {
    pub(crate) fn add(&self, bytes: u64) {
        self.sum.fetch_add(bytes, Ordering::Relaxed);
        self.of_all.inc_by(bytes);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

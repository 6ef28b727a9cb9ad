//! Metrics of name resolution.

use ipfrs_core::{Error, ErrorKind};
use prometheus::{IntCounterVec, Opts};

use crate::CacheMeter;

/// Handles of the name metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct NameMetrics {
    resolutions: IntCounterVec,
    /// Metrics of the record cache.
    pub(super) cache: CacheMeter,
}

impl NameMetrics {
    /// Creates the metric family of resolutions, which the caller registers.
    pub(crate) fn family() -> prometheus::Result<IntCounterVec> {
        let opts = Opts::new("ipfrs_name_resolutions_total", "Name resolutions");
        let family = IntCounterVec::new(opts, &["kind", "outcome"])?;
        for kind in ["key", "dnslink"] {
            for outcome in ["resolved", "unresolvable", "failed"] {
                family.with_label_values(&[kind, outcome]);
            }
        }
        Ok(family)
    }

    pub(crate) fn new(resolutions: IntCounterVec, cache: CacheMeter) -> Self {
        Self { resolutions, cache }
    }

    /// Counts a completed resolution.
    pub(super) fn resolved(&self, kind: &str, error: Option<&Error>) {
        let outcome = match error.map(Error::kind) {
            None => "resolved",
            Some(ErrorKind::Unresolvable) => "unresolvable",
            Some(_) => "failed",
        };
        self.resolutions.with_label_values(&[kind, outcome]).inc();
    }

    pub(super) fn looked_up(&self, is_known: bool) {
        self.cache.looked_up(is_known);
    }
}

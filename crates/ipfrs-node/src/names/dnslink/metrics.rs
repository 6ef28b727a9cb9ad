//! Metrics of DNSLink lookups.

use prometheus::{IntCounter, IntCounterVec, Opts};

use crate::CacheMeter;

/// Handles of the lookup metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct LookupMetrics {
    /// Lookups that found a link.
    pub(super) found: IntCounter,
    /// Lookups that found no link.
    pub(super) none: IntCounter,
    /// Lookups to which no resolver responded in time.
    pub(super) timed_out: IntCounter,
    /// Lookups that failed in another way.
    pub(super) failed: IntCounter,
    /// Metrics of the lookup cache.
    pub(crate) answers: CacheMeter,
}

impl LookupMetrics {
    /// Creates the metric family, which the caller registers.
    pub(crate) fn family() -> prometheus::Result<IntCounterVec> {
        IntCounterVec::new(Opts::new("ipfrs_dnslink_lookups_total", "DNSLink lookups in DNS"), &["outcome"])
    }

    pub(crate) fn new(lookups: &IntCounterVec, answers: CacheMeter) -> Self {
        let outcome = |outcome| lookups.with_label_values(&[outcome]);
        Self {
            found: outcome("found"),
            none: outcome("none"),
            timed_out: outcome("timeout"),
            failed: outcome("failed"),
            answers,
        }
    }
}

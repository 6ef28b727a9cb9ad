//! What lookups of DNSLinks count.

use prometheus::{IntCounter, IntCounterVec, Opts};

use crate::CacheMeter;

/// Handles of the metrics of lookups. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct LookupMetrics {
    /// Domains with a link.
    pub(super) found: IntCounter,
    /// Domains without one.
    pub(super) none: IntCounter,
    /// Lookups that no resolver answered in time.
    pub(super) timed_out: IntCounter,
    /// Lookups that failed in another way.
    pub(super) failed: IntCounter,
    /// The cache of answers.
    pub(crate) answers: CacheMeter,
}

impl LookupMetrics {
    /// The family, to be registered.
    pub(crate) fn family() -> prometheus::Result<IntCounterVec> {
        IntCounterVec::new(
            Opts::new("ipfrs_dnslink_lookups_total", "Domains whose DNSLink DNS was asked for"),
            &["outcome"],
        )
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

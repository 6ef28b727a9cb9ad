//! Metrics of denylists.

use std::path::Path;

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::Kind;

/// Handles of the denylist metrics. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct DenylistMetrics {
    /// Number of rules, by list.
    pub(crate) rules: IntGaugeVec,
    /// Number of refused blocks, paths and names, by kind.
    pub(crate) blocked: IntCounterVec,
    /// Number of changed files that could not be loaded.
    pub(crate) reload_failures: IntCounter,
}

impl DenylistMetrics {
    /// Creates the metric families, which the caller registers.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let rules = Opts::new("ipfrs_denylist_rules", "Active rules, by denylist");
        let blocked = Opts::new("ipfrs_denylist_blocked_total", "Blocks, paths and names blocked by denylists");
        let failures = "Changed denylists that could not be loaded";
        let metrics = Self {
            rules: IntGaugeVec::new(rules, &["list"])?,
            blocked: IntCounterVec::new(blocked, &["kind"])?,
            reload_failures: IntCounter::new("ipfrs_denylist_reload_failures_total", failures)?,
        };
        for kind in [Kind::Block, Kind::Path, Kind::Name] {
            metrics.blocked.with_label_values(&[kind.label()]);
        }
        Ok(metrics)
    }

    pub(super) fn blocked(&self, kind: Kind) {
        self.blocked.with_label_values(&[kind.label()]).inc();
    }

    /// Sets the metric of a list in force.
    pub(super) fn loaded(&self, path: &Path, rules: u64) {
        let rules = i64::try_from(rules).unwrap_or(i64::MAX);
        self.rules.with_label_values(&[&path.display().to_string()]).set(rules);
    }

    /// Removes the metric of a list.
    pub(super) fn removed(&self, path: &Path) {
        // The list may never have been in force.
        let _ = self.rules.remove_label_values(&[&path.display().to_string()]);
    }

    pub(super) fn reload_failed(&self) {
        self.reload_failures.inc();
    }
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Path => "path",
            Self::Name => "name",
        }
    }
}

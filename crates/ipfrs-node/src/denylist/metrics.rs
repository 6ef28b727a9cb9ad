//! What denylists count.

use std::path::Path;

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts};

use super::Kind;

/// Handles of the metrics of denylists. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct DenylistMetrics {
    /// Rules, by list.
    pub(crate) rules: IntGaugeVec,
    /// What was asked for and not given, by kind.
    pub(crate) blocked: IntCounterVec,
    /// Changes that were not taken over.
    pub(crate) reload_failures: IntCounter,
}

impl DenylistMetrics {
    /// The families, to be registered.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let rules = Opts::new("ipfrs_denylist_rules", "Rules in force, by denylist");
        let blocked = Opts::new("ipfrs_denylist_blocked_total", "Blocks, paths and names that denylists kept back");
        let failures = "Denylists that had changed and could not be loaded";
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

    /// Shows a list that is in force.
    pub(super) fn loaded(&self, path: &Path, rules: u64) {
        let rules = i64::try_from(rules).unwrap_or(i64::MAX);
        self.rules.with_label_values(&[&path.display().to_string()]).set(rules);
    }

    /// Shows a list no more.
    pub(super) fn removed(&self, path: &Path) {
        // It may never have been in force.
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

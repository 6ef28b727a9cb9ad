//! The `[pinning]` section.

use std::time::Duration;

use ipfrs_core::Result;
use serde::Deserialize;

use crate::config::ranges::in_range;

/// `[pinning]`: the pinning service API, `/pinning/v1`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PinningConfig {
    /// Whether the node is a pinning service.
    pub enabled: bool,
    /// Maximum number of requests. Of several callers, one has at most as many as are free for others.
    pub max_requests: usize,
    /// Maximum number of requests for which content is retrieved at the same time. Of several callers, one has at most
    /// as many as are free for others.
    pub max_concurrent: usize,
    /// Seconds after which a request fails whose content is not complete.
    pub timeout_seconds: u64,
}

impl Default for PinningConfig {
    fn default() -> Self {
        Self { enabled: true, max_requests: 10_000, max_concurrent: 8, timeout_seconds: 3_600 }
    }
}

impl PinningConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("pinning.max_requests", self.max_requests as u64, 1, 100_000)?;
        in_range("pinning.max_concurrent", self.max_concurrent as u64, 1, 1_000)?;
        in_range("pinning.timeout_seconds", self.timeout_seconds, 1, 31_536_000)
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }
}

//! The `[ipns]` section.

use std::time::Duration;

use ipfrs_core::Result;
use serde::Deserialize;

use crate::config::in_range;

/// `[ipns]`: records of names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpnsConfig {
    /// How long a record that is published here is valid where the request does not say, in seconds.
    pub record_lifetime_seconds: u64,
    /// How long others may go on using an answer from a record that is published here where the request does not say,
    /// and from a record that does not say it, in seconds.
    pub record_ttl_seconds: u64,
    /// Longest that an answer is used, whatever its record says, in seconds.
    pub max_cache_ttl_seconds: u64,
    /// Whether the daemon signs records of its own keys again before they end.
    pub republish: bool,
    /// Most names whose records are kept, beside those of own keys.
    pub max_records: usize,
}

impl Default for IpnsConfig {
    fn default() -> Self {
        Self {
            record_lifetime_seconds: 172_800,
            record_ttl_seconds: 300,
            max_cache_ttl_seconds: 31_536_000,
            republish: true,
            max_records: 100_000,
        }
    }
}

impl IpnsConfig {
    /// How long a record that is published here is valid where nobody says.
    #[must_use]
    pub fn record_lifetime(&self) -> Duration {
        Duration::from_secs(self.record_lifetime_seconds)
    }

    /// How long an answer from a record holds where nobody says.
    #[must_use]
    pub fn record_ttl(&self) -> Duration {
        Duration::from_secs(self.record_ttl_seconds)
    }

    /// How long an answer holds at most.
    #[must_use]
    pub fn max_cache_ttl(&self) -> Duration {
        Duration::from_secs(self.max_cache_ttl_seconds)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("ipns.record_lifetime_seconds", self.record_lifetime_seconds, 60, 3_153_600_000)?;
        in_range("ipns.record_ttl_seconds", self.record_ttl_seconds, 0, 31_536_000)?;
        in_range("ipns.max_cache_ttl_seconds", self.max_cache_ttl_seconds, 0, 31_536_000)?;
        in_range("ipns.max_records", self.max_records as u64, 1, 10_000_000)
    }
}

//! The `[ipns]` section.

use std::time::Duration;

use ipfrs_core::Result;
use serde::Deserialize;

use crate::config::ranges::in_range;

/// `[ipns]`: name records.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpnsConfig {
    /// Default validity of a record that is published here, in seconds.
    #[cfg(feature = "keys")]
    pub record_lifetime_seconds: u64,
    /// Default time to live, in seconds: for records that are published here without one, and for resolving records
    /// that have none.
    pub record_ttl_seconds: u64,
    /// Maximum time to live of a resolution, whatever its record states, in seconds.
    pub max_cache_ttl_seconds: u64,
    /// Whether the daemon renews the records of its own keys before they expire.
    #[cfg(feature = "keys")]
    pub republish: bool,
    /// Maximum number of names whose records are stored, not counting own keys.
    pub max_records: usize,
}

impl Default for IpnsConfig {
    fn default() -> Self {
        Self {
            #[cfg(feature = "keys")]
            record_lifetime_seconds: 172_800,
            record_ttl_seconds: 300,
            max_cache_ttl_seconds: 31_536_000,
            #[cfg(feature = "keys")]
            republish: true,
            max_records: 100_000,
        }
    }
}

impl IpnsConfig {
    /// Returns the default validity of a record that is published here.
    #[cfg(feature = "keys")]
    #[must_use]
    pub fn record_lifetime(&self) -> Duration {
        Duration::from_secs(self.record_lifetime_seconds)
    }

    /// Returns the default time to live of a record.
    #[must_use]
    pub fn record_ttl(&self) -> Duration {
        Duration::from_secs(self.record_ttl_seconds)
    }

    /// Returns the maximum time to live of a resolution.
    #[must_use]
    pub fn max_cache_ttl(&self) -> Duration {
        Duration::from_secs(self.max_cache_ttl_seconds)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and the accepted
    /// range.
    pub fn validate(&self) -> Result<()> {
        #[cfg(feature = "keys")]
        in_range("ipns.record_lifetime_seconds", self.record_lifetime_seconds, 60, 3_153_600_000)?;
        in_range("ipns.record_ttl_seconds", self.record_ttl_seconds, 0, 31_536_000)?;
        in_range("ipns.max_cache_ttl_seconds", self.max_cache_ttl_seconds, 0, 31_536_000)?;
        in_range("ipns.max_records", self.max_records as u64, 1, 10_000_000)
    }
}

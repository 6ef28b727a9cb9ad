//! The `[rate_limit]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::network::Network;

/// `[rate_limit]`: requests and bytes of one client or caller.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitConfig {
    /// Whether there are limits.
    pub enabled: bool,
    /// Requests of an address in a second, in the long run. Each message to `/ws` and `/ws/ingest` is one.
    pub requests_per_second: u64,
    /// Requests of an address at once.
    pub burst_requests: u64,
    /// Bytes of responses and events to an address, and of its messages, in a second, in the long run; 0 for no limit.
    pub bytes_per_second: u64,
    /// Bytes of responses to an address at once.
    pub burst_bytes: u64,
    /// Limits of a caller with an API key or a token, as a multiple of those of an address.
    pub caller_factor: u64,
    /// Number of addresses and callers that are remembered.
    pub max_clients: usize,
    /// Networks without limits.
    pub exempt: Vec<Network>,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            requests_per_second: 50,
            burst_requests: 500,
            bytes_per_second: 0,
            burst_bytes: 1 << 30,
            caller_factor: 10,
            max_clients: 100_000,
            exempt: Vec::new(),
        }
    }
}

impl RateLimitConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        for (key, given, least, most) in [
            ("requests_per_second", self.requests_per_second, 1, 1_000_000),
            ("burst_requests", self.burst_requests, 1, 10_000_000),
            ("bytes_per_second", self.bytes_per_second, 0, 1 << 40),
            ("burst_bytes", self.burst_bytes, 1, 1 << 50),
            ("caller_factor", self.caller_factor, 1, 10_000),
            ("max_clients", self.max_clients as u64, 1_000, 10_000_000),
        ] {
            if !(least..=most).contains(&given) {
                return Err(Error::invalid(format!(
                    "rate_limit.{key} = {given}: accepted values are {least} to {most}"
                )));
            }
        }
        Ok(())
    }
}

//! The `[gateway]` section, and all sections of this crate.

use std::collections::BTreeMap;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::CompressionConfig;

/// The sections that the front-end reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpConfig {
    /// `[gateway]`.
    pub gateway: GatewayConfig,
    /// `[compression]`.
    pub compression: CompressionConfig,
}

impl HttpConfig {
    /// Checks the ranges of every section.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        self.gateway.validate()?;
        self.compression.validate()
    }
}

/// `[gateway]`: bounds of gateway answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Most ranges that one request may ask for; a request with more gets the whole file, as RFC 9110 (14.2) allows.
    pub max_ranges: usize,
    /// Seconds that an upload, or the reader of a long command's lines, may pause before it is given up.
    pub upload_idle_seconds: u64,
    /// Where domains lead without DNS being asked: content paths by domain. The Node reads them.
    pub dnslink: BTreeMap<String, String>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { max_ranges: 32, upload_idle_seconds: 60, dnslink: BTreeMap::new() }
    }
}

impl GatewayConfig {
    /// How long a client may pause.
    pub(crate) fn idle_patience(&self) -> Duration {
        Duration::from_secs(self.upload_idle_seconds)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        if !(1..=1_000).contains(&self.max_ranges) {
            return Err(Error::invalid(format!("gateway.max_ranges = {}: accepted are 1 to 1000", self.max_ranges)));
        }
        if !(1..=86_400).contains(&self.upload_idle_seconds) {
            let given = self.upload_idle_seconds;
            return Err(Error::invalid(format!("gateway.upload_idle_seconds = {given}: accepted are 1 to 86400")));
        }
        Ok(())
    }
}

//! The `[compression]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use super::coding::Coding;
use super::level::CompressionLevel;

/// `[compression]`: compression of responses for clients that send `Accept-Encoding`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressionConfig {
    /// Whether responses are compressed.
    pub enabled: bool,
    /// Compression level: the amount of work spent on smaller responses.
    pub level: CompressionLevel,
    /// Content codings to offer. If the client weighs several equally, the first in this list is used.
    pub algorithms: Vec<Coding>,
    /// Minimum body size in bytes. Compressing shorter bodies would not save a packet.
    pub min_bytes: u64,
    /// Maximum number of bytes of compressed bodies kept for later requests; 0 for none. One body may take an eighth
    /// of it.
    pub cache_bytes: u64,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            level: CompressionLevel::default(),
            algorithms: Coding::ALL.to_vec(),
            min_bytes: 1_024,
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

impl CompressionConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted values.
    pub fn validate(&self) -> Result<()> {
        let twice = |coding: &Coding| self.algorithms.iter().filter(|other| *other == coding).count() > 1;
        if self.algorithms.is_empty() {
            return Err(Error::invalid("compression.algorithms = []: list at least one, or set enabled = false"));
        }
        if let Some(coding) = self.algorithms.iter().find(|coding| twice(coding)) {
            return Err(Error::invalid(format!("compression.algorithms = [...]: {coding} is listed twice")));
        }
        if self.min_bytes > 1 << 30 {
            let given = self.min_bytes;
            return Err(Error::invalid(format!(
                "compression.min_bytes = {given}: accepted values are 0 to 1073741824"
            )));
        }
        if self.cache_bytes > 1 << 40 {
            let given = self.cache_bytes;
            return Err(Error::invalid(format!(
                "compression.cache_bytes = {given}: accepted values are 0 to 1099511627776"
            )));
        }
        Ok(())
    }
}

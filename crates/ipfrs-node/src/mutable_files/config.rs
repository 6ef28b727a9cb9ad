//! `[mutable_files]`.

use ipfrs_core::Result;
use serde::Deserialize;

use crate::config::ranges::in_range;

/// `[mutable_files]`: limits of mutable files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MutableFilesConfig {
    /// Maximum number of consecutive operations without a flush; 0 for no limit. A crash undoes them.
    pub max_unflushed: u64,
}

impl Default for MutableFilesConfig {
    fn default() -> Self {
        Self { max_unflushed: 256 }
    }
}

impl MutableFilesConfig {
    /// Checks the range.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("mutable_files.max_unflushed", self.max_unflushed, 0, 1_000_000_000)
    }
}

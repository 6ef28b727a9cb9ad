//! The `[upload]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[upload]`: limits of uploads under `/v1/stream/upload`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UploadConfig {
    /// Maximum size of an upload, in bytes.
    pub max_bytes: u64,
    /// Maximum number of unfinished resumable uploads.
    pub max_unfinished: usize,
    /// Seconds after its last request for which a resumable upload is kept. Until then, clients can resume it, or
    /// query its CID if it is finished.
    pub expires_after_seconds: u64,
}

impl Default for UploadConfig {
    fn default() -> Self {
        Self { max_bytes: 1 << 40, max_unfinished: 1_000, expires_after_seconds: 86_400 }
    }
}

impl UploadConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and the accepted
    /// range.
    pub fn validate(&self) -> Result<()> {
        let in_range = |key: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::invalid(format!("upload.{key} = {value}: accepted values are {least} to {most}"))),
        };
        in_range("max_bytes", self.max_bytes, 1, 1 << 50)?;
        in_range("max_unfinished", self.max_unfinished as u64, 1, 5_000)?;
        in_range("expires_after_seconds", self.expires_after_seconds, 1, 31_536_000)
    }
}

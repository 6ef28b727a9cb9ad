//! The `[streaming]` section of the configuration.

use std::fmt;

use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Accepted values of `streaming.chunk_size`: from one page to the largest block.
const CHUNK_BYTES: std::ops::RangeInclusive<u32> = 4 * 1024..=2 * 1024 * 1024;

/// Accepted values of `streaming.max_dag_depth`. A DAG within the block limit cannot have more levels than blocks.
const DAG_LEVELS: std::ops::RangeInclusive<u32> = 8..=MAX_DAG_BLOCKS as u32;

/// Default maximum depth. Ordinary files have three levels, and lists of 100,000 nodes exist.
const DEFAULT_DAG_LEVELS: u32 = 1024 * 1024;

/// The read-ahead of a reader relative to the connection that it feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowControl {
    /// A window of 1 MiB, for many slow clients or little memory.
    Conservative,
    /// A window of 4 MiB.
    #[default]
    Balanced,
    /// A window of 16 MiB, for few fast clients or blocks on slow disks.
    Aggressive,
}

impl FlowControl {
    /// Returns the most bytes of a file that one reader requests or holds before its consumer takes them.
    #[must_use]
    pub fn window_bytes(self) -> u64 {
        match self {
            Self::Conservative => 1024 * 1024,
            Self::Balanced => 4 * 1024 * 1024,
            Self::Aggressive => 16 * 1024 * 1024,
        }
    }
}

/// The `[streaming]` section: how files are read for connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamingConfig {
    /// Largest piece of a file that is passed to a connection at once, in bytes: 4096 to 2097152. A piece never
    /// extends beyond the end of a block.
    pub chunk_size: u32,
    /// Read-ahead of a reader relative to its connection: `"conservative"` (1 MiB), `"balanced"` (4 MiB) or
    /// `"aggressive"` (16 MiB).
    pub flow_control: FlowControl,
    /// Maximum depth below the root of a DAG, for files and CARs, and maximum nesting of directories in a TAR
    /// archive: 8 to 16777216. A level to which the reader has to return takes about 70 bytes of memory, and at most
    /// 200.
    pub max_dag_depth: u32,
}

impl Default for StreamingConfig {
    fn default() -> Self {
        Self { chunk_size: 1024 * 1024, flow_control: FlowControl::default(), max_dag_depth: DEFAULT_DAG_LEVELS }
    }
}

impl StreamingConfig {
    /// Checks the ranges that the types do not enforce.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message names the key, the value and the
    /// accepted values.
    pub fn validate(&self) -> Result<()> {
        if !CHUNK_BYTES.contains(&self.chunk_size) {
            let (given, from, to) = (self.chunk_size, CHUNK_BYTES.start(), CHUNK_BYTES.end());
            return Err(Error::invalid(format!("streaming.chunk_size = {given}: use {from} to {to} bytes")));
        }
        if !DAG_LEVELS.contains(&self.max_dag_depth) {
            let (given, from, to) = (self.max_dag_depth, DAG_LEVELS.start(), DAG_LEVELS.end());
            return Err(Error::invalid(format!("streaming.max_dag_depth = {given}: use {from} to {to}")));
        }
        Ok(())
    }

    /// Returns the error for a DAG that exceeds the depth limit. `what` names the DAG, and `at` the block at which
    /// the limit was exceeded.
    #[must_use]
    pub fn too_deep(&self, what: &str, at: &dyn fmt::Display) -> Error {
        let limit = self.max_dag_depth;
        Error::too_large(format!(
            "{what} is deeper than the limit of {limit} levels below its root (streaming.max_dag_depth = {limit}), at {at}: \
             request its blocks one by one, or raise the limit"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_held_to_their_ranges() {
        for (chunk_size, accepted) in [(4095, false), (4096, true), (2_097_152, true), (2_097_153, false)] {
            let outcome = StreamingConfig { chunk_size, ..StreamingConfig::default() }.validate();
            assert_eq!(outcome.is_ok(), accepted, "{chunk_size}");
            if let Err(error) = outcome {
                let expected = format!("streaming.chunk_size = {chunk_size}: use 4096 to 2097152 bytes");
                assert_eq!(error.message(), expected);
            }
        }
        StreamingConfig::default().validate().unwrap();
        let error = StreamingConfig { max_dag_depth: 16_777_217, ..StreamingConfig::default() }.validate().unwrap_err();
        assert_eq!(error.message(), "streaming.max_dag_depth = 16777217: use 8 to 16777216");
    }
}

//! Metrics of fetched blocks.

use prometheus::{IntCounter, IntGauge};

/// Metrics of fetched blocks.
#[derive(Debug, Clone)]
pub(crate) struct FetchedMetrics {
    /// Bytes of fetched blocks that may be evicted.
    pub(crate) bytes: IntGauge,
    /// Number of fetched blocks that may be evicted.
    pub(crate) blocks: IntGauge,
    /// Blocks that were evicted.
    pub(crate) evictions: IntCounter,
    /// Bytes of blocks that were evicted.
    pub(crate) evicted_bytes: IntCounter,
    /// Fetched blocks that became content of users.
    pub(crate) claimed: IntCounter,
    /// Fetched blocks that were not stored, because eviction did not free space in time.
    pub(crate) refused: IntCounter,
}

//! Totals over all packs.

/// Totals of the blocks in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::pack) struct Totals {
    /// Number of blocks.
    pub(in crate::pack) blocks: u64,
    /// Length of their data, in bytes.
    pub(in crate::pack) payload_bytes: u64,
}

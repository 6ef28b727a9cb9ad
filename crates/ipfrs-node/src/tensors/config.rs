//! The `[tensor]` section.

use serde::Deserialize;

/// `[tensor]`: tensors within files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TensorConfig {
    /// Whether files can be asked for their tensors.
    pub enabled: bool,
    /// Whether the bytes of a tensor go out as slices of the blocks that hold them, where they lie in long runs. Without,
    /// they are copied into pieces of one size.
    pub zero_copy: bool,
}

impl Default for TensorConfig {
    fn default() -> Self {
        Self { enabled: true, zero_copy: true }
    }
}

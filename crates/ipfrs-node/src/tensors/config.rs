//! The `[tensor]` section.

use serde::Deserialize;

/// `[tensor]`: tensors within files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TensorConfig {
    /// Whether the tensor API is enabled.
    pub enabled: bool,
    /// Whether long contiguous runs of a tensor are sent as slices of the blocks that contain them. If false, all
    /// bytes are copied into pieces of a fixed size.
    pub zero_copy: bool,
}

impl Default for TensorConfig {
    fn default() -> Self {
        Self { enabled: true, zero_copy: true }
    }
}

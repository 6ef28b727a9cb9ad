//! `files/*`.

use serde::{Deserialize, Serialize};

use super::FileAttributes;

/// Response of `files/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FileStat {
    pub hash: String,
    /// Size of a file in bytes, and 0 for a directory.
    pub size: u64,
    pub cumulative_size: u64,
    /// Number of links of the root block.
    pub blocks: u64,
    /// `file`, `directory`, or `symlink`, which Kubo calls `file`.
    pub r#type: String,
    #[serde(flatten)]
    pub attributes: FileAttributes,
}

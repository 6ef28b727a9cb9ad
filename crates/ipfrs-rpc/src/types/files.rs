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
    /// Whether `local` and `size_local` were requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_locality: bool,
    /// Whether all blocks are in the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Size of the blocks in the store, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size_local: u64,
    #[serde(flatten)]
    pub attributes: FileAttributes,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Response of `files/flush`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FlushedFile {
    /// Content ID of the file or directory.
    pub cid: String,
}

/// Response of `files/ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FileList {
    /// Entries in the order of the directory; `null` if there are none.
    pub entries: Option<Vec<FileEntry>>,
}

/// Entry of `files/ls`. Without `long`, only the name is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FileEntry {
    pub name: String,
    /// Bytes of the name in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
    /// 0 for a file, 1 for a directory.
    pub r#type: u8,
    /// Size of a file in bytes, and 0 for a directory.
    pub size: u64,
    pub hash: String,
}

//! `ls`.

use serde::{Deserialize, Serialize};

/// Response of `ls`, or one of its lines with `stream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Listings {
    pub objects: Vec<Listing>,
}

/// Entries of one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Listing {
    /// The requested path.
    pub hash: String,
    pub links: Vec<Link>,
}

/// Entry of a directory. A name or target that is not UTF-8 has replacement characters, and its bytes are added in
/// base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Link {
    pub name: String,
    pub hash: String,
    pub size: u64,
    /// Number of the UnixFS `DataType`: [`Self::DIRECTORY`], [`Self::FILE`], [`Self::SYMLINK`], or 0 for unknown.
    pub r#type: u8,
    #[serde(default)]
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_bytes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<String>,
    /// Go's `fs.FileMode`, if permissions are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Time in RFC 3339 format, if it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mod_time: Option<String>,
}

impl Link {
    /// Type of a directory. Sharded directories have it too.
    pub const DIRECTORY: u8 = 1;
    /// Type of a file.
    pub const FILE: u8 = 2;
    /// Type of a symlink.
    pub const SYMLINK: u8 = 4;
}

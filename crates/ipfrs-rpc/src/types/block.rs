//! `block/*`.

use serde::{Deserialize, Serialize};

/// Content ID and size in bytes of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct BlockStat {
    pub key: String,
    pub size: u64,
}

/// A line of `block/rm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemovedBlock {
    pub hash: String,
    /// Why the block was not removed, or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Code of the error. Only ipfrs sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

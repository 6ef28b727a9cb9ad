//! `pin/*`.

use serde::{Deserialize, Serialize};

/// Content IDs that were pinned or unpinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Pins {
    pub pins: Vec<String>,
}

/// A line of `pin/add` with `progress`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum PinnedLine {
    Pinned(Pins),
    Progress(PinProgress),
}

/// The number of blocks visited so far, and their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PinProgress {
    /// Kubo omits 0.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub progress: u64,
    /// Absent in old versions of Kubo.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub bytes: u64,
}

/// A line of `pin/ls` with `stream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PinLine {
    pub cid: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `recursive`, `direct`, `indirect` or `indirect through CID`.
    #[serde(default)]
    pub r#type: String,
}

/// A line of `pin/verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct VerifiedPin {
    pub cid: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bad_nodes: Vec<BadNode>,
}

/// A block that is missing or corrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct BadNode {
    pub cid: String,
    pub err: String,
}

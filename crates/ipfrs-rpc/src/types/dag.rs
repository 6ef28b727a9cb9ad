//! `dag/*`.

use serde::{Deserialize, Serialize};

/// A content ID as a dag-json link: `{"/":cid}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CidLink {
    #[serde(rename = "/")]
    pub cid: String,
}

/// Response of `dag/resolve`: the last block along a path, and the remaining path, which is empty or begins with a
/// slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ResolvedNode {
    pub cid: CidLink,
    pub rem_path: String,
}

/// A line of `dag/put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct StoredNode {
    pub cid: CidLink,
}

/// A line of `dag/import`: the outcome for a root, or the totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub enum ImportedCar {
    /// A root. `pin_error_msg` is empty if the root was pinned.
    #[serde(rename_all = "PascalCase")]
    Root { cid: CidLink, pin_error_msg: String },
    #[serde(rename_all = "PascalCase")]
    Stats { block_count: u64, block_bytes_count: u64 },
}

/// A line of `dag/stat`. Only the last line has `unique_blocks` and `ratio`; Kubo's clients recognize it by the ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct DagStats {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_blocks: Option<u64>,
    #[serde(default)]
    pub total_size: u64,
    /// Bytes that several DAGs share. As in Kubo, 0 is omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(default)]
    pub dag_stats: Vec<DagStat>,
}

/// Size of one DAG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct DagStat {
    pub cid: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub num_blocks: u64,
}

/// Response of `object/patch/add-link` and `object/patch/rm-link`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PatchedObject {
    pub hash: String,
}

/// Response of `object/diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ObjectChanges {
    pub changes: Vec<ObjectChange>,
}

/// Difference between two DAGs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ObjectChange {
    /// 0 for an added, 1 for a removed, 2 for a changed link.
    pub r#type: u8,
    pub path: String,
    pub before: Option<CidLink>,
    pub after: Option<CidLink>,
}

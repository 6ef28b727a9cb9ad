//! `repo/*`.

use serde::{Deserialize, Serialize};

use super::CidLink;

/// Response of `repo/stat`. With `size-only`, all but the two sizes is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RepoStat {
    pub repo_size: u64,
    pub storage_max: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_objects: Option<u64>,
    /// Maximum number of bytes that a compaction could free. Only ipfrs sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Response of `repo/version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RepoVersion {
    pub version: String,
}

/// A snapshot of blocks, pins and mutable files, from which a backup is copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RepoSnapshot {
    /// Directory with the packs, `pins.redb` and, if the mutable files were used, `mutable-files.root`. The client
    /// removes it at the end.
    pub directory: String,
    /// File that the client must lock with flock(2) within a minute, for as long as it uses the snapshot. If it also
    /// writes its process ID there, the snapshot is removed as soon as the lock is released.
    pub lock: String,
    /// Directory of the repo.
    pub repo: String,
    /// Directory of the store, which is that of the repo unless `store.path` is set.
    pub store: String,
    pub packs: Vec<SnapshotPack>,
}

/// A pack of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotPack {
    /// Number of the pack. The file name is this number with eight digits and `.car`.
    pub number: u32,
    /// Number of bytes that belong to the snapshot. The file may be longer.
    pub bytes: u32,
}

/// A line of `repo/gc`. Progress and summary are sent only by ipfrs, and only with `progress`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum GcLine {
    Summary(GcSummary),
    Progress(GcProgress),
    Removed(RemovedKey),
}

/// A removed block, or the reason why a block could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemovedKey {
    pub key: Option<CidLink>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Progress of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct GcProgress {
    pub phase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
}

/// Outcome of a garbage collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct GcSummary {
    pub kept_blocks: u64,
    pub removed_blocks: u64,
    pub removed_bytes: u64,
    pub freed_bytes: u64,
    pub seconds: f64,
}

/// A line of `repo/verify`: a corrupt block, or the number of blocks checked so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct VerifyLine {
    #[serde(default)]
    pub msg: String,
    #[serde(default)]
    pub progress: u64,
}

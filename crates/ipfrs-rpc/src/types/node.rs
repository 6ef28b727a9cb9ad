//! `id`, `version`, `stats/bw`.

use serde::{Deserialize, Serialize};

/// Response of `id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Id {
    #[serde(rename = "ID")]
    pub id: String,
    pub public_key: String,
    pub addresses: Vec<String>,
    pub agent_version: String,
    pub protocols: Vec<String>,
}

/// Response of `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Version {
    /// Kubo version that clients should assume.
    pub version: String,
    #[serde(default)]
    pub commit: String,
    #[serde(default)]
    pub repo: String,
    #[serde(default)]
    pub system: String,
    #[serde(default)]
    pub golang: String,
    /// Version of ipfrs. Absent if another implementation serves the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipfrs: Option<String>,
}

/// Response of `stats/bw`: transferred bytes, and rates in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct BandwidthTotals {
    pub total_in: u64,
    pub total_out: u64,
    pub rate_in: f64,
    pub rate_out: f64,
}

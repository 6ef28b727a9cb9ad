//! `name/*` and `resolve`.

use serde::{Deserialize, Serialize};

/// Response of `name/publish` and `name/put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PublishedName {
    pub name: String,
    pub value: String,
}

/// Response of `name/resolve` and `resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ResolvedPath {
    pub path: String,
    /// The path in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

/// Response of `name/inspect`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct InspectedRecord {
    pub entry: RecordEntry,
    pub pb_size: u64,
    pub signature_type: String,
    pub hex_dump: String,
    pub validation: Option<RecordValidation>,
}

/// Fields of an IPNS record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RecordEntry {
    pub value: String,
    pub validity_type: u8,
    pub validity: String,
    pub sequence: u64,
    /// Time to live in nanoseconds.
    #[serde(rename = "TTL")]
    pub ttl: Option<u64>,
}

/// Whether a record is valid for a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RecordValidation {
    pub valid: bool,
    pub reason: String,
    pub name: String,
}

//! `cid/*` and `multibase/list`.

use serde::{Deserialize, Serialize};

/// A line of `cid/format` and `cid/base32`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct FormattedCid {
    pub cid_str: String,
    pub formatted: String,
    pub error_msg: String,
}

/// An entry of `cid/bases`, `cid/codecs`, `cid/hashes` and `multibase/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct CodeAndName {
    pub code: u64,
    pub name: String,
}

/// Response of `cid/inspect`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct InspectedCid {
    pub cid: String,
    pub version: u64,
    pub multibase: InspectedBase,
    pub multicodec: InspectedCodec,
    pub multihash: InspectedHash,
    #[serde(default, rename = "cidV0", skip_serializing_if = "String::is_empty")]
    pub cid_v0: String,
    #[serde(rename = "cidV1")]
    pub cid_v1: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error_msg: String,
}

/// Multibase of an inspected content ID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InspectedBase {
    pub prefix: String,
    pub name: String,
}

/// Multicodec of an inspected content ID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InspectedCodec {
    pub code: u64,
    pub name: String,
}

/// Multihash of an inspected content ID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InspectedHash {
    pub code: u64,
    pub name: String,
    /// Length of the digest, in bytes.
    pub length: usize,
    /// Digest in base16.
    pub digest: String,
}

//! `key/*`.

use serde::{Deserialize, Serialize};

/// Name and ID of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Key {
    pub name: String,
    pub id: String,
}

/// Response of `key/list` and `key/rm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Keys {
    pub keys: Vec<Key>,
}

/// Response of `key/rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RenamedKey {
    pub was: String,
    pub now: String,
    pub id: String,
    /// Whether another key was replaced.
    pub overwrite: bool,
}

/// Response of `key/sign`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Signed {
    pub key: Key,
    /// The signature in multibase.
    pub signature: String,
}

/// Response of `key/verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct SignatureCheck {
    pub key: Key,
    pub signature_valid: bool,
}

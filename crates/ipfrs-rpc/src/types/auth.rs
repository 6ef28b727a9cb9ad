//! `/v1/auth/*`.

use serde::{Deserialize, Serialize};

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKey {
    /// The part of the token that identifies it.
    pub id: String,
    pub name: String,
    /// `read`, `write`, `pin`, `names` or `admin`.
    pub scopes: Vec<String>,
    /// Roots below which it may read content; empty for no restriction.
    pub roots: Vec<String>,
    /// Time in RFC 3339.
    pub created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// All API keys, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiKeys {
    pub keys: Vec<ApiKey>,
}

/// Request for a new API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// Purpose of the key, for its owner.
    #[serde(default, deserialize_with = "super::null_as_default")]
    pub name: String,
    /// `read`, `write`, `pin`, `names` or `admin`.
    pub scopes: Vec<String>,
    /// Roots below which it may read content; missing for no restriction. An empty list is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<String>>,
    /// Seconds after which it is no longer valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_seconds: Option<u64>,
}

/// A new API key. The token is shown only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreatedApiKey {
    pub token: String,
    pub key: ApiKey,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuthenticatedCaller {
    /// Whether the daemon authenticates its callers. If not, all of them have all rights.
    pub enabled: bool,
    /// `key:{id}`, `jwt:{subject}` or `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    pub scopes: Vec<String>,
    /// Roots below which it may read content; empty for no restriction.
    pub roots: Vec<String>,
}

//! Failures of requests.

use serde::{Deserialize, Serialize};

/// Body of a failed command's response, and last line of a stream that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RpcFailure {
    pub message: String,
    pub code: u8,
    /// Always `error`.
    pub r#type: String,
    /// Error code of the native API, which is more specific than status 500.
    pub kind: String,
}

/// A failure as reported by the RPC API ([`RpcFailure`]), or by the native API (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    #[serde(rename = "Message", alias = "detail")]
    pub message: String,
    /// Error code. Kubo sends none.
    #[serde(rename = "Kind", alias = "code")]
    pub kind: Option<String>,
}

//! `/v1/retrieve/*`.

use serde::{Deserialize, Serialize};

/// Report of a retrieval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetrievalReport {
    /// Content ID of the target, if it was found.
    pub cid: Option<String>,
    /// Whether the whole part is in the store now.
    pub complete: bool,
    /// Number of blocks of the part in the store.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    pub duration_ms: u64,
    /// Kind of the error that ended the retrieval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Empty if everything was in the store.
    pub attempts: Vec<RetrievalAttempt>,
}

/// Attempt to fetch something from a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RetrievalAttempt {
    /// `gateway`, `provider` or `router`.
    pub source: String,
    /// Scheme, host and port of a server, or `/p2p/` and the ID of a peer. On the API listener, the URL of a server.
    pub address: String,
    /// The requested content.
    pub request: String,
    /// `delivered`, `absent`, `busy`, `failed`, `invalid`, `unusable`, `slow` or `cancelled`.
    pub outcome: String,
    pub detail: String,
    /// HTTP status.
    pub status: Option<u16>,
    /// Milliseconds since the retrieval of the root began.
    pub start_ms: u64,
    pub first_byte_ms: Option<u64>,
    pub duration_ms: u64,
    pub bytes: u64,
    pub blocks: u64,
}

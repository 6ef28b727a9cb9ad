//! `/v1/block/batch/*`.

use serde::{Deserialize, Serialize};

/// Request for several blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CidList {
    pub cids: Vec<String>,
}

/// Response of `batch/has`, in the requested order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlockExistences {
    pub results: Vec<BlockExistence>,
}

/// Whether a block is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlockExistence {
    pub cid: String,
    pub exists: bool,
    /// Size in bytes of a stored block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Why the content ID could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An item of a batch that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FailedItem {
    pub cid: String,
    pub code: String,
    pub error: String,
}

/// Response of `batch/get`, which the server streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BlockBatch {
    /// The blocks that are stored, in the requested order.
    pub blocks: Vec<BatchBlock>,
    pub errors: Vec<FailedItem>,
}

/// A block of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchBlock {
    /// The content ID as requested.
    pub cid: String,
    /// The block in base64.
    pub data: String,
    pub size: u64,
}

/// Request of `batch/put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutBatch {
    pub blocks: Vec<NewBlock>,
    /// `atomic` (default) or `best_effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^(atomic|best_effort)$"))]
    pub transaction_mode: Option<String>,
}

/// A block to store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewBlock {
    /// The block in base64.
    pub data: String,
    /// The expected content ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cid: Option<String>,
    /// Default `raw`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// Default `sha2-256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mhtype: Option<String>,
}

/// Response of `batch/put`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredBatch {
    pub stored: Vec<StoredItem>,
    pub errors: Vec<RefusedItem>,
    pub transaction_id: String,
    /// `committed`, `partial_success` or `rolled_back`.
    pub transaction_status: String,
}

/// A block of a batch that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StoredItem {
    pub cid: String,
    pub size: usize,
    /// Its position in the request.
    pub index: usize,
}

/// A block of a batch that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedItem {
    /// Its position in the request.
    pub index: usize,
    pub code: String,
    pub error: String,
}

/// The outcome of `batch/put` as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchPutStatus {
    /// `committed`, `partial_success` or `rolled_back`.
    pub transaction_status: String,
}

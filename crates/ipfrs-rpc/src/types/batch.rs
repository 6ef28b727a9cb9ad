//! `/v1/block/batch/*`.

use serde::{Deserialize, Serialize};

/// Request for several blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CidList {
    pub cids: Vec<String>,
}

/// Response of `batch/has`, in the requested order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockExistences {
    pub results: Vec<BlockExistence>,
}

/// Whether a block is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct FailedItem {
    pub cid: String,
    pub code: String,
    pub error: String,
}

/// The outcome of `batch/put` as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BatchPutStatus {
    /// `committed`, `partial_success` or `rolled_back`.
    pub transaction_status: String,
}

//! `/v1/tensor/*`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Response to `info`: the tensors of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorList {
    pub cid: String,
    /// `safetensors` or `npy`.
    pub format: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub tensors: Vec<Tensor>,
}

/// Description of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub size_bytes: u64,
    /// Offset of its data in the file, in bytes.
    pub offset: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fortran_order: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub big_endian: bool,
}

/// Response to `stats`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorStatsList {
    pub cid: String,
    pub format: String,
    pub tensors: Vec<TensorStats>,
}

/// A tensor with statistics of its elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TensorStats {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub elements: ElementStats,
}

/// Statistics of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ElementStats {
    pub count: u64,
    pub nan: u64,
    pub inf: u64,
    pub zero: u64,
    /// Absent if no element is finite.
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub mean: Option<f64>,
    pub std: Option<f64>,
}

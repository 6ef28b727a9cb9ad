//! Tensors.

#![allow(clippy::unused_async, reason = "the macro makes fields of asynchronous functions")]

use std::sync::Arc;

use async_graphql::{Context, Object, SimpleObject};
use ipfrs_node::{Summary, TensorFile, TensorInfo};

use crate::context::{ObjectMemory, node, request};
use crate::error::{FieldResult, failed};
use crate::json::text_len;
use crate::scalars::{Cid, Long};

/// A tensor in a file.
pub(crate) struct Tensor {
    pub(crate) file: TensorFile,
    pub(crate) info: TensorInfo,
    /// Held as long as the file.
    pub(crate) _memory: Arc<ObjectMemory>,
}

/// A tensor in a file.
#[Object]
impl Tensor {
    /// Name of the tensor; empty for the tensor of a .npy file.
    async fn name(&self, context: &Context<'_>) -> FieldResult<&str> {
        request(context)?.budget.take(text_len(self.info.name.as_bytes())).map_err(failed)?;
        Ok(&self.info.name)
    }

    /// Type of the elements, such as F32.
    async fn dtype(&self) -> &'static str {
        self.info.dtype.name()
    }

    /// Size of each dimension, outermost first; empty for a scalar.
    async fn shape(&self) -> Vec<Long> {
        self.info.shape.iter().map(|size| Long(*size)).collect()
    }

    /// Size in bytes.
    async fn size_bytes(&self) -> Long {
        Long(self.info.bytes)
    }

    /// Offset of the first byte in the file.
    async fn offset(&self) -> Long {
        Long(self.info.offset)
    }

    /// Statistics, which are computed from all elements.
    #[graphql(complexity = "1000 + child_complexity")]
    async fn stats(&self, context: &Context<'_>) -> FieldResult<Option<TensorStats>> {
        let summary = node(context)?.tensor_stats(&self.file, &self.info).await.map_err(failed)?;
        Ok(Some(summary.into()))
    }
}

/// Statistics of a tensor.
#[derive(SimpleObject)]
pub(crate) struct TensorStats {
    /// Number of elements.
    count: Long,
    /// Number of elements that are NaN.
    nan: Long,
    /// Number of infinite elements.
    infinite: Long,
    /// Number of elements that are zero.
    zero: Long,
    /// Least finite element.
    min: Option<f64>,
    /// Greatest finite element.
    max: Option<f64>,
    /// Mean of the finite elements.
    mean: Option<f64>,
    /// Population standard deviation of the finite elements.
    std: Option<f64>,
}

impl From<Summary> for TensorStats {
    fn from(summary: Summary) -> Self {
        Self {
            count: Long(summary.count),
            nan: Long(summary.nan),
            infinite: Long(summary.infinite),
            zero: Long(summary.zero),
            min: summary.min,
            max: summary.max,
            mean: summary.mean,
            std: summary.std,
        }
    }
}

/// Fields of a page of tensors.
#[derive(SimpleObject)]
pub(crate) struct TensorFields {
    /// Content ID of the file.
    pub(crate) cid: Cid,
    /// Number of tensors in the file.
    pub(crate) total_count: Long,
}

//! Storing tensors: a safetensors file that is created while the bytes arrive.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_tensor::{Dtype, Order, TensorInfo, safetensors_head, tensor_bytes};
use tokio::task::spawn_blocking;

use super::TensorOperation;
use crate::{Node, OperationId, UploadOptions, Uploaded};

/// A tensor to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTensor {
    /// Name in the file.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Number of elements in each dimension, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
}

impl NewTensor {
    /// Returns the size of the elements in bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the tensor is larger than 2^64 bytes or not a whole
    /// number of bytes, or has too many dimensions. The message contains its name.
    pub fn bytes(&self) -> Result<u64> {
        tensor_bytes(self.dtype, &self.shape)
            .map_err(|e| Error::new(e.kind(), format!("tensor {:?}: {}", self.name, e.message())))
    }
}

impl Node {
    /// Stores tensors as one safetensors file, and returns their locations in it. `content` contains the bytes of all
    /// tensors in order, and is imported as it arrives. When this returns, the file is durable, and pinned unless
    /// `options` disable it. If this fails or the future is dropped, nothing is pinned.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for duplicate names, shapes that overflow, and if `content`
    /// has more or fewer bytes than the tensors; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a type that
    /// the format does not have, and if `tensor.enabled` is false; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for
    /// a header over the limit; otherwise as [`Node::upload`].
    pub async fn put_tensors<S>(
        &self,
        tensors: Vec<NewTensor>,
        metadata: BTreeMap<String, String>,
        options: &UploadOptions,
        content: S,
    ) -> Result<(Uploaded, Vec<TensorInfo>)>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin,
    {
        self.check_tensors()?;
        if tensors.is_empty() {
            return Err(Error::invalid(
                "no tensors were described: send the descriptions of all tensors before their bytes",
            ));
        }
        let described = spawn_blocking(move || describe(tensors, &metadata)).await;
        let described = described.map_err(|e| Error::internal("describing tensors failed").with_source(e));
        let (head, placed) = described??;
        let (head_bytes, file_bytes) = (head.len() as u64, placed.last().map_or(head.len() as u64, end));
        let mut at = head_bytes;
        let counted = content.map(Some).chain(stream::iter([None])).filter_map(|piece| {
            let checked = match piece {
                Some(Ok(piece)) => {
                    at = at.saturating_add(piece.len() as u64);
                    if at > file_bytes { Some(Err(too_many(file_bytes - head_bytes))) } else { Some(Ok(piece)) }
                }
                Some(Err(e)) => Some(Err(e)),
                None if at < file_bytes => Some(Err(too_few(&placed, at))),
                None => None,
            };
            std::future::ready(checked)
        });
        let whole = stream::iter([Ok(head)]).chain(counted);
        let uploaded = self.upload(options, OperationId::random()?, Some(file_bytes), whole).await?;
        placed.iter().for_each(|tensor| self.count_tensor(TensorOperation::Put, tensor.bytes));
        Ok((uploaded, placed))
    }
}

/// Returns the head of the file and the locations of its tensors.
fn describe(tensors: Vec<NewTensor>, metadata: &BTreeMap<String, String>) -> Result<(Bytes, Vec<TensorInfo>)> {
    let parts = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()));
    let head = safetensors_head(parts, metadata)?;
    let mut offset = head.len() as u64;
    let mut placed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let bytes = tensor.bytes()?;
        let NewTensor { name, dtype, shape } = tensor;
        let order = Order::RowMajor;
        placed.push(TensorInfo { name, dtype, shape, offset, bytes, order, is_big_endian: false });
        offset =
            offset.checked_add(bytes).ok_or_else(|| Error::too_large("these tensors have more than 2^64 bytes"))?;
    }
    Ok((head.into(), placed))
}

fn end(tensor: &TensorInfo) -> u64 {
    tensor.offset + tensor.bytes
}

fn too_many(bytes: u64) -> Error {
    Error::invalid(format!("the content is longer than the {bytes} bytes of the described tensors"))
}

/// Returns the error for a file that ends too early, at byte `at`.
fn too_few(tensors: &[TensorInfo], at: u64) -> Error {
    let first = tensors.partition_point(|tensor| end(tensor) <= at);
    let missing = tensors.get(first).map(|tensor| (tensor.name.as_str(), end(tensor) - at.max(tensor.offset)));
    let (name, bytes) = missing.unwrap_or_default();
    Error::invalid(format!(
        "the content ended early: {bytes} bytes of tensor {name:?} and all later tensors are missing"
    ))
}

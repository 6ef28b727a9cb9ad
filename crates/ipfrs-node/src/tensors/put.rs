//! Tensors that are stored: a safetensors file, made while their bytes come in.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use ipfrs_tensor::{Dtype, Order, TensorInfo, safetensors_head, tensor_bytes};
use tokio::task::spawn_blocking;

use super::TensorOperation;
use crate::{Node, OperationId, UploadOptions, Uploaded};

/// A tensor that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTensor {
    /// Its name in the file.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Elements of each dimension, outermost first; none for a scalar.
    pub shape: Vec<u64>,
}

impl NewTensor {
    /// Bytes of its elements.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names a tensor of more than 2^64 bytes, of no whole number of them,
    /// or of too many dimensions.
    pub fn bytes(&self) -> Result<u64> {
        tensor_bytes(self.dtype, &self.shape)
            .map_err(|e| Error::new(e.kind(), format!("tensor {:?}: {}", self.name, e.message())))
    }
}

impl Node {
    /// Stores tensors as one safetensors file, and gives where they are in it. `content` has the bytes of all of them, in
    /// order, and is imported as it comes. The file is durable, and pinned unless `options` say otherwise, when this
    /// returns; when it fails, or the future is dropped, nothing is pinned.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for names that occur twice, shapes that overflow, and when there
    /// are more or fewer bytes than the tensors have; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a type that the
    /// format does not have, and where `tensor.enabled` is off; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header over
    /// the limit; else as [`Node::upload`].
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
                "no tensors were described: a description of each comes before the bytes of all",
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

/// The head of the file, and where its tensors are.
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
    Error::invalid(format!("there are more bytes than the {bytes} of the tensors that were described"))
}

/// What is missing of a file that ends at byte `at`.
fn too_few(tensors: &[TensorInfo], at: u64) -> Error {
    let first = tensors.partition_point(|tensor| end(tensor) <= at);
    let missing = tensors.get(first).map(|tensor| (tensor.name.as_str(), end(tensor) - at.max(tensor.offset)));
    let (name, bytes) = missing.unwrap_or_default();
    Error::invalid(format!(
        "the bytes end too early: {bytes} of tensor {name:?} are missing, and all that come after it"
    ))
}

//! Files with tensors, and parts of tensors.

use std::sync::Arc;

use ipfrs_core::{Cid, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Catalogue, Dtype, MAX_LISTED, Order, Plan, Selection, Slice, TensorInfo, column_major};

use super::metrics::TensorOperation;
use super::rows::Rows;
use crate::{ContentPath, FileContent};

/// A file with tensors.
#[derive(Debug, Clone)]
pub struct TensorFile {
    /// CID of the file.
    pub cid: Cid,
    /// Its tensors and metadata.
    pub catalogue: Arc<Catalogue>,
    pub(super) path: Arc<ContentPath>,
    pub(super) file: FileContent,
}

/// The elements of a tensor, or of a slice of it, before they are read.
#[derive(Debug, Clone)]
pub struct TensorPart {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Number of elements in each dimension.
    pub shape: Vec<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Location in the file, if the bytes are contiguous and need no conversion, as for whole tensors and leading
    /// slices. `None` for big-endian and column-major data.
    pub(super) span: Option<Span>,
    /// Order of the elements. Only the npy format supports column-major data, because it states the order.
    pub order: Order,
    /// [`TensorOperation::Get`] for a whole tensor, or [`TensorOperation::Slice`].
    pub(super) operation: TensorOperation,
    pub(super) plan: Plan,
    /// If the slice lists indices of the first dimension: the rows, in place of `plan`.
    pub(super) rows: Option<Rows>,
    /// Order in which the file has the elements.
    pub(super) stored_order: Order,
    /// Start of the tensor in the file.
    pub(super) offset: u64,
    pub(super) is_big_endian: bool,
    pub(super) file: FileContent,
}

impl TensorFile {
    /// Returns a slice of a tensor of this file, without reading it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a slice that does not fit the shape of the tensor, or
    /// is not a whole number of bytes; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a list of indices of a
    /// column-major tensor if a row has more than one dimension, or if the list selects very many rows.
    pub fn part(&self, tensor: &TensorInfo, slice: &Slice) -> Result<TensorPart> {
        let selection = slice.select(&tensor.shape)?;
        if selection.rows().is_some() {
            return self.listed(tensor, selection);
        }
        let plan = Plan::new(tensor.dtype, &selection, tensor.order)?;
        let start = match plan.as_one() {
            Some(run) => Some(run.start),
            None => (plan.bytes() == 0).then_some(0),
        };
        let order = if selection.is_one_line() { Order::RowMajor } else { tensor.order };
        let start = start.filter(|_| !tensor.is_big_endian && order == Order::RowMajor);
        Ok(TensorPart {
            dtype: tensor.dtype,
            shape: selection.shape(),
            bytes: plan.bytes(),
            span: start.map(|start| Span { start: tensor.offset + start, len: plan.bytes() }),
            order,
            operation: if slice.is_whole() { TensorOperation::Get } else { TensorOperation::Slice },
            plan,
            rows: None,
            stored_order: tensor.order,
            offset: tensor.offset,
            is_big_endian: tensor.is_big_endian,
            file: self.file.clone(),
        })
    }

    /// Returns the rows of a tensor that a selection lists.
    fn listed(&self, tensor: &TensorInfo, selection: Selection) -> Result<TensorPart> {
        let row = selection.at_rows(0..1);
        let mut selection = selection;
        if tensor.order == Order::ColumnMajor {
            if !row.is_one_line() || selection.first_count() > MAX_LISTED as u64 {
                return Err(column_major());
            }
            // The file has the elements of several rows in another order.
            selection = selection.with_single_rows();
        }
        let plan = Plan::new(tensor.dtype, &row, tensor.order)?;
        let (shape, row_bytes) = (selection.shape(), plan.bytes());
        let rows = Rows::new(selection, row_bytes)?;
        Ok(TensorPart {
            dtype: tensor.dtype,
            shape,
            bytes: rows.bytes(),
            span: None,
            order: Order::RowMajor,
            operation: TensorOperation::Slice,
            plan,
            rows: Some(rows),
            stored_order: tensor.order,
            offset: tensor.offset,
            is_big_endian: tensor.is_big_endian,
            file: self.file.clone(),
        })
    }

    /// Returns the file itself.
    #[must_use]
    pub fn file(&self) -> &FileContent {
        &self.file
    }
}

//! Tensors of files: what a file holds, and the bytes of any slice of it.

mod catalogue;
mod config;
mod content;
mod gather;
mod metrics;
mod put;
mod swap;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Catalogue, Dtype, Order, Plan, Slice, Stats, Summary, TensorInfo, column_major};
use tokio::task::spawn_blocking;

use crate::{ContentPath, FileContent, Node, Object, ObjectKind};
pub(crate) use catalogue::Catalogues;
pub use config::TensorConfig;
pub use content::{TensorContent, TensorRequest};
use gather::Gather;
pub(crate) use metrics::TensorMetrics;
pub use metrics::TensorOperation;
pub use put::NewTensor;
use swap::Swap;

/// A file with tensors.
#[derive(Debug, Clone)]
pub struct TensorFile {
    /// The content ID of the file.
    pub cid: Cid,
    /// What it holds.
    pub catalogue: Arc<Catalogue>,
    path: Arc<ContentPath>,
    file: FileContent,
}

/// The elements of a tensor, or of a slice of it, before they are read.
#[derive(Debug, Clone)]
pub struct TensorPart {
    /// Type of the elements.
    pub dtype: Dtype,
    /// Elements of each dimension of the part.
    pub shape: Vec<u64>,
    /// How many bytes it has.
    pub bytes: u64,
    /// Where its bytes are in the file, where they lie in one piece: whole tensors and leading slices do, but not of those that
    /// are big-endian or lie column by column.
    span: Option<Span>,
    /// The order of the elements in its bytes. What lies column by column is for the format npy alone, which says so.
    pub order: Order,
    /// [`TensorOperation::Get`] of a whole tensor, or [`TensorOperation::Slice`].
    operation: TensorOperation,
    plan: Plan,
    /// Where the tensor begins in the file.
    offset: u64,
    is_big_endian: bool,
    file: FileContent,
}

impl TensorFile {
    /// A slice of a tensor of this file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a slice that does not fit the tensor's shape, or is no whole
    /// number of bytes.
    pub fn part(&self, tensor: &TensorInfo, slice: &Slice) -> Result<TensorPart> {
        let selection = slice.select(&tensor.shape)?;
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
            offset: tensor.offset,
            is_big_endian: tensor.is_big_endian,
            file: self.file.clone(),
        })
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &FileContent {
        &self.file
    }
}

impl Node {
    /// The tensors of the file that a path leads to. Asking for the list of them is counted by [`Self::count_tensor`].
    ///
    /// # Errors
    /// As [`Node::resolve`]; [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for what is no file with tensors, with what
    /// is wrong in it; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header over the limit;
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) where `tensor.enabled` is off.
    pub async fn tensors(&self, path: impl Into<Arc<ContentPath>>) -> Result<TensorFile> {
        self.check_tensors()?;
        self.tensors_of(self.resolve(path).await?).await
    }

    /// As [`Self::tensors`], of what a path was found to lead to.
    ///
    /// # Errors
    /// As [`Self::tensors`].
    pub async fn tensors_of(&self, object: Object) -> Result<TensorFile> {
        self.check_tensors()?;
        let object = object.whole()?;
        let catalogue = self.catalogue(&object).await?;
        let Object { cid, kind: ObjectKind::File(file), facts, .. } = object else {
            return Err(Error::internal("what has tensors is no file"));
        };
        Ok(TensorFile { cid, catalogue, path: facts.path.clone(), file })
    }

    /// Checks that there are tensors to be asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) where `tensor.enabled` is off.
    pub fn check_tensors(&self) -> Result<()> {
        match self.inner.config.tensor.enabled {
            true => Ok(()),
            false => Err(Error::unsupported("tensors are switched off here (tensor.enabled = false)")),
        }
    }

    /// The bytes of a part of a tensor, little-endian and in row-major order, and counts the reading of it. What lies in one
    /// piece is read as any span of a file; else elements are gathered, in memory of a fixed size, from the blocks that hold
    /// them. Of a part that lies column by column the stream is an error
    /// ([`ErrorKind::Unsupported`](ipfrs_core::ErrorKind)): [`Self::read_tensors`] gives it as an `.npy` file.
    pub fn read_tensor(&self, part: &TensorPart) -> BoxStream<'static, Result<Bytes>> {
        if part.order == Order::ColumnMajor {
            return stream::once(std::future::ready(Err(column_major()))).boxed();
        }
        self.count_tensor(part.operation, part.bytes);
        self.metered(self.read_part(part, Span::whole(part.bytes))).boxed()
    }

    /// A span of the bytes of a part, in its order. Nothing of it counts as a download.
    fn read_part(&self, part: &TensorPart, span: Span) -> BoxStream<'static, Result<Bytes>> {
        if !part.is_big_endian {
            return self.read_stored(part, span);
        }
        let swap = Swap::new(part.dtype.number_bytes());
        let around = swap.around(span, part.bytes);
        swap.turned(self.read_stored(part, around), span)
    }

    /// As [`Self::read_part`], the bytes as they are in the file.
    fn read_stored(&self, part: &TensorPart, span: Span) -> BoxStream<'static, Result<Bytes>> {
        match part.span.filter(|_| self.inner.config.tensor.zero_copy) {
            Some(Span { start, .. }) => {
                self.reader(&part.file, Span { start: start + span.start, len: span.len }).boxed()
            }
            None => Gather::new(self, &part.file, part.offset, &part.plan, span).boxed(),
        }
    }

    /// Counts an operation on tensors, and the bytes that it concerns, for the metrics: lists and puts. Reading and summing up
    /// are counted where they are done.
    pub fn count_tensor(&self, operation: TensorOperation, bytes: u64) {
        self.inner.metrics.tensors.count(operation, bytes);
    }

    /// Counts, extremes and moments of a tensor, in one pass over its bytes. As many tensors are summed up at the same time
    /// as there are cores; dropping the future ends the work with the piece that is at hand.
    ///
    /// # Errors
    /// As the stream of [`Node::read`].
    pub async fn tensor_stats(&self, file: &TensorFile, tensor: &TensorInfo) -> Result<Summary> {
        self.count_tensor(TensorOperation::Stats, tensor.bytes);
        let mut stats = Stats::new(tensor.dtype);
        let pieces = self.read_part(&file.part(tensor, &Slice::default())?, Span::whole(tensor.bytes));
        let mut pieces = pieces.inspect_err(|error| self.inner.metrics.refusals.note(error));
        while let Some(piece) = pieces.try_next().await? {
            let turn = self.inner.sums.clone().acquire_owned().await;
            let turn = turn.map_err(|e| Error::internal("the node is closed").with_source(e))?;
            // A megabyte is some milliseconds of arithmetic: not for a runtime worker.
            let summed = spawn_blocking(move || {
                let _turn = turn;
                stats.add(&piece);
                stats
            });
            stats = summed.await.map_err(|e| Error::internal("summing up a tensor failed").with_source(e))?;
        }
        Ok(stats.summary())
    }
}

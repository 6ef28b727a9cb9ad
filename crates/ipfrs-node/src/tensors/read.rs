//! Reading tensors, and statistics over them.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_stream::Span;
use ipfrs_tensor::{Order, Slice, Stats, Summary, TensorInfo, column_major};
use tokio::task::spawn_blocking;

use super::file::{TensorFile, TensorPart};
use super::gather::Gather;
use super::metrics::TensorOperation;
use super::swap::Swap;
use crate::{ContentPath, Expected, Node, Object, ObjectKind, current_client, expecting};

impl Node {
    /// Returns the tensors of the file at a path. Does not count as a list operation; see [`Self::count_tensor`].
    ///
    /// # Errors
    /// As [`Node::resolve`]; [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the path is not a valid file with
    /// tensors, with the reason; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header over the limit;
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if `tensor.enabled` is false.
    pub async fn tensors(&self, path: impl Into<Arc<ContentPath>>) -> Result<TensorFile> {
        self.check_tensors()?;
        self.tensors_of(expecting(Expected::Block, self.resolve(path)).await?).await
    }

    /// Same as [`Self::tensors`] for a path that is already resolved.
    ///
    /// # Errors
    /// As [`Self::tensors`].
    pub async fn tensors_of(&self, object: Object) -> Result<TensorFile> {
        self.check_tensors()?;
        let object = object.whole()?;
        let catalogue = self.catalogue(&object).await?;
        let Object { cid, kind: ObjectKind::File(file), resolved, .. } = object else {
            return Err(Error::internal("an object with tensors is not a file"));
        };
        Ok(TensorFile { cid, catalogue, path: resolved.path.clone(), file })
    }

    /// Checks that tensors are enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) if `tensor.enabled` is false.
    pub fn check_tensors(&self) -> Result<()> {
        match self.inner.config.tensor.enabled {
            true => Ok(()),
            false => Err(Error::unsupported("tensors are disabled (tensor.enabled = false)")),
        }
    }

    /// Returns a stream of the bytes of a part of a tensor, little-endian and in row-major order, and counts the
    /// read. Contiguous bytes are read like any span of a file. Otherwise, elements are gathered from the blocks that
    /// contain them, in memory of a fixed size. A column-major part results in an error
    /// ([`ErrorKind::Unsupported`](ipfrs_core::ErrorKind)); [`Self::read_tensors`] returns it as an `.npy` file.
    pub fn read_tensor(&self, part: &TensorPart) -> BoxStream<'static, Result<Bytes>> {
        if part.order == Order::ColumnMajor {
            return stream::once(std::future::ready(Err(column_major()))).boxed();
        }
        self.count_tensor(part.operation, part.bytes);
        self.metered(self.read_part(part, Span::whole(part.bytes))).boxed()
    }

    /// Returns a span of the bytes of a part, in its order. They do not count as a download.
    pub(super) fn read_part(&self, part: &TensorPart, span: Span) -> BoxStream<'static, Result<Bytes>> {
        if !part.is_big_endian {
            return self.read_stored(part, span);
        }
        let swap = Swap::new(part.dtype.number_bytes());
        let around = swap.around(span, part.bytes);
        swap.turned(self.read_stored(part, around), span)
    }

    /// Same as [`Self::read_part`], without conversion of the stored bytes.
    pub(super) fn read_stored(&self, part: &TensorPart, span: Span) -> BoxStream<'static, Result<Bytes>> {
        if let Some(rows) = &part.rows {
            return rows.read(self, part, span);
        }
        match part.span.filter(|_| self.inner.config.tensor.zero_copy) {
            Some(Span { start, .. }) => {
                self.reader(&part.file, Span { start: start + span.start, len: span.len }).boxed()
            }
            None => Gather::new(self, &part.file, part.offset, &part.plan, span).boxed(),
        }
    }

    /// Counts an operation on tensors and its size in the metrics. Callers count lists and puts; reads and statistics
    /// are counted by the methods that perform them.
    pub fn count_tensor(&self, operation: TensorOperation, bytes: u64) {
        self.inner.metrics.tensors.count(operation, bytes);
    }

    /// Computes counts, extremes and moments of a tensor in one pass over its bytes. The number of concurrent
    /// computations is limited to the number of cores, and clients take turns with pieces of a megabyte. Dropping the
    /// future stops the work after the current piece.
    ///
    /// # Errors
    /// As for the stream of [`Node::read`].
    pub async fn tensor_stats(&self, file: &TensorFile, tensor: &TensorInfo) -> Result<Summary> {
        self.count_tensor(TensorOperation::Stats, tensor.bytes);
        let (mut stats, client) = (Stats::new(tensor.dtype), current_client());
        let pieces = self.read_part(&file.part(tensor, &Slice::default())?, Span::whole(tensor.bytes));
        let mut pieces = pieces.inspect_err(|error| self.inner.metrics.refusals.note(error));
        while let Some(piece) = pieces.try_next().await? {
            let turn = self.inner.sums.take(client).await;
            // A megabyte takes some milliseconds of arithmetic, which would block a runtime worker.
            let summed = spawn_blocking(move || {
                let _turn = turn;
                stats.add(&piece);
                stats
            });
            stats = summed.await.map_err(|e| Error::internal("computing tensor statistics failed").with_source(e))?;
        }
        Ok(stats.summary())
    }
}

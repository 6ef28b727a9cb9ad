//! Reads of files as bytes and of directories as entries.

use std::ops::{Bound, RangeBounds};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
#[cfg(doc)]
use ipfrs_core::ErrorKind;
use ipfrs_core::{Error, Result};
use ipfrs_stream::{BlockStoreSource, DagReader, Part, Span};
use ipfrs_unixfs::DirEntry;

use super::listing::Listed;
use super::node_memory::NodeMemory;
use super::object_kind::{Directory, FileContent, ObjectKind};
use super::path::ContentPath;
use crate::Node;
use crate::metrics::{Active, Metrics};

impl Node {
    /// Returns a stream of the bytes of a span of a file. It reads only the blocks that the span touches, a bounded
    /// distance ahead of the consumer. Dropping the stream stops the reads.
    pub fn read(&self, file: &FileContent, span: Span) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + use<> {
        self.metered(self.reader(file, span))
    }

    /// Returns bytes of the file at a path, up to the end of the file. All of them are held in memory; [`Self::read`]
    /// streams them.
    ///
    /// # Errors
    /// As [`Self::resolve`] and the stream of [`Self::read`]; [`ErrorKind::InvalidInput`] if the path does not lead to
    /// a file.
    pub async fn read_range(
        &self,
        path: impl Into<ContentPath> + Send,
        range: impl RangeBounds<u64> + Send,
    ) -> Result<Bytes> {
        let object = self.resolve(path.into()).await?.whole()?;
        let ObjectKind::File(file) = &object.kind else {
            let path = &object.resolved.path;
            return Err(Error::invalid(format!("{path} is not a file: list its entries, or read its block")));
        };
        let span = span_of(&range, file.size());
        let mut pieces = self.read(file, span);
        let mut bytes = BytesMut::new();
        while let Some(piece) = pieces.next().await.transpose()? {
            // A range within one block is not copied.
            if piece.len() as u64 == span.len {
                return Ok(piece);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// Returns the entries of the directory at a path in stored order, with the kind and size of their targets, as a
    /// stream with bounded memory.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`ErrorKind::InvalidInput`] if the path does not lead to a directory.
    pub async fn read_dir(&self, path: impl Into<ContentPath> + Send) -> Result<BoxStream<'static, Result<Listed>>> {
        let object = self.resolve(path.into()).await?.whole()?;
        match &object.kind {
            ObjectKind::Directory(_) => Ok(self.list(&object, usize::MAX)),
            _ => Err(Error::invalid(format!("{} is not a directory: read it", object.resolved.path))),
        }
    }

    /// Returns a reader of a span of a file that does not count as a download.
    pub(crate) fn reader(&self, file: &FileContent, span: Span) -> DagReader {
        let part = if span == Span::whole(file.size()) { Part::Entity } else { Part::Bytes(span) };
        let store = self.part_store(&file.path, part);
        let memory = NodeMemory::new(&self.inner.decoded_nodes);
        DagReader::new(store, &file.node, span, &self.inner.config.streaming)
            .with_nodes(self.inner.nodes.clone())
            .with_memory(memory.counter())
    }

    /// Wraps a reader so that it updates the streaming metrics.
    pub(crate) fn metered<S>(&self, reader: S) -> MeteredStream<S> {
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        MeteredStream { reader, metrics, _active: active }
    }

    /// Returns the first piece of a span of a file, for inspection. It does not count as a download.
    ///
    /// # Errors
    /// As the stream of [`Self::read`].
    pub async fn peek(&self, file: &FileContent, span: Span) -> Result<Bytes> {
        self.reader(file, span).next().await.unwrap_or_else(|| Ok(Bytes::new()))
    }

    /// Checks that the beginning of a span of a file can be read. It does not count as a download.
    ///
    /// # Errors
    /// As the stream of [`Self::read`].
    pub async fn check_beginning(&self, file: &FileContent, span: Span) -> Result<()> {
        let mut pieces = self.reader(file, span);
        while let Some(piece) = pieces.next().await {
            piece?;
        }
        Ok(())
    }

    /// Counts bytes of a file that were sent without a stream.
    pub fn count_download(&self, bytes: usize) {
        self.inner.metrics.download_bytes.inc_by(bytes as u64);
    }

    /// Returns the entries of a directory in stored order, as a stream with bounded memory.
    #[must_use]
    pub(super) fn entries(&self, path: &ContentPath, directory: &Directory) -> BoxStream<'static, Result<DirEntry>> {
        let source = Arc::new(BlockStoreSource(self.part_store(path, Part::Entity)));
        // The memory of the directory counts for as long as the stream holds it.
        let held = directory.clone();
        let entries = ipfrs_unixfs::entries(source, directory.node.clone());
        stream::unfold(
            (entries, held),
            |(mut entries, held)| async move { Some((entries.next().await?, (entries, held))) },
        )
        .boxed()
    }
}

/// Returns the part of a file of `size` bytes that `range` selects.
fn span_of(range: &impl RangeBounds<u64>, size: u64) -> Span {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => size,
    };
    Span::within(size, start, Some(end.saturating_sub(start)))
}

/// Stream of the bytes of a file that updates the streaming metrics.
pub(crate) struct MeteredStream<S> {
    reader: S,
    metrics: Arc<Metrics>,
    _active: Active,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for MeteredStream<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.reader.poll_next_unpin(cx);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => {
                self.metrics.download_bytes.inc_by(piece.len() as u64);
                #[expect(clippy::cast_precision_loss, reason = "pieces are at most 2 MiB")]
                self.metrics.chunk_size.observe(piece.len() as f64);
            }
            Poll::Ready(Some(Err(error))) => self.metrics.refusals.note(error),
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }
}

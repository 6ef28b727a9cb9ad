//! Reads listed rows of a tensor, in the order of the list.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::Result;
use ipfrs_stream::Span;
use ipfrs_tensor::Plan;

use super::file::TensorPart;
use super::gather::Gather;
use super::rows::Rows;
use crate::Node;

/// Minimum length of a piece that is sent without a copy. Shorter ones are copied together.
const SLICE_FROM_BYTES: usize = 32 * 1024;

/// Size of the pieces into which rows are copied.
const PIECE_BYTES: usize = 256 * 1024;

/// Maximum number of ranges that are read concurrently.
const MOST_RANGES: u64 = 16;

/// Minimum number of bytes that a range counts for in the read-ahead window, because it holds a slice of a block.
const RANGE_BYTES: u64 = 256 * 1024;

impl Rows {
    /// Streams a span of the stored bytes of the rows of `part`. Ranges are read concurrently.
    pub(super) fn read(&self, node: &Node, part: &TensorPart, span: Span) -> BoxStream<'static, Result<Bytes>> {
        if span.len == 0 || self.row_bytes == 0 {
            return stream::empty().boxed();
        }
        let (first, last) = (span.start / self.row_bytes, (span.end() - 1) / self.row_bytes);
        let position = |row| self.before.partition_point(|before| *before <= row).saturating_sub(1);
        let wanted = position(first)..position(last) + 1;
        // Each reader has a window of its own, so long ranges share one by being read one after another.
        let longest = self.ranges().iter().map(|range| range.end - range.start).max().unwrap_or(0);
        let longest = longest.saturating_mul(self.row_bytes).max(RANGE_BYTES);
        let at_once = node.inner.config.streaming.flow_control.window_bytes() / longest;
        let at_once = usize::try_from(at_once.clamp(1, MOST_RANGES)).unwrap_or(1);
        let (rows, node, part) = (self.clone(), node, part.clone());
        let reader = node.clone();
        let reads = stream::iter(wanted).map(move |index| {
            let pieces = rows.read_range(&reader, &part, index, span);
            async move {
                let mut pieces = pieces?;
                let first = pieces.next().await.transpose()?.unwrap_or_default();
                Ok((first, pieces))
            }
        });
        let slice_from = if node.inner.config.tensor.zero_copy { SLICE_FROM_BYTES } else { usize::MAX };
        let reading = Reading { ranges: reads.buffered(at_once).boxed(), rest: None, next: None, slice_from };
        let pieces = stream::try_unfold(reading, |mut reading| async move {
            let piece = reading.piece().await?;
            Ok(piece.map(|piece| (piece, reading)))
        });
        pieces.boxed()
    }

    /// Streams the bytes of a range that are within a span of all rows.
    fn read_range(
        &self,
        node: &Node,
        part: &TensorPart,
        index: usize,
        span: Span,
    ) -> Result<BoxStream<'static, Result<Bytes>>> {
        let range = self.ranges()[index].clone();
        let plan = Plan::new(part.dtype, &self.selection.at_rows(range), part.stored_order)?;
        let start = self.before[index] * self.row_bytes;
        let (from, to) = (start.max(span.start), (start + plan.bytes()).min(span.end()));
        let span = Span { start: from - start, len: to - from };
        Ok(match plan.as_one() {
            Some(run) if node.inner.config.tensor.zero_copy => {
                node.reader(&part.file, Span { start: part.offset + run.start + span.start, len: span.len }).boxed()
            }
            _ => Gather::new(node, &part.file, part.offset, &plan, span).boxed(),
        })
    }
}

type Pieces = BoxStream<'static, Result<Bytes>>;

/// Ranges that are being read.
struct Reading {
    /// The first piece of each range, and the others.
    ranges: BoxStream<'static, Result<(Bytes, Pieces)>>,
    /// The rest of the current range.
    rest: Option<Pieces>,
    /// A long piece that follows the bytes copied before it.
    next: Option<Bytes>,
    /// Minimum length of a piece that is not copied.
    slice_from: usize,
}

impl Reading {
    /// Returns the next piece of the result, in which short pieces are copied together.
    async fn piece(&mut self) -> Result<Option<Bytes>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let mut copied = BytesMut::new();
        while copied.len() < PIECE_BYTES {
            let Some(piece) = self.stored().await? else { break };
            if piece.len() < self.slice_from {
                copied.extend_from_slice(&piece);
            } else if copied.is_empty() {
                return Ok(Some(piece));
            } else {
                self.next = Some(piece);
                break;
            }
        }
        Ok((!copied.is_empty()).then(|| copied.freeze()))
    }

    /// Returns the next piece as it is stored.
    async fn stored(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(rest) = &mut self.rest {
                match rest.next().await.transpose()? {
                    Some(piece) => return Ok(Some(piece)),
                    None => self.rest = None,
                }
            }
            let Some((first, rest)) = self.ranges.next().await.transpose()? else { return Ok(None) };
            self.rest = Some(rest);
            if !first.is_empty() {
                return Ok(Some(first));
            }
        }
    }
}

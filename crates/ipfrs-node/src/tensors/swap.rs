//! Conversion of big-endian numbers to little-endian, the byte order of responses.

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::Result;
use ipfrs_stream::Span;

/// Converts numbers in another byte order. The pieces of a stream may end within a number.
pub(super) struct Swap {
    number_bytes: usize,
    /// The start of an incomplete number; during a conversion also the bytes to convert.
    pending: BytesMut,
}

impl Swap {
    pub(super) fn new(number_bytes: usize) -> Self {
        Self { number_bytes, pending: BytesMut::new() }
    }

    /// Extends `span` to whole numbers, within the total number of `bytes`.
    pub(super) fn around(&self, span: Span, bytes: u64) -> Span {
        let each = self.number_bytes as u64;
        let start = span.start - span.start % each;
        let end = span.end().checked_next_multiple_of(each).unwrap_or(bytes).min(bytes);
        Span { start, len: end - start }
    }

    /// Returns the converted bytes of `span`, from a stream of the stored bytes [`around`](Self::around) it.
    pub(super) fn turned(
        mut self,
        pieces: BoxStream<'static, Result<Bytes>>,
        span: Span,
    ) -> BoxStream<'static, Result<Bytes>> {
        let mut before = usize::try_from(span.start % self.number_bytes as u64).unwrap_or(0);
        let mut left = span.len;
        let pieces = pieces.map_ok(move |piece| {
            let mut numbers = self.next(&piece);
            let skipped = before.min(numbers.len());
            numbers.advance(skipped);
            before -= skipped;
            numbers.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= numbers.len() as u64;
            numbers.freeze()
        });
        pieces.try_filter(|piece| std::future::ready(!piece.is_empty())).boxed()
    }

    fn next(&mut self, piece: &[u8]) -> BytesMut {
        self.pending.extend_from_slice(piece);
        let whole = self.pending.len() - self.pending.len() % self.number_bytes;
        let mut numbers = self.pending.split_to(whole);
        numbers.chunks_exact_mut(self.number_bytes).for_each(<[u8]>::reverse);
        numbers
    }
}

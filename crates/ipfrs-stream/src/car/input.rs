//! A stream of byte pieces that is read as one contiguous input.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{Stream, StreamExt};
use ipfrs_core::{Error, Result};

/// Longest varint (<https://github.com/multiformats/unsigned-varint>: at most nine bytes).
const MAX_VARINT_BYTES: usize = 9;

/// Splits a stream of pieces of any size into items of known size. An item that is contained in one piece is a slice
/// of that piece; any other item is copied once.
#[derive(Debug)]
pub(super) struct Input<S> {
    pieces: S,
    /// The unread rest of the last piece that arrived.
    piece: Bytes,
    /// Number of bytes taken from the stream.
    offset: u64,
    /// Offset at which the input is treated as ended.
    end: Option<u64>,
    /// The start of an item that began in an earlier piece.
    partial: BytesMut,
    varint: Vec<u8>,
}

impl<S> Input<S> {
    pub(super) fn new(pieces: S) -> Self {
        Self { pieces, piece: Bytes::new(), offset: 0, end: None, partial: BytesMut::new(), varint: Vec::new() }
    }

    /// Returns the offset in the stream of the next byte to read. Between items, this is the start of the next item.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns whether the input is in the middle of a varint.
    pub(super) fn is_within_varint(&self) -> bool {
        !self.varint.is_empty()
    }

    /// Returns whether the input has not yet reached its declared end.
    pub(super) fn is_short(&self) -> bool {
        self.end.is_some_and(|end| self.offset < end)
    }

    /// Treats the input as ended after `bytes` more bytes.
    pub(super) fn limit(&mut self, bytes: u64) {
        self.end = Some(self.offset.saturating_add(bytes));
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Input<S> {
    /// Waits until a byte is available. Returns `false` at the end of the input.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool>> {
        if self.end.is_some_and(|end| self.offset >= end) {
            return Poll::Ready(Ok(false));
        }
        while self.piece.is_empty() {
            match ready!(self.pieces.poll_next_unpin(cx)) {
                Some(piece) => self.piece = piece?,
                None => return Poll::Ready(Ok(false)),
            }
        }
        if let Some(end) = self.end {
            let left = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
            self.piece.truncate(left);
        }
        Poll::Ready(Ok(true))
    }

    /// Reads the next varint. Returns `None` if the input ends before its first byte.
    pub(super) fn poll_varint(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<u64>>> {
        loop {
            if !ready!(self.poll_piece(cx))? {
                return Poll::Ready(if self.varint.is_empty() { Ok(None) } else { Err(cut_off()) });
            }
            let byte = self.piece.get_u8();
            self.offset += 1;
            self.varint.push(byte);
            if byte & 0x80 == 0 {
                break;
            }
            if self.varint.len() == MAX_VARINT_BYTES {
                return Poll::Ready(Err(Error::invalid(format!("a varint has more than {MAX_VARINT_BYTES} bytes"))));
            }
        }
        let decoded = unsigned_varint::decode::u64(&self.varint).map(|(value, _)| Some(value));
        self.varint.clear();
        Poll::Ready(decoded.map_err(|error| Error::invalid(format!("a varint is malformed: {error}"))))
    }

    /// Reads the next `len` bytes.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<Result<Bytes>> {
        while self.partial.len() < len {
            if !ready!(self.poll_piece(cx))? {
                return Poll::Ready(Err(cut_off()));
            }
            let missing = len - self.partial.len();
            let part = self.piece.split_to(missing.min(self.piece.len()));
            self.offset += part.len() as u64;
            if part.len() == len {
                return Poll::Ready(Ok(part));
            }
            self.partial.reserve(missing);
            self.partial.extend_from_slice(&part);
        }
        Poll::Ready(Ok(self.partial.split().freeze()))
    }

    /// Skips all bytes before `offset`.
    pub(super) fn poll_skip_to(&mut self, cx: &mut Context<'_>, offset: u64) -> Poll<Result<()>> {
        while self.offset < offset {
            if !ready!(self.poll_piece(cx))? {
                return Poll::Ready(Err(cut_off()));
            }
            let skipped = usize::try_from(offset - self.offset).unwrap_or(usize::MAX).min(self.piece.len());
            self.piece.advance(skipped);
            self.offset += skipped as u64;
        }
        Poll::Ready(Ok(()))
    }
}

pub(super) fn cut_off() -> Error {
    Error::invalid("the CAR is truncated")
}

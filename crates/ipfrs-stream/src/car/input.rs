//! A stream of byte pieces, read as if it were one piece.

use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{Stream, StreamExt};
use ipfrs_core::{Error, Result};

/// Longest varint (<https://github.com/multiformats/unsigned-varint>: at most nine bytes).
const MAX_VARINT_BYTES: usize = 9;

/// Cuts a stream of pieces of any sizes into items of known sizes. What lies within one piece is a slice of it; what does
/// not is copied once.
#[derive(Debug)]
pub(super) struct Input<S> {
    pieces: S,
    /// What is left of the last piece that arrived.
    piece: Bytes,
    /// Bytes of the stream that were taken.
    offset: u64,
    /// Offset at which the input is to be seen as ended.
    end: Option<u64>,
    /// The beginning of an item that began in an earlier piece.
    begun: BytesMut,
    varint: Vec<u8>,
}

impl<S> Input<S> {
    pub(super) fn new(pieces: S) -> Self {
        Self { pieces, piece: Bytes::new(), offset: 0, end: None, begun: BytesMut::new(), varint: Vec::new() }
    }

    /// Where in the stream the next item begins; in the middle of one, how far it has got.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether a varint has begun that has not ended.
    pub(super) fn is_within_varint(&self) -> bool {
        !self.varint.is_empty()
    }

    /// Whether the input is to be longer than it is so far.
    pub(super) fn is_short(&self) -> bool {
        self.end.is_some_and(|end| self.offset < end)
    }

    /// Sees the input as ended after `bytes` more.
    pub(super) fn limit(&mut self, bytes: u64) {
        self.end = Some(self.offset.saturating_add(bytes));
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Input<S> {
    /// Waits until a byte is there; `false` at the end.
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

    /// The next varint; `None` where the input ends before its first byte.
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

    /// The next `len` bytes.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<Result<Bytes>> {
        while self.begun.len() < len {
            if !ready!(self.poll_piece(cx))? {
                return Poll::Ready(Err(cut_off()));
            }
            let wanted = len - self.begun.len();
            let part = self.piece.split_to(wanted.min(self.piece.len()));
            self.offset += part.len() as u64;
            if part.len() == len {
                return Poll::Ready(Ok(part));
            }
            self.begun.reserve(wanted);
            self.begun.extend_from_slice(&part);
        }
        Poll::Ready(Ok(self.begun.split().freeze()))
    }

    /// Passes over everything before `offset`.
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
    Error::invalid("the CAR is cut off")
}

//! Content that was written, and is not part of the file yet.

use std::mem;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};

/// Length in bytes of writes that are kept without a copy. A short one may be a small part of a large buffer. The last
/// block of a long one keeps its buffer in memory until the block is stored, so there is a limit.
const KEPT_BYTES: RangeInclusive<usize> = 64 * 1024..=16 * 1024 * 1024;

/// Content in pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    pieces: Vec<Bytes>,
    /// Copied bytes that follow the pieces.
    copied: BytesMut,
    len: usize,
}

impl Pieces {
    /// Whether the bytes of a write of `len` bytes are kept.
    pub(super) fn keeps(len: usize) -> bool {
        KEPT_BYTES.contains(&len)
    }

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece, as it is if it `is_kept`.
    pub(super) fn push(&mut self, piece: Bytes, is_kept: bool) {
        self.len += piece.len();
        if is_kept {
            self.end_copy();
            self.pieces.push(piece);
        } else {
            self.copied.extend_from_slice(&piece);
        }
    }

    /// Removes and returns the pieces.
    pub(super) fn take(&mut self) -> Vec<Bytes> {
        self.end_copy();
        self.len = 0;
        mem::take(&mut self.pieces)
    }

    fn end_copy(&mut self) {
        if !self.copied.is_empty() {
            self.pieces.push(self.copied.split().freeze());
        }
    }
}

/// Makes one piece of several.
pub(super) fn join(pieces: &mut Vec<Bytes>) {
    if pieces.len() > 1 {
        let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
        pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        *pieces = vec![joined.freeze()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_copied_if_they_are_short_or_too_long_to_keep() {
        let (least, most) = KEPT_BYTES.into_inner();
        for (len, is_kept) in
            [(least - 1, false), (least, true), (10 * 1024 * 1024, true), (most, true), (most + 1, false)]
        {
            let content = Bytes::from(vec![7; len]);
            let mut pieces = Pieces::default();
            pieces.push(content.clone(), Pieces::keeps(len));
            let taken = pieces.take();
            assert_eq!(taken, std::slice::from_ref(&content));
            assert_eq!(taken[0].as_ptr() == content.as_ptr(), is_kept, "{len}");
        }
    }
}

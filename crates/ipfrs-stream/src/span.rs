//! Byte ranges of files.

/// A byte range within a file: `len` bytes from `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Span {
    /// Returns the range of a whole file of `size` bytes.
    #[must_use]
    pub fn whole(size: u64) -> Self {
        Self { start: 0, len: size }
    }

    /// Returns the range of a file of `size` bytes that starts at `offset` and has at most `limit` bytes. The range
    /// is empty if `offset` is at or beyond the end.
    #[must_use]
    pub fn within(size: u64, offset: u64, limit: Option<u64>) -> Self {
        let start = offset.min(size);
        let len = limit.unwrap_or(u64::MAX).min(size - start);
        Self { start, len }
    }

    /// Returns the offset of the first byte after the range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Returns the part of `start..end` that is in this range, or `None` if they share no byte.
    pub(crate) fn overlap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (from, to) = (start.max(self.start), end.min(self.end()));
        (from < to).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_to_the_file() {
        assert_eq!(Span::within(10, 0, None), Span::whole(10));
        assert_eq!(Span::within(10, 4, Some(3)), Span { start: 4, len: 3 });
        assert_eq!(Span::within(10, 4, Some(u64::MAX)), Span { start: 4, len: 6 });
        assert_eq!(Span::within(10, 10, None), Span { start: 10, len: 0 });
        assert_eq!(Span::within(10, u64::MAX, Some(1)), Span { start: 10, len: 0 });
    }
}

//! Runs of bytes that chunkers find.

/// A run of bytes that belongs to the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Number of bytes; zero only for an empty piece.
    pub(crate) len: usize,
    /// Whether these bytes end the chunk.
    pub(crate) ends: bool,
}

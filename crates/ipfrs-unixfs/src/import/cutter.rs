//! State of a chunker within one file.

use super::buzhash::Buzhash;
use super::chunker::Chunker;
use super::rabin::Rabin;

/// Most bytes that one call hashes, so that a runtime worker is never blocked for long.
const MAX_SCANNED_BYTES: usize = 64 * 1024;

/// A run of bytes that belongs to the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Number of bytes; zero only for an empty piece.
    pub(crate) len: usize,
    /// Whether these bytes end the chunk.
    pub(crate) ends: bool,
}

/// An incremental search for the ends of chunks.
#[derive(Debug)]
pub(crate) enum Cutter {
    /// Chunks of `chunk` bytes. The current chunk ends after `left` more bytes.
    Size {
        chunk: usize,
        left: usize,
    },
    Rabin(Rabin),
    Buzhash(Buzhash),
}

impl Cutter {
    pub(crate) fn new(chunker: Chunker) -> Self {
        match chunker {
            Chunker::Size(chunk) => Self::Size { chunk, left: chunk },
            Chunker::Rabin { min, avg, max } => Self::Rabin(Rabin::new(min, avg, max)),
            Chunker::Buzhash => Self::Buzhash(Buzhash::default()),
        }
    }

    /// Returns the bytes at the front of `piece` that belong to the current chunk. `piece` follows the bytes of
    /// earlier calls. If the chunk does not end, the rest of the piece may also belong to it.
    pub(crate) fn scan(&mut self, piece: &[u8]) -> Cut {
        let scanned = &piece[..piece.len().min(MAX_SCANNED_BYTES)];
        match self {
            Self::Size { chunk, left } => {
                let len = piece.len().min(*left);
                let ends = len == *left;
                *left = if ends { *chunk } else { *left - len };
                Cut { len, ends }
            }
            Self::Rabin(rabin) => rabin.scan(scanned),
            Self::Buzhash(buzhash) => buzhash.scan(scanned),
        }
    }
}

//! Chunkers at work on the bytes of one file.

use super::buzhash::Buzhash;
use super::chunker::Chunker;
use super::rabin::Rabin;

/// Most bytes whose content is looked at in one call, so that a runtime worker is never held up for long.
const MAX_SCANNED_BYTES: usize = 64 * 1024;

/// Bytes that belong to the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// How many; none only of an empty piece.
    pub(crate) len: usize,
    /// They are the last of the chunk.
    pub(crate) ends: bool,
}

/// Finds the ends of chunks, as bytes come.
#[derive(Debug)]
pub(crate) enum Cutter {
    /// After as many bytes as are left, then after each full chunk.
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

    /// The bytes from the front of `piece`, which follows what was taken before, that belong to the current chunk. Where
    /// it does not end there may be more in the piece.
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

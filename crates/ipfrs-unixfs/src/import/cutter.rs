//! State of a chunker within one file.

use super::buzhash::Buzhash;
use super::cut::Cut;
use super::rabin::Rabin;

/// Most bytes that one call hashes, so that a runtime worker is never blocked for long.
const MAX_SCANNED_BYTES: usize = 64 * 1024;

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

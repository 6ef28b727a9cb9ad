//! Chunkers, which split files into chunks.

use std::fmt;
use std::mem;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};
use ipfrs_core::limits::MAX_CHUNK_BYTES;
use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::buzhash::{self, Buzhash};
use super::cutter::Cutter;
use super::rabin::{self, Rabin};

/// Chunk size of Kubo's default chunker, in bytes.
const DEFAULT_CHUNK_BYTES: usize = 256 * 1024;

/// The way in which a file is split into chunks, one per leaf block. The text form uses Kubo's spelling:
/// `size-262144`, `rabin-16-64-256` (minimum, average and maximum bytes), `rabin-262144` (the average, with a third
/// of it as minimum and one and a half times it as maximum), `rabin` (the same with 262,144), `buzhash`, or
/// `default`, which is `size-262144`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Chunker {
    /// Chunks of this many bytes, 1 to [`MAX_CHUNK_BYTES`]. The last one may be shorter.
    Size(usize),
    /// Chunks whose ends a Rabin fingerprint of the content determines. A change in the middle of a file changes only
    /// the chunks around it. `16 <= min < avg < max <=` [`MAX_CHUNK_BYTES`]. The last chunk may be shorter.
    Rabin {
        /// Minimum size in bytes.
        min: usize,
        /// Approximate average size in bytes, rounded down to a power of two.
        avg: usize,
        /// Maximum size in bytes.
        max: usize,
    },
    /// Chunks of 128 KiB to 512 KiB whose ends a rolling hash of the content determines. Faster than
    /// [`Rabin`](Self::Rabin).
    Buzhash,
}

impl Default for Chunker {
    /// Returns Kubo's default chunker.
    fn default() -> Self {
        Self::Size(DEFAULT_CHUNK_BYTES)
    }
}

impl Chunker {
    /// Returns the chunker if its parameters are valid and its chunks fit into blocks.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message names the limit.
    pub(crate) fn check(self) -> Result<Self> {
        match self {
            Self::Size(0) => {
                Err(Error::invalid(format!("chunker size must be greater than 0: use 1 to {MAX_CHUNK_BYTES} bytes")))
            }
            Self::Size(size) if size > MAX_CHUNK_BYTES => Err(Error::invalid(format!(
                "chunker parameters may not exceed the maximum chunk size of {MAX_CHUNK_BYTES}: the size is {size}"
            ))),
            Self::Rabin { min, avg, max }
                if min < rabin::WINDOW_BYTES || avg <= min || max <= avg || max > MAX_CHUNK_BYTES =>
            {
                Err(Error::invalid(format!(
                    "chunker {self}: minimum, average and maximum bytes must increase, from {} to {MAX_CHUNK_BYTES}",
                    rabin::WINDOW_BYTES
                )))
            }
            _ => Ok(self),
        }
    }

    /// Returns the size of the largest chunk, in bytes.
    pub(crate) fn max_chunk_bytes(self) -> usize {
        match self {
            Self::Size(size) => size,
            Self::Rabin { max, .. } => max,
            Self::Buzhash => buzhash::MAX_BYTES,
        }
    }

    /// Returns the size of the smallest chunk that is not the last one, in bytes.
    #[must_use]
    pub fn min_chunk_bytes(self) -> usize {
        match self {
            Self::Size(size) => size,
            Self::Rabin { min, .. } => min,
            Self::Buzhash => buzhash::MIN_BYTES,
        }
    }

    /// Begins the search for the ends of the chunks of a file.
    pub(crate) fn cutter(self) -> Cutter {
        match self {
            Self::Size(chunk) => Cutter::Size { chunk, left: chunk },
            Self::Rabin { min, avg, max } => Cutter::Rabin(Rabin::new(min, avg, max)),
            Self::Buzhash => Cutter::Buzhash(Buzhash::default()),
        }
    }

    /// Splits content that is in memory. Copies only the last chunk, and those that span several pieces.
    pub(crate) fn split(self, pieces: Vec<Bytes>) -> Vec<Bytes> {
        let (mut cutter, mut chunks, mut begun) = (self.cutter(), Vec::new(), BytesMut::new());
        for mut piece in pieces {
            let mut len = 0;
            while len < piece.len() {
                let cut = cutter.scan(&piece[len..]);
                len += cut.len;
                if cut.ends {
                    let end = piece.split_to(mem::take(&mut len));
                    if begun.is_empty() {
                        chunks.push(end);
                    } else {
                        begun.extend_from_slice(&end);
                        chunks.push(mem::take(&mut begun).freeze());
                    }
                }
            }
            begun.extend_from_slice(&piece);
        }
        chunks.extend(Some(begun.freeze()).filter(|last| !last.is_empty()));
        chunks
    }

    /// Returns whether the chunker examines every byte of the content.
    pub(crate) fn is_content_defined(self) -> bool {
        !matches!(self, Self::Size(_))
    }

    fn rabin(avg: usize) -> Self {
        Self::Rabin { min: avg / 3, avg, max: avg.saturating_add(avg / 2) }
    }
}

impl FromStr for Chunker {
    type Err = Error;

    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a size that is not a number or is outside the
    /// limits, which the message names, and [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for an unknown chunker.
    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| {
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
            number.ok_or_else(|| {
                Error::invalid(format!("chunker {text:?}: each size must be a number up to {MAX_CHUNK_BYTES}"))
            })
        };
        let parts: Vec<_> = text.split('-').collect();
        let chunker = match parts.as_slice() {
            ["" | "default"] => Self::default(),
            ["size", size] => Self::Size(number(size)?),
            ["rabin"] => Self::rabin(DEFAULT_CHUNK_BYTES),
            ["rabin", avg] => Self::rabin(number(avg)?),
            ["rabin", min, avg, max] => {
                // The labels are optional, as in boxo.
                let labelled = |label: &str, size: &&str| number(size.strip_prefix(label).unwrap_or(size));
                Self::Rabin { min: labelled("min:", min)?, avg: labelled("avg:", avg)?, max: labelled("max:", max)? }
            }
            ["buzhash"] => Self::Buzhash,
            _ => {
                return Err(Error::unsupported(format!(
                    "unrecognized chunker option: {text}: use size-BYTES, rabin, rabin-AVG, rabin-MIN-AVG-MAX, buzhash or default"
                )));
            }
        };
        chunker.check()
    }
}

impl fmt::Display for Chunker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "size-{size}"),
            Self::Rabin { min, avg, max } => write!(f, "rabin-{min}-{avg}-{max}"),
            Self::Buzhash => f.write_str("buzhash"),
        }
    }
}

impl TryFrom<String> for Chunker {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Chunker> for String {
    fn from(chunker: Chunker) -> Self {
        chunker.to_string()
    }
}

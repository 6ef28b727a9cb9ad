//! Where files are cut into chunks.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::limits::MAX_CHUNK_BYTES;
use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{buzhash, rabin};

/// Chunk size of Kubo's default chunker.
pub(crate) const DEFAULT_CHUNK_BYTES: usize = 256 * 1024;

/// How a file is cut into chunks, one per leaf block. As text, in Kubo's spelling: `size-262144`, `rabin-16-64-256` (least,
/// average and most bytes), `rabin-262144` (average; least is a third, most is half as much again), `rabin` (the same with
/// 262,144), `buzhash`, or `default`, which is `size-262144`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Chunker {
    /// Chunks of this many bytes, 1 to [`MAX_CHUNK_BYTES`]; the last one may be shorter.
    Size(usize),
    /// Chunks that end where a Rabin fingerprint of the content says so, so that a change in the middle of a file changes
    /// the chunks around it only. `16 <= min < avg < max <=` [`MAX_CHUNK_BYTES`]; the last chunk may be shorter.
    Rabin {
        /// Fewest bytes.
        min: usize,
        /// About how many bytes on average; rounded down to a power of two.
        avg: usize,
        /// Most bytes.
        max: usize,
    },
    /// Chunks of 128 KiB to 512 KiB that end where a rolling hash of the content says so; faster than
    /// [`Rabin`](Self::Rabin).
    Buzhash,
}

impl Chunker {
    /// The chunker, if it can cut and its chunks fit into blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the limit.
    pub(crate) fn check(self) -> Result<Self> {
        match self {
            Self::Size(size) if !(1..=MAX_CHUNK_BYTES).contains(&size) => {
                Err(Error::invalid(format!("chunk size {size} is not within 1 to {MAX_CHUNK_BYTES} bytes")))
            }
            Self::Rabin { min, avg, max }
                if min < rabin::WINDOW_BYTES || avg <= min || max <= avg || max > MAX_CHUNK_BYTES =>
            {
                Err(Error::invalid(format!(
                    "chunker {self}: least, average and most bytes must grow, from {} to {MAX_CHUNK_BYTES}",
                    rabin::WINDOW_BYTES
                )))
            }
            _ => Ok(self),
        }
    }

    /// Bytes of the largest chunk.
    pub(crate) fn max_chunk_bytes(self) -> usize {
        match self {
            Self::Size(size) => size,
            Self::Rabin { max, .. } => max,
            Self::Buzhash => buzhash::MAX_BYTES,
        }
    }

    /// Each byte has to be looked at.
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
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a size that is none or outside the limits (which the
    /// message names), [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a chunker that is not known.
    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| {
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
            number.ok_or_else(|| {
                Error::invalid(format!("chunker {text:?}: each size must be a number up to {MAX_CHUNK_BYTES}"))
            })
        };
        let parts: Vec<_> = text.split('-').collect();
        let chunker = match parts.as_slice() {
            ["" | "default"] => Self::Size(DEFAULT_CHUNK_BYTES),
            ["size", size] => Self::Size(number(size)?),
            ["rabin"] => Self::rabin(DEFAULT_CHUNK_BYTES),
            ["rabin", avg] => Self::rabin(number(avg)?),
            ["rabin", min, avg, max] => Self::Rabin { min: number(min)?, avg: number(avg)?, max: number(max)? },
            ["buzhash"] => Self::Buzhash,
            _ => {
                return Err(Error::unsupported(format!(
                    "chunker {text:?} is not known: use size-BYTES, rabin, rabin-AVG, rabin-MIN-AVG-MAX, buzhash or default"
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

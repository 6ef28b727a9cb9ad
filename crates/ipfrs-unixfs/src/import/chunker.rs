//! Where files are cut into chunks.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::limits::MAX_CHUNK_BYTES;
use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Chunk size of Kubo's default chunker.
pub(crate) const DEFAULT_CHUNK_BYTES: usize = 256 * 1024;

/// How a file is cut into chunks, one per leaf block. As text: `size-262144`, or `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Chunker {
    /// Chunks of this many bytes, 1 to [`MAX_CHUNK_BYTES`]; the last one may be shorter.
    Size(usize),
}

impl Chunker {
    /// The chunker, if its chunks fit into blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the limit.
    pub(crate) fn check(self) -> Result<Self> {
        let Self::Size(size) = self;
        if !(1..=MAX_CHUNK_BYTES).contains(&size) {
            return Err(Error::invalid(format!("chunk size {size} is not within 1 to {MAX_CHUNK_BYTES} bytes")));
        }
        Ok(self)
    }
}

impl FromStr for Chunker {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a size that is none or outside the limits (which the
    /// message names), [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for chunkers other than fixed size.
    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() || text == "default" {
            return Ok(Self::Size(DEFAULT_CHUNK_BYTES));
        }
        let Some(size) = text.strip_prefix("size-") else {
            return Err(Error::unsupported(format!("chunker {text:?} is not supported: use size-BYTES or default")));
        };
        let size = size.bytes().all(|b| b.is_ascii_digit()).then(|| size.parse().ok()).flatten().ok_or_else(|| {
            Error::invalid(format!("chunker {text:?}: the size must be a number from 1 to {MAX_CHUNK_BYTES}"))
        })?;
        Self::Size(size).check()
    }
}

impl fmt::Display for Chunker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Size(size) = self;
        write!(f, "size-{size}")
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

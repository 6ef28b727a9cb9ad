//! When and how directories are sharded.

use std::iter::Sum;
use std::ops::{Add, Sub};

use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, Result};
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::dag_pb::{PbLink, encoded_data_len, encoded_link_len};
use crate::data::{Attributes, Data, DataType};
use crate::hamt::{MAX_FANOUT, MIN_FANOUT, check_fanout};

/// Default of [`Sharding::threshold_bytes`], and that of Kubo.
const DEFAULT_THRESHOLD_BYTES: usize = 256 * 1024;
/// Default of [`Sharding::fanout`], and that of Kubo.
const DEFAULT_FANOUT: u32 = 256;

/// The size of a directory that decides on sharding, as in Kubo's `Import.UnixFSHAMTDirectorySizeEstimation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectorySize {
    /// The total length of the names and binary CIDs of the entries.
    #[default]
    Links,
    /// The length of the block of the unsharded directory.
    Block,
    /// No size: only the number of entries decides.
    Disabled,
}

/// Sizes of an unsharded directory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirectoryBytes {
    /// The size that is compared with the threshold.
    deciding: usize,
    /// Length of the block.
    block: usize,
}

impl DirectoryBytes {
    /// Returns these sizes with the length of the block of others.
    pub(crate) fn with_block_of(self, other: Self) -> Self {
        Self { block: other.block, ..self }
    }

    /// Returns the size that is compared with the threshold.
    pub(crate) fn deciding(self) -> i64 {
        self.deciding as i64
    }
}

impl Add for DirectoryBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { deciding: self.deciding + other.deciding, block: self.block + other.block }
    }
}

impl Sub for DirectoryBytes {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { deciding: self.deciding.saturating_sub(other.deciding), block: self.block.saturating_sub(other.block) }
    }
}

impl Sum for DirectoryBytes {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), Add::add)
    }
}

/// When directories are sharded, and the form of the shards. It determines the content IDs of large directories. A
/// directory that does not fit into a block is always sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharding {
    /// The size that decides.
    pub size: DirectorySize,
    /// Size in bytes above which a directory is sharded.
    pub threshold_bytes: usize,
    /// Number of entries above which a directory is sharded whatever its size.
    pub max_links: Option<usize>,
    /// Fan-out of new shards: a power of two from 8 to 1,024.
    pub fanout: u32,
}

impl Default for Sharding {
    fn default() -> Self {
        Self {
            size: DirectorySize::default(),
            threshold_bytes: DEFAULT_THRESHOLD_BYTES,
            max_links: None,
            fanout: DEFAULT_FANOUT,
        }
    }
}

impl Sharding {
    /// Returns the settings if they are valid.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for another fan-out, and for a threshold of 0.
    pub(crate) fn check(self) -> Result<Self> {
        check_fanout(self.fanout.into()).map_err(|_| {
            let fanout = self.fanout;
            Error::invalid(format!(
                "HAMT fanout must be a power of 2, between {MIN_FANOUT} and {MAX_FANOUT} (got {fanout})"
            ))
        })?;
        if self.threshold_bytes == 0 {
            let message = "a sharding threshold of 0 bytes: use at least 1, or the directory size \"disabled\"";
            return Err(Error::invalid(message));
        }
        Ok(self)
    }

    /// Returns the size of a directory without entries.
    pub(crate) fn empty_bytes(&self, attributes: &Attributes) -> DirectoryBytes {
        let block = encoded_data_len(basic_data(attributes).encoded_len());
        DirectoryBytes { deciding: if self.size == DirectorySize::Block { block } else { 0 }, block }
    }

    /// Returns the size that an entry adds.
    pub(crate) fn link_bytes(&self, link: &PbLink) -> DirectoryBytes {
        let block = encoded_link_len(link);
        let deciding = match self.size {
            DirectorySize::Links => link.name.len() + link.cid.encoded_len(),
            DirectorySize::Block => block,
            DirectorySize::Disabled => 0,
        };
        DirectoryBytes { deciding, block }
    }

    /// Whether a directory of this size is too large for one block.
    pub(crate) fn is_over_size(&self, bytes: DirectoryBytes) -> bool {
        bytes.block > MAX_BLOCK_BYTES || bytes.deciding > self.threshold_bytes
    }

    /// Whether a directory has too many entries for one block.
    pub(crate) fn is_over_links(&self, links: usize) -> bool {
        self.max_links.is_some_and(|max| links > max)
    }
}

/// Returns the UnixFS data of an unsharded directory.
pub(crate) fn basic_data(attributes: &Attributes) -> Data {
    Data { type_code: Some(DataType::Directory.code()), ..Data::default() }.with_attributes(attributes)
}

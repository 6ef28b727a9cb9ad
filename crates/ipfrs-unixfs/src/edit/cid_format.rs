//! Version and hash function of the content IDs of new nodes.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_IDENTITY_BYTES;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use tokio::task::spawn_blocking;

/// Size in bytes from which blocks are hashed on a blocking thread.
const INLINE_HASH_BYTES: usize = 32 * 1024;

/// Version and hash function of content IDs. A changed node keeps the format of its previous content ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CidFormat {
    version: u64,
    hash: HashFunction,
}

impl CidFormat {
    /// CIDv0 with sha2-256, Kubo's default.
    pub const V0: Self = Self { version: 0, hash: HashFunction::Sha2_256 };

    /// Creates a format. As in Kubo, a hash function makes the version 1.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a version other than 0 and 1.
    pub fn new(version: i64, hash: Option<HashFunction>) -> Result<Self> {
        let hash_implies_v1 = hash.is_some() && version == 0;
        let known = u64::try_from(version).ok().filter(|version| *version <= 1);
        let known = known.ok_or_else(|| Error::invalid(format!("unknown CID version: {version}")))?;
        Ok(Self { version: if hash_implies_v1 { 1 } else { known }, hash: hash.unwrap_or_default() })
    }

    /// Returns the format with a version of 0 or 1 that fits the hash function.
    pub(crate) fn from_parts(version: u64, hash: HashFunction) -> Self {
        Self { version, hash }
    }

    /// Returns the format of a content ID.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a hash function that cannot be computed here.
    pub fn of(cid: &Cid) -> Result<Self> {
        let hash = HashFunction::from_code(cid.hash().code())?;
        Ok(Self { version: u64::from(cid.version()), hash })
    }

    /// Returns the version, 0 or 1.
    #[must_use]
    pub fn version(self) -> u64 {
        self.version
    }

    /// Creates a block. A block that is too long for an identity CID is hashed with sha2-256, as in boxo.
    pub(super) fn block(self, codec: u64, data: Bytes) -> Result<Block> {
        let is_too_long = self.hash == HashFunction::Identity && data.len() > MAX_IDENTITY_BYTES;
        let hash = if is_too_long { HashFunction::Sha2_256 } else { self.hash };
        Block::hash(self.version_of(codec), codec, hash, data)
    }

    /// Creates a block for each of `data`, like [`Self::block`].
    pub(super) fn blocks(self, codec: u64, data: Vec<Bytes>) -> Result<Vec<Block>> {
        match self.hash {
            // The length of each block decides about its hash function.
            HashFunction::Identity => data.into_iter().map(|data| self.block(codec, data)).collect(),
            hash => Block::hash_all(self.version_of(codec), codec, hash, data),
        }
    }

    fn version_of(self, codec: u64) -> u64 {
        if codec == codec::RAW { 1 } else { self.version }
    }

    /// Creates a block like [`Self::block`], without delaying the runtime for a long one.
    pub(super) async fn block_in_turn(self, codec: u64, data: Bytes) -> Result<Block> {
        if data.len() < INLINE_HASH_BYTES {
            return self.block(codec, data);
        }
        let hashing = spawn_blocking(move || self.block(codec, data));
        hashing.await.map_err(|e| Error::internal("a task that hashes a block failed").with_source(e))?
    }
}

//! Blocks: bytes with their content ID.

use bytes::Bytes;

use crate::limits::MAX_BLOCK_BYTES;
use crate::{Cid, Error, Result, hash, new_cid};

/// Bytes with their content ID. Clones share the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    cid: Cid,
    data: Bytes,
}

impl Block {
    /// Creates a block from an untrusted source, and checks its size and its hash.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](crate::ErrorKind) for more than [`MAX_BLOCK_BYTES`], and the errors of
    /// [`hash::verify`].
    pub fn new(cid: Cid, data: Bytes) -> Result<Self> {
        check_block_size(data.len(), MAX_BLOCK_BYTES)?;
        hash::verify(&cid, &data)?;
        Ok(Self { cid, data })
    }

    /// Same as [`Self::new`] for each of `blocks`, in order, with at most `max_bytes` bytes for each. Faster than
    /// separate calls if [`hash::verify_all`] is.
    #[must_use]
    pub fn verify_all(blocks: Vec<(Cid, Bytes)>, max_bytes: usize) -> Vec<Result<Self>> {
        let parts: Vec<(Cid, &[u8])> = blocks.iter().map(|(cid, data)| (*cid, data.as_ref())).collect();
        let verified = hash::verify_all(&parts);
        let block = |((cid, data), verified): ((Cid, Bytes), Result<()>)| {
            check_block_size(data.len(), max_bytes)?;
            verified.map(|()| Self { cid, data })
        };
        blocks.into_iter().zip(verified).map(block).collect()
    }

    /// Creates a block without any checks. The caller must have read the bytes from its own store or have hashed
    /// them.
    #[must_use]
    pub fn trusted(cid: Cid, data: Bytes) -> Self {
        Self { cid, data }
    }

    /// Hashes `data` into a block of the given CID version and codec.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](crate::ErrorKind) for more than [`MAX_BLOCK_BYTES`], and the errors of
    /// [`new_cid`] and [`hash::HashFunction::digest`].
    pub fn hash(version: u64, codec: u64, function: hash::HashFunction, data: Bytes) -> Result<Self> {
        check_block_size(data.len(), MAX_BLOCK_BYTES)?;
        let cid = new_cid(version, codec, function.digest(&data)?)?;
        Ok(Self { cid, data })
    }

    /// Calls [`Self::hash`] for each of `data`, in order. Faster than separate calls if
    /// [`hash::HashFunction::digests`] is.
    ///
    /// # Errors
    /// Returns the first error, as in [`Self::hash`].
    pub fn hash_all(version: u64, codec: u64, function: hash::HashFunction, data: Vec<Bytes>) -> Result<Vec<Self>> {
        data.iter().try_for_each(|data| check_block_size(data.len(), MAX_BLOCK_BYTES))?;
        let hashes = function.digests(&data.iter().map(Bytes::as_ref).collect::<Vec<_>>())?;
        let block = |(data, hash)| Ok(Self { cid: new_cid(version, codec, hash)?, data });
        data.into_iter().zip(hashes).map(block).collect()
    }

    /// Returns the content ID.
    #[must_use]
    pub fn cid(&self) -> &Cid {
        &self.cid
    }

    /// Returns the bytes.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Returns the content ID and the bytes.
    #[must_use]
    pub fn into_parts(self) -> (Cid, Bytes) {
        (self.cid, self.data)
    }
}

/// Checks that a block of `size` bytes is within a limit.
///
/// # Errors
/// [`Error::large_block`] otherwise.
pub fn check_block_size(size: usize, max_bytes: usize) -> Result<()> {
    if size > max_bytes {
        return Err(Error::large_block(format!(
            "a block of {size} bytes is over the limit of {max_bytes} bytes: add it as a file"
        )));
    }
    Ok(())
}

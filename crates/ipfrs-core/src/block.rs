//! A block: bytes and the content ID that names them.

use bytes::Bytes;

use crate::limits::MAX_BLOCK_BYTES;
use crate::{Cid, Error, Result, hash, new_cid};

/// Bytes with the content ID that names them. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    cid: Cid,
    data: Bytes,
}

impl Block {
    /// A block from somewhere that is not trusted: its size and its hash are checked.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind) over [`MAX_BLOCK_BYTES`]; else as [`hash::verify`].
    pub fn new(cid: Cid, data: Bytes) -> Result<Self> {
        check_size(data.len())?;
        hash::verify(&cid, &data)?;
        Ok(Self { cid, data })
    }

    /// [`Self::new`] for each of several, in their order; faster than one after the other where [`hash::verify_all`] is.
    #[must_use]
    pub fn verify_all(blocks: Vec<(Cid, Bytes)>) -> Vec<Result<Self>> {
        let parts: Vec<(Cid, &[u8])> = blocks.iter().map(|(cid, data)| (*cid, data.as_ref())).collect();
        let verified = hash::verify_all(&parts);
        let block = |((cid, data), verified): ((Cid, Bytes), Result<()>)| {
            check_size(data.len())?;
            verified.map(|()| Self { cid, data })
        };
        blocks.into_iter().zip(verified).map(block).collect()
    }

    /// A block whose bytes come from our own store or were hashed a moment ago: nothing is checked.
    #[must_use]
    pub fn trusted(cid: Cid, data: Bytes) -> Self {
        Self { cid, data }
    }

    /// Hashes `data` into a block of the given CID version and codec.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind) over [`MAX_BLOCK_BYTES`], or as [`new_cid`] and
    /// [`hash::HashFunction::digest`].
    pub fn hash(version: u64, codec: u64, function: hash::HashFunction, data: Bytes) -> Result<Self> {
        check_size(data.len())?;
        let cid = new_cid(version, codec, function.digest(&data)?)?;
        Ok(Self { cid, data })
    }

    /// [`Self::hash`] for each of several, in their order; faster than one after the other where
    /// [`hash::HashFunction::digests`] is.
    ///
    /// # Errors
    /// As [`Self::hash`], for the first that has one.
    pub fn hash_all(version: u64, codec: u64, function: hash::HashFunction, data: Vec<Bytes>) -> Result<Vec<Self>> {
        data.iter().try_for_each(|data| check_size(data.len()))?;
        let hashes = function.digests(&data.iter().map(Bytes::as_ref).collect::<Vec<_>>())?;
        let block = |(data, hash)| Ok(Self { cid: new_cid(version, codec, hash)?, data });
        data.into_iter().zip(hashes).map(block).collect()
    }

    /// The content ID.
    #[must_use]
    pub fn cid(&self) -> &Cid {
        &self.cid
    }

    /// The bytes.
    #[must_use]
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Content ID and bytes.
    #[must_use]
    pub fn into_parts(self) -> (Cid, Bytes) {
        (self.cid, self.data)
    }
}

fn check_size(size: usize) -> Result<()> {
    if size > MAX_BLOCK_BYTES {
        return Err(Error::too_large(format!(
            "a block of {size} bytes is over the limit of {MAX_BLOCK_BYTES} bytes: add it as a file"
        )));
    }
    Ok(())
}

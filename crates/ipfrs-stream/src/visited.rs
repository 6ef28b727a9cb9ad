//! Sets of visited blocks.

use foldhash::HashSet;
use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, Error, Result};

/// Bytes of a digest that identify the block. Finding two blocks with the same fingerprint takes about 2^64 hashes.
const FINGERPRINT_BYTES: usize = 16;

/// A set of the blocks that a walk has met, at about 20 bytes per block. CIDs that differ only in version denote the
/// same block. CIDs that differ in codec denote different blocks, because their links differ.
#[derive(Debug, Default)]
pub struct Visited {
    fingerprints: HashSet<u128>,
}

impl Visited {
    /// Returns whether the set contains the block.
    #[must_use]
    pub fn contains(&self, cid: &Cid) -> bool {
        self.fingerprints.contains(&fingerprint(cid))
    }

    /// Adds a block. Returns `false` if the set already contained it.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_DAG_BLOCKS`] blocks.
    pub fn insert(&mut self, cid: &Cid) -> Result<bool> {
        if !self.fingerprints.insert(fingerprint(cid)) {
            return Ok(false);
        }
        if self.fingerprints.len() > MAX_DAG_BLOCKS {
            return Err(Error::too_large(format!(
                "the DAG has more than the limit of {MAX_DAG_BLOCKS} blocks: request parts of it"
            )));
        }
        Ok(true)
    }
}

/// Returns the start of the digest, mixed with the codec. The hash functions of stored blocks are cryptographic, so
/// any bytes of the digest serve equally well.
pub(crate) fn fingerprint(cid: &Cid) -> u128 {
    let digest = cid.hash().digest();
    let mut bytes = [0; FINGERPRINT_BYTES];
    let length = digest.len().min(FINGERPRINT_BYTES);
    bytes[..length].copy_from_slice(&digest[..length]);
    u128::from_le_bytes(bytes) ^ u128::from(cid.codec())
}

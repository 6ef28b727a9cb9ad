//! Sets of blocks.

use std::collections::HashSet;

use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, Error, Result};

/// Bytes of a digest that stand for all of it: as hard to find two blocks with the same ones as to do 2^64 hashes.
const FINGERPRINT_BYTES: usize = 16;

/// The blocks that a walk has met, some 20 bytes each. CIDs that differ in their version are the same block; those that
/// differ in their codec are not, because they do not link to the same blocks.
#[derive(Debug, Default)]
pub struct Visited {
    fingerprints: HashSet<u128>,
}

impl Visited {
    /// Whether the block is in the set.
    #[must_use]
    pub fn contains(&self, cid: &Cid) -> bool {
        self.fingerprints.contains(&fingerprint(cid))
    }

    /// Adds a block; `false` where it was there already.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_DAG_BLOCKS`] blocks.
    pub fn insert(&mut self, cid: &Cid) -> Result<bool> {
        if !self.fingerprints.insert(fingerprint(cid)) {
            return Ok(false);
        }
        if self.fingerprints.len() > MAX_DAG_BLOCKS {
            return Err(Error::too_large(format!(
                "the DAG has more than the limit of {MAX_DAG_BLOCKS} blocks: ask for parts of it"
            )));
        }
        Ok(true)
    }
}

/// The beginning of the digest, mixed with the codec. The hash functions of stored blocks are cryptographic: any bytes of
/// their digests are as good as any other.
pub(crate) fn fingerprint(cid: &Cid) -> u128 {
    let digest = cid.hash().digest();
    let mut bytes = [0; FINGERPRINT_BYTES];
    let taken = digest.len().min(FINGERPRINT_BYTES);
    bytes[..taken].copy_from_slice(&digest[..taken]);
    u128::from_le_bytes(bytes) ^ u128::from(cid.codec())
}

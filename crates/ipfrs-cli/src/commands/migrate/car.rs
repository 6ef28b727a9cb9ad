//! Parts of CAR files that are written one after the other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use ipfrs_core::Cid;
use ipfrs_stream::car::frame;

/// Appends a section with a block.
pub(super) fn put_section(out: &mut Vec<u8>, cid: &Cid, data: Bytes) {
    frame(cid, data).iter().for_each(|piece| out.extend_from_slice(piece));
}

/// The blocks that a CAR has already.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Hashes of their content IDs. 128 random bits are never equal by chance.
    seen: HashSet<u128>,
    keys: [RandomState; 2],
}

impl Written {
    /// Adds a block. Returns whether the CAR did not have it.
    pub(super) fn add(&mut self, cid: &Cid) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(cid)));
        self.seen.insert(high << 64 | low)
    }
}

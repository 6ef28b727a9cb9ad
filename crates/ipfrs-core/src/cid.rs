//! Types of content IDs and multihashes.

use crate::limits::MAX_IDENTITY_BYTES;

/// A content ID (<https://github.com/multiformats/cid>). Its digest has up to 128 bytes, enough for an identity CID.
pub type Cid = cid::CidGeneric<MAX_IDENTITY_BYTES>;

/// A multihash (<https://multiformats.io/multihash/>) with a digest of up to 128 bytes.
pub type Multihash = multihash::Multihash<MAX_IDENTITY_BYTES>;

/// Returns the CIDv1 for the content of a CID. CIDs that differ only in their version have the same one.
#[must_use]
pub fn as_v1(cid: &Cid) -> Cid {
    Cid::new_v1(cid.codec(), *cid.hash())
}

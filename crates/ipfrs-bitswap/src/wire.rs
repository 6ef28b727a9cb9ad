//! Messages of Bitswap 1.0.0, 1.1.0 and 1.2.0 (<https://specs.ipfs.tech/bitswap-protocol/>), in protobuf.
//!
//! Messages are decoded here and not by a library: the number of entries is limited before they take memory, and the
//! data of blocks is neither copied from a received message nor into a sent one.

mod decode;
mod encode;

use bytes::Bytes;
use ipfrs_core::Cid;
use ipfrs_core::limits::MAX_IDENTITY_BYTES;
use libp2p::StreamProtocol;

pub(crate) use decode::{Malformed, Prefix};
pub(crate) use encode::{Response, wantlist};

/// Largest message, in bytes: 4 MiB, as in Kubo.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// Maximum number of entries of each kind in one message. A message of other implementations has fewer: they limit its
/// size or the number of wants.
pub(crate) const MAX_ENTRIES: usize = 65_536;
/// Longest content ID, in bytes: a digest of 128 bytes and four numbers of 10 bytes, as in Kubo.
pub(crate) const MAX_CID_BYTES: usize = 168;

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    /// 1.0.0: blocks without their prefix.
    V1_0,
    /// 1.1.0: blocks with the prefix of their content ID.
    V1_1,
    /// 1.2.0: `HAVE` and `DONT_HAVE`.
    V1_2,
}

impl Version {
    /// Every version, in the order in which they are offered.
    pub(crate) const ALL: [Self; 3] = [Self::V1_2, Self::V1_1, Self::V1_0];

    /// Returns the name of the protocol.
    pub(crate) const fn protocol(self) -> StreamProtocol {
        StreamProtocol::new(match self {
            Self::V1_0 => "/ipfs/bitswap/1.0.0",
            Self::V1_1 => "/ipfs/bitswap/1.1.0",
            Self::V1_2 => "/ipfs/bitswap/1.2.0",
        })
    }

    /// Returns whether peers with this version understand `WANT-HAVE`, `HAVE` and `DONT_HAVE`.
    pub(crate) fn has_presences(self) -> bool {
        self >= Self::V1_2
    }
}

/// Kind of a want.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WantKind {
    /// The peer shall say whether it has the block.
    Have,
    /// The peer shall send the block.
    Block,
}

/// An entry of a received wantlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantEntry {
    /// Binary content ID, not yet parsed.
    pub cid: Bytes,
    pub priority: i32,
    pub cancel: bool,
    pub kind: WantKind,
    pub send_dont_have: bool,
}

/// A received block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Payload {
    pub prefix: Prefix,
    pub data: Bytes,
}

/// A statement about a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Presence {
    /// Binary content ID, not yet parsed.
    pub cid: Bytes,
    pub has_block: bool,
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    pub wants: Vec<WantEntry>,
    /// Whether the wants replace all earlier ones.
    pub is_full: bool,
    pub blocks: Vec<Payload>,
    pub presences: Vec<Presence>,
}

/// An entry of a wantlist to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    Want { kind: WantKind, priority: i32 },
    Cancel,
}

/// Parses a content ID of a message. Returns `None` if it is too long for this node to have such a block.
///
/// # Errors
/// If it is no content ID.
pub(crate) fn parse_cid(bytes: &[u8]) -> Result<Option<Cid>, Malformed> {
    if bytes.len() > MAX_CID_BYTES {
        return Ok(None);
    }
    let mut rest = bytes;
    match Cid::read_bytes(&mut rest) {
        Ok(cid) if rest.is_empty() => Ok(Some(cid)),
        // The digest may be one that no content ID has here.
        Err(_) if bytes.len() > MAX_IDENTITY_BYTES => Ok(None),
        _ => Err(Malformed::Cid),
    }
}

#[cfg(test)]
mod tests;

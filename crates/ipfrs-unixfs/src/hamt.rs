//! Shards of sharded directories: hash array mapped tries (<https://specs.ipfs.tech/unixfs/#hamtdirectory>).

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result};

use crate::dag_pb::PbLink;
use crate::data::{Attributes, Data, MURMUR3_X64_64};
use crate::dir_entry::DirEntry;
use crate::link_name::LinkName;
use crate::murmur3;

/// Smallest fan-out. The bit field of a shard consists of whole bytes.
pub(crate) const MIN_FANOUT: u64 = 8;
/// Largest fan-out, as in boxo.
pub(crate) const MAX_FANOUT: u64 = 1024;

/// One block of a sharded directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HamtShard {
    fanout: u32,
    slots: Vec<ShardLink>,
    attributes: Attributes,
}

/// The content of one used position of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardLink {
    /// A directory entry. Its name excludes the shard's prefix.
    Entry(DirEntry),
    /// A child shard with all of the entries whose hash leads to this position.
    Shard(Cid),
}

/// The part of a shard that describes its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardHead {
    pub(crate) fanout: u32,
    bitfield: Bytes,
}

impl ShardHead {
    /// Checks that the bit field matches the number of links, on which lookups rely.
    pub(crate) fn new(data: &Data, link_count: usize) -> Result<Self> {
        let fanout = check_fanout(data.fanout.unwrap_or_default())?;
        match data.hash_type {
            Some(MURMUR3_X64_64) => {}
            other => return Err(Error::invalid(format!("HAMT hash type {other:?} is not murmur3-x64-64"))),
        }
        let bitfield = data.data.clone().unwrap_or_default();
        if bitfield.len() > fanout as usize / 8 {
            return Err(Error::invalid(format!(
                "HAMT bit field of {} bytes for a fan-out of {fanout}",
                bitfield.len()
            )));
        }
        let used = bitfield.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
        if used != link_count {
            return Err(Error::invalid(format!("HAMT bit field has {used} bits for {link_count} links")));
        }
        Ok(Self { fanout, bitfield })
    }

    /// Copies the bit field, which otherwise is a slice of the block.
    pub(crate) fn into_owned(self) -> Self {
        Self { bitfield: Bytes::copy_from_slice(&self.bitfield), ..self }
    }

    /// Returns the number of bits of a name's hash that select a position.
    pub(crate) fn bits(&self) -> u32 {
        self.fanout.trailing_zeros()
    }

    /// Whether the position is used. Bit 0 is the lowest bit of the last byte, and leading zero bytes may be missing.
    pub(crate) fn is_used(&self, position: u32) -> bool {
        let at = self.bitfield.len().checked_sub((position / 8) as usize + 1);
        at.is_some_and(|at| self.bitfield[at] & (1 << (position % 8)) != 0)
    }

    /// Returns the index of the link at `position`, or `None` if the position is not used.
    pub(crate) fn index_of(&self, position: u32) -> Option<usize> {
        // Bytes behind the one with the position have the lower positions.
        let at = self.bitfield.len().checked_sub((position / 8) as usize + 1)?;
        let below = self.bitfield[at] & ((1 << (position % 8)) - 1);
        let lower: u32 = self.bitfield[at + 1..].iter().map(|byte| byte.count_ones()).sum();
        self.is_used(position).then(|| (lower + below.count_ones()) as usize)
    }

    /// Returns the name of the entry at `position`, or an empty name for a child shard. `name` is that of the link.
    pub(crate) fn strip_prefix<'a>(&self, name: &'a [u8], position: u32) -> Result<&'a [u8]> {
        let prefix = prefix(self.fanout, position);
        name.strip_prefix(prefix.as_bytes())
            .ok_or_else(|| Error::invalid(format!("HAMT link {:?} at position {prefix}", LinkName::from(name))))
    }
}

impl HamtShard {
    pub(crate) fn new(links: Vec<PbLink>, data: &Data) -> Result<Self> {
        let head = ShardHead::new(data, links.len())?;
        let positions = (0..head.fanout).filter(|position| head.is_used(*position));
        let slots = links.into_iter().zip(positions).map(|(link, position)| slot(link, &head, position));
        Ok(Self { slots: slots.collect::<Result<_>>()?, fanout: head.fanout, attributes: data.attributes() })
    }

    /// Returns the number of positions of the shard: a power of two from 8 to 1,024.
    #[must_use]
    pub fn fanout(&self) -> u32 {
        self.fanout
    }

    /// Returns the permissions and the modification time of the directory. Only its root shard has any.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.attributes
    }

    /// Returns the used positions, in ascending order.
    #[must_use]
    pub fn slots(&self) -> &[ShardLink] {
        &self.slots
    }
}

fn slot(link: PbLink, head: &ShardHead, position: u32) -> Result<ShardLink> {
    Ok(match head.strip_prefix(link.name.as_bytes(), position)? {
        [] => ShardLink::Shard(link.cid),
        name => ShardLink::Entry(DirEntry { name: name.into(), cid: link.cid, tsize: link.tsize }),
    })
}

/// Returns the fan-out if it is valid for a shard.
pub(crate) fn check_fanout(fanout: u64) -> Result<u32> {
    if !fanout.is_power_of_two() || !(MIN_FANOUT..=MAX_FANOUT).contains(&fanout) {
        return Err(Error::invalid(format!(
            "HAMT fan-out {fanout} is not a power of two from {MIN_FANOUT} to {MAX_FANOUT}"
        )));
    }
    Ok(fanout as u32)
}

/// Returns the prefix of link names at `position`: upper-case hexadecimal, as wide as the last position requires.
pub(crate) fn prefix(fanout: u32, position: u32) -> String {
    let width = fanout.trailing_zeros().div_ceil(4) as usize;
    format!("{position:0width$X}")
}

/// The hash of a name. Each level of the trie consumes some bits, starting with the highest.
#[derive(Debug, Clone)]
pub(crate) struct HashBits {
    hash: u64,
    consumed: u32,
}

impl HashBits {
    pub(crate) fn of(name: &[u8]) -> Self {
        Self { hash: murmur3::hash(name), consumed: 0 }
    }

    /// Returns the hash of another name, of which the same number of bits is consumed.
    pub(crate) fn with_name(&self, name: &[u8]) -> Self {
        Self { hash: murmur3::hash(name), consumed: self.consumed }
    }

    /// Returns the next `count` bits, from 1 to 10.
    pub(crate) fn next(&mut self, count: u32) -> Result<u32> {
        if self.consumed + count > u64::BITS {
            return Err(Error::invalid_content("sharded directory is deeper than the bits of a name hash allow"));
        }
        let bits = (self.hash << self.consumed) >> (u64::BITS - count);
        self.consumed += count;
        Ok(bits as u32)
    }
}

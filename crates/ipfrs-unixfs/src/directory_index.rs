//! Directory blocks in a compact form that is searched without reading all links.

use bytes::Bytes;
use ipfrs_core::{Error, Result, cid_from_bytes};

use crate::dag_pb::{LinkFields, read_link, read_node};
use crate::data::{Data, DataType};
use crate::hamt::{HashBits, ShardHead};
use crate::link_name::LinkName;
use crate::search::{Found, found_in_shard};

/// Approximate size of an index besides its block and positions, in bytes.
const OVERHEAD_BYTES: usize = 160;

/// A copy of a directory block, with the positions of its links.
#[derive(Debug)]
pub struct DirectoryIndex {
    block: Box<[u8]>,
    links: Links,
}

/// Positions of the links in the block: start and length.
#[derive(Debug)]
enum Links {
    /// Links of a directory in one block, ordered by name. Of several links with one name, only the first is listed.
    ByName(Box<[(u32, u32)]>),
    /// Links of a shard, in the order of the block.
    InOrder(ShardHead, Box<[(u32, u32)]>),
}

impl DirectoryIndex {
    /// Returns the index of a directory or shard in one dag-pb block.
    ///
    /// # Errors
    /// Fails for any other block.
    pub fn new(block: &Bytes) -> Result<Self> {
        let mut positions = Vec::new();
        let start = block.as_ptr().addr();
        let data = read_node(block, |link| {
            let at = link.as_ptr().addr() - start;
            // Blocks have at most a few megabytes.
            positions.push((at as u32, link.len() as u32));
            Ok(())
        })?;
        let data = data.ok_or_else(|| Error::invalid("dag-pb node without data"))?;
        let data = Data::read(block.slice_ref(data))?;
        let links = match data.data_type()? {
            DataType::Directory => {
                let mut named = Vec::with_capacity(positions.len());
                for position in positions {
                    named.push((read_link(link_at(block, position))?.name, position));
                }
                // Stable, so that of equal names the first one in the block stays first.
                named.sort_by_key(|(name, _)| *name);
                named.dedup_by_key(|(name, _)| *name);
                Links::ByName(named.into_iter().map(|(_, position)| position).collect())
            }
            DataType::HamtShard => {
                let head = ShardHead::new(&data, positions.len())?;
                // The bit field must not keep the block alive.
                Links::InOrder(head.into_owned(), positions.into())
            }
            _ => return Err(Error::invalid("the block is not a directory")),
        };
        Ok(Self { block: block.as_ref().into(), links })
    }

    /// Returns the approximate memory of the index, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let (Links::ByName(positions) | Links::InOrder(_, positions)) = &self.links;
        self.block.len() + size_of_val(&**positions) + OVERHEAD_BYTES
    }

    /// Searches for `name`, whose hash is `bits`. With `is_shard`, the block must be a shard.
    pub(crate) fn find(&self, name: &LinkName, bits: &mut HashBits, is_shard: bool) -> Result<Found> {
        match &self.links {
            Links::ByName(positions) if !is_shard => {
                let (mut low, mut high) = (0, positions.len());
                while low < high {
                    let middle = low.midpoint(high);
                    let LinkFields { cid, name: stored, .. } = read_link(link_at(&self.block, positions[middle]))?;
                    match stored.cmp(name.as_bytes()) {
                        std::cmp::Ordering::Less => low = middle + 1,
                        std::cmp::Ordering::Equal => return Ok(Found::Entry(cid_from_bytes(cid)?)),
                        std::cmp::Ordering::Greater => high = middle,
                    }
                }
                Ok(Found::Nothing)
            }
            Links::ByName(_) => Err(Error::invalid("the block is not a shard")),
            Links::InOrder(head, positions) => {
                let position = bits.next(head.bits())?;
                let Some(index) = head.index_of(position) else { return Ok(Found::Nothing) };
                let link = positions.get(index).ok_or_else(|| Error::invalid("HAMT shard without the link"))?;
                found_in_shard(head, link_at(&self.block, *link), position, name)
            }
        }
    }
}

fn link_at(block: &[u8], (start, len): (u32, u32)) -> &[u8] {
    &block[start as usize..(start + len) as usize]
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Block, Cid, codec};
    use proptest::prelude::*;

    use super::*;
    use crate::dag_pb::{PbLink, encode};
    use crate::search::find;

    fn cid(number: usize) -> Cid {
        let data = Bytes::from(number.to_string());
        *Block::hash(1, codec::RAW, HashFunction::Sha2_256, data).unwrap().cid()
    }

    fn search(index: &DirectoryIndex, block: &Bytes, name: &LinkName) -> [Option<Found>; 2] {
        let bits = || HashBits::of(name.as_bytes());
        [index.find(name, &mut bits(), false).ok(), find(block, name, &mut bits(), false).ok()]
    }

    proptest! {
        #[test]
        fn index_finds_what_a_search_of_the_block_finds(
            names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 0..40),
            other in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let link = |(number, name): (usize, &Vec<u8>)| {
                PbLink { cid: cid(number), name: name.as_slice().into(), tsize: 1 }
            };
            let links: Vec<_> = names.iter().enumerate().map(link).collect();
            let block = encode(&links, &[8, 1]);
            let index = DirectoryIndex::new(&block).unwrap();
            for name in names.iter().chain([&other]) {
                let first = names.iter().position(|known| known == name);
                let expected = Some(first.map_or(Found::Nothing, |first| Found::Entry(cid(first))));
                prop_assert_eq!(search(&index, &block, &name.as_slice().into()), [expected.clone(), expected]);
            }
        }

        #[test]
        fn shards_are_searched_by_position(used in any::<u8>(), names in proptest::collection::vec("[a-z]{0,3}", 8)) {
            let positions: Vec<_> = (0..8).filter(|position| used & (1 << position) != 0).collect();
            let link = |position: &usize| {
                let name = format!("{position:X}{}", names[*position]);
                PbLink { cid: cid(*position), name: name.as_str().into(), tsize: 1 }
            };
            let links: Vec<_> = positions.iter().map(link).collect();
            // A fan-out of 8, and murmur3.
            let block = encode(&links, &[8, 5, 0x12, 1, used, 0x28, 0x22, 0x30, 8]);
            let index = DirectoryIndex::new(&block).unwrap();
            for name in &names {
                let position = HashBits::of(name.as_bytes()).next(3).unwrap() as usize;
                let expected = match names[position].as_str() {
                    _ if !positions.contains(&position) => Found::Nothing,
                    "" => Found::Shard(cid(position)),
                    stored if stored == name => Found::Entry(cid(position)),
                    _ => Found::Nothing,
                };
                let expected = Some(expected);
                prop_assert_eq!(search(&index, &block, &name.as_str().into()), [expected.clone(), expected]);
            }
        }
    }
}

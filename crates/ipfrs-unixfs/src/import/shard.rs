//! Sharded directories, built from entries in the order of their hashes.

use bytes::Bytes;
use ipfrs_core::{Block, Error, Result};

use super::layout::node_block;
use super::options::ImportOptions;
use crate::dag_pb::PbLink;
use crate::data::{Attributes, Data, DataType, MURMUR3_X64_64};
use crate::hamt::prefix;
use crate::link_name::LinkName;

/// Builds the shards of a directory as its entries come, in ascending order of their hashes.
///
/// An entry lies in the first shard, from the root down, that no other entry's hash leads to by the same position. In the
/// order of hashes that other one is a neighbour, so all that is in memory is one entry and the unfinished shards that its
/// hash leads through: at most 21, of at most as many links as the fan-out.
#[derive(Debug)]
pub(super) struct ShardBuilder {
    /// The unfinished shards, from the root down.
    path: Vec<Shard>,
    /// The last entry, with its hash. The next one decides how deep it lies.
    last: Option<(u64, PbLink)>,
    /// Levels that the hashes of the last entry and the one before it share.
    shared_levels: usize,
}

/// A shard that is not complete.
#[derive(Debug)]
struct Shard {
    /// Its position in the shard above it.
    position: u32,
    links: Vec<PbLink>,
    bitfield: Vec<u8>,
}

impl ShardBuilder {
    pub(super) fn new(options: &ImportOptions) -> Self {
        Self { path: vec![Shard::new(0, options)], last: None, shared_levels: 0 }
    }

    /// Adds an entry whose name has the hash `hash`, which is not below that of the entry before it. Shards that are
    /// complete are added to `blocks`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when the hash is equal to that of the entry before, as far as
    /// shards use it.
    pub(super) fn push(
        &mut self,
        hash: u64,
        link: PbLink,
        options: &ImportOptions,
        blocks: &mut Vec<Block>,
    ) -> Result<()> {
        if let Some((last_hash, last)) = self.last.take() {
            let shared = shared_levels(last_hash, hash, options);
            if shared == levels(options) {
                return Err(Error::invalid(format!(
                    "directory entry {:?} has the same hash as another one",
                    link.name
                )));
            }
            self.place(last_hash, last, self.shared_levels.max(shared), options);
            self.close(shared, options, blocks)?;
            self.shared_levels = shared;
        }
        self.last = Some((hash, link));
        Ok(())
    }

    /// The last of the blocks, the root being the very last: it has the `attributes`. Gives the bytes of all blocks of the
    /// directory and of all that is below its entries.
    pub(super) fn finish(
        mut self,
        attributes: &Attributes,
        options: &ImportOptions,
        blocks: &mut Vec<Block>,
    ) -> Result<u64> {
        if let Some((hash, last)) = self.last.take() {
            self.place(hash, last, self.shared_levels, options);
        }
        self.close(0, options, blocks)?;
        let root = self.path.pop().ok_or_else(|| Error::internal("a sharded directory without a root"))?;
        Ok(root.finish(attributes, options, blocks)?.tsize)
    }

    /// Puts an entry into the shard `depth` levels below the root that its hash leads to.
    fn place(&mut self, hash: u64, link: PbLink, depth: usize, options: &ImportOptions) {
        for level in self.path.len()..=depth {
            self.path.push(Shard::new(position(hash, level - 1, options), options));
        }
        self.path[depth].add(position(hash, depth, options), link, options);
    }

    /// Finishes the shards that are deeper than `depth`.
    fn close(&mut self, depth: usize, options: &ImportOptions, blocks: &mut Vec<Block>) -> Result<()> {
        while self.path.len() > depth + 1
            && let Some(shard) = self.path.pop()
            && let Some(above) = self.path.last_mut()
        {
            let position = shard.position;
            above.add(position, shard.finish(&Attributes::default(), options, blocks)?, options);
        }
        Ok(())
    }
}

impl Shard {
    fn new(position: u32, options: &ImportOptions) -> Self {
        Self { position, links: Vec::new(), bitfield: vec![0; options.hamt_fanout as usize / 8] }
    }

    /// Adds a link behind those that are there, at a higher position.
    fn add(&mut self, position: u32, link: PbLink, options: &ImportOptions) {
        let from_end = (position / 8) as usize + 1;
        let byte = self.bitfield.len() - from_end;
        self.bitfield[byte] |= 1 << (position % 8);
        let name = [prefix(options.hamt_fanout, position).as_bytes(), link.name.as_bytes()].concat().into();
        self.links.push(PbLink { name, ..link });
    }

    /// Adds the block to `blocks`, and gives the link to it, without a name.
    fn finish(self, attributes: &Attributes, options: &ImportOptions, blocks: &mut Vec<Block>) -> Result<PbLink> {
        let first_used = self.bitfield.iter().position(|byte| *byte != 0).unwrap_or(self.bitfield.len());
        let data = Data {
            type_code: Some(DataType::HamtShard.code()),
            data: Some(Bytes::copy_from_slice(&self.bitfield[first_used..])),
            hash_type: Some(MURMUR3_X64_64),
            fanout: Some(options.hamt_fanout.into()),
            ..Data::default()
        }
        .with_attributes(attributes);
        let (block, tsize) = node_block(&self.links, &data, options)?;
        let link = PbLink { cid: *block.cid(), name: LinkName::default(), tsize };
        blocks.push(block);
        Ok(link)
    }
}

/// Bits of a hash that one level uses.
fn bits(options: &ImportOptions) -> usize {
    options.hamt_fanout.trailing_zeros() as usize
}

/// Most levels that a hash leads through.
fn levels(options: &ImportOptions) -> usize {
    u64::BITS as usize / bits(options)
}

/// Levels at which two hashes lead to the same position, from the root down.
fn shared_levels(a: u64, b: u64, options: &ImportOptions) -> usize {
    ((a ^ b).leading_zeros() as usize / bits(options)).min(levels(options))
}

/// Where a hash leads in a shard `depth` levels below the root.
fn position(hash: u64, depth: usize, options: &ImportOptions) -> u32 {
    let bits = bits(options);
    ((hash << (depth * bits)) >> (u64::BITS as usize - bits)) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ipfrs_core::{codec, hash, new_cid};
    use proptest::prelude::*;

    use super::*;
    use crate::import::Overrides;

    fn link(hash: u64) -> PbLink {
        let cid = new_cid(1, codec::RAW, hash::sha2_256(&hash.to_be_bytes())).unwrap();
        PbLink { cid, name: format!("{hash:x}").into(), tsize: hash % 1000 }
    }

    fn options(fanout: u32) -> ImportOptions {
        ImportOptions::new(None, Overrides { hamt_fanout: Some(fanout), ..Overrides::default() }).unwrap()
    }

    /// The shards by the definition of the trie: all entries at hand, divided by position, level by level.
    fn divided(hashes: &[u64], depth: usize, options: &ImportOptions, blocks: &mut Vec<Block>) -> PbLink {
        let mut positions = BTreeMap::<u32, Vec<u64>>::new();
        for hash in hashes {
            positions.entry(position(*hash, depth, options)).or_default().push(*hash);
        }
        let mut shard = Shard::new(0, options);
        for (position, hashes) in positions {
            let link = match hashes.as_slice() {
                [only] => link(*only),
                many => divided(many, depth + 1, options, blocks),
            };
            shard.add(position, link, options);
        }
        shard.finish(&Attributes::default(), options, blocks).unwrap()
    }

    fn streamed(hashes: &[u64], options: &ImportOptions) -> Result<(Vec<Block>, u64)> {
        let (mut builder, mut blocks) = (ShardBuilder::new(options), Vec::new());
        for hash in hashes {
            builder.push(*hash, link(*hash), options, &mut blocks)?;
        }
        let tsize = builder.finish(&Attributes::default(), options, &mut blocks)?;
        Ok((blocks, tsize))
    }

    /// Hashes of which many begin alike for any number of bits.
    fn hashes() -> impl Strategy<Value = Vec<u64>> {
        let seed = (any::<u64>(), 0_u32..64, prop::sample::select(vec![0_u64, !0, 0x0123_4567_89ab_cdef]));
        let hash = seed.prop_map(|(random, kept, base)| base ^ (random >> kept));
        prop::collection::btree_set(hash, 0..200).prop_map(|hashes| hashes.into_iter().collect())
    }

    proptest! {
        #[test]
        fn shards_built_in_order_are_those_of_all_entries_at_once(hashes in hashes(), width in 3_u32..=10) {
            let options = options(1 << width);
            // Hashes that differ only where no level looks cannot be told apart.
            let unused = u64::BITS % width;
            let distinct: Vec<_> = hashes.chunk_by(|a, b| a >> unused == b >> unused).map(|group| group[0]).collect();
            let mut expected = Vec::new();
            let root = divided(&distinct, 0, &options, &mut expected);
            prop_assert_eq!(streamed(&distinct, &options).unwrap(), (expected, root.tsize));
            prop_assert_eq!(streamed(&hashes, &options).is_err(), distinct.len() < hashes.len());
        }
    }

    #[test]
    fn what_is_held_is_no_more_than_the_shards_on_the_way_to_one_entry() {
        let options = options(8);
        let (mut builder, mut blocks) = (ShardBuilder::new(&options), Vec::new());
        for hash in (0..100_000_u64).map(|i| i << 40) {
            builder.push(hash, link(hash), &options, &mut blocks).unwrap();
            assert!(builder.path.iter().all(|shard| shard.links.len() <= 8));
            blocks.clear();
        }
    }
}

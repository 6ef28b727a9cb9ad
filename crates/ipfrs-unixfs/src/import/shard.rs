//! Sharded directories, built from entries in the order of their hashes.

use bytes::Bytes;
use ipfrs_core::{Block, Error, Result};

use super::layout::node_block;
use super::options::ImportOptions;
use crate::dag_pb::PbLink;
use crate::data::{Attributes, Data, DataType, MURMUR3_X64_64};
use crate::hamt::prefix;
use crate::link_name::LinkName;

/// A streaming builder for the shards of a directory. Entries must be added in ascending order of their hashes.
///
/// An entry belongs in the first shard, from the root down, in which no other entry has the same position. In hash
/// order, only a neighbouring entry can share that position. The builder therefore holds one entry and the unfinished
/// shards along its hash: at most 21, each with at most as many links as the fan-out.
#[derive(Debug)]
pub(super) struct ShardBuilder {
    /// The unfinished shards, from the root down.
    path: Vec<Shard>,
    /// The last entry and its hash. The next entry determines its depth.
    last: Option<(u64, PbLink)>,
    /// Number of levels that the hashes of the last two entries share.
    shared_levels: usize,
}

/// A shard that is not complete.
#[derive(Debug)]
struct Shard {
    /// Position of this shard in the shard above it.
    position: u32,
    links: Vec<PbLink>,
    bitfield: Vec<u8>,
}

impl ShardBuilder {
    pub(super) fn new(options: &ImportOptions) -> Self {
        Self { path: vec![Shard::new(0, options)], last: None, shared_levels: 0 }
    }

    /// Adds an entry whose name has the hash `hash`, which must not be less than the hash of the entry before it.
    /// Appends the blocks of completed shards to `blocks`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the hash equals that of the previous entry in
    /// all bits that shards use.
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

    /// Appends the remaining blocks, ending with the root, which has the `attributes`. Returns the total size of all
    /// blocks of the directory and of everything below its entries.
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

    /// Adds an entry to the shard at `depth` levels below the root to which its hash leads.
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
        Self { position, links: Vec::new(), bitfield: vec![0; options.sharding.fanout as usize / 8] }
    }

    /// Appends a link, whose position must be greater than those of all existing links.
    fn add(&mut self, position: u32, link: PbLink, options: &ImportOptions) {
        let from_end = (position / 8) as usize + 1;
        let byte = self.bitfield.len() - from_end;
        self.bitfield[byte] |= 1 << (position % 8);
        let name = [prefix(options.sharding.fanout, position).as_bytes(), link.name.as_bytes()].concat().into();
        self.links.push(PbLink { name, ..link });
    }

    /// Appends the block to `blocks`, and returns a link to it without a name.
    fn finish(self, attributes: &Attributes, options: &ImportOptions, blocks: &mut Vec<Block>) -> Result<PbLink> {
        let first_used = self.bitfield.iter().position(|byte| *byte != 0).unwrap_or(self.bitfield.len());
        let data = Data {
            type_code: Some(DataType::HamtShard.code()),
            data: Some(Bytes::copy_from_slice(&self.bitfield[first_used..])),
            hash_type: Some(MURMUR3_X64_64),
            fanout: Some(options.sharding.fanout.into()),
            ..Data::default()
        }
        .with_attributes(attributes);
        let (block, tsize) = node_block(&self.links, &data, options)?;
        let link = PbLink { cid: *block.cid(), name: LinkName::default(), tsize };
        blocks.push(block);
        Ok(link)
    }
}

/// Returns the number of hash bits that one level uses.
fn bits(options: &ImportOptions) -> usize {
    options.sharding.fanout.trailing_zeros() as usize
}

/// Returns the maximum number of levels along a hash.
fn levels(options: &ImportOptions) -> usize {
    u64::BITS as usize / bits(options)
}

/// Returns the number of levels, from the root down, at which two hashes have the same position.
fn shared_levels(a: u64, b: u64, options: &ImportOptions) -> usize {
    ((a ^ b).leading_zeros() as usize / bits(options)).min(levels(options))
}

/// Returns the position of a hash in a shard at `depth` levels below the root.
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

    /// Builds the shards by the definition of the trie: divides all entries by position, level by level.
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

    /// Generates hashes of which many share prefixes of any number of bits.
    fn hashes() -> impl Strategy<Value = Vec<u64>> {
        let seed = (any::<u64>(), 0_u32..64, prop::sample::select(vec![0_u64, !0, 0x0123_4567_89ab_cdef]));
        let hash = seed.prop_map(|(random, kept, base)| base ^ (random >> kept));
        prop::collection::btree_set(hash, 0..200).prop_map(|hashes| hashes.into_iter().collect())
    }

    proptest! {
        #[test]
        fn shards_built_in_order_are_those_of_all_entries_at_once(hashes in hashes(), width in 3_u32..=10) {
            let options = options(1 << width);
            // No level distinguishes hashes that differ only in unused bits.
            let unused = u64::BITS % width;
            let distinct: Vec<_> = hashes.chunk_by(|a, b| a >> unused == b >> unused).map(|group| group[0]).collect();
            let mut expected = Vec::new();
            let root = divided(&distinct, 0, &options, &mut expected);
            prop_assert_eq!(streamed(&distinct, &options).unwrap(), (expected, root.tsize));
            prop_assert_eq!(streamed(&hashes, &options).is_err(), distinct.len() < hashes.len());
        }
    }

    #[test]
    fn shard_builder_holds_only_shards_of_one_path() {
        let options = options(8);
        let (mut builder, mut blocks) = (ShardBuilder::new(&options), Vec::new());
        for hash in (0..100_000_u64).map(|i| i << 40) {
            builder.push(hash, link(hash), &options, &mut blocks).unwrap();
            assert!(builder.path.iter().all(|shard| shard.links.len() <= 8));
            blocks.clear();
        }
    }
}

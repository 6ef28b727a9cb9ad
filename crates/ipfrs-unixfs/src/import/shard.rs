//! Sharded directories, built whole.

use bytes::Bytes;
use ipfrs_core::{Block, Error, Result};

use super::layout::node_block;
use super::options::ImportOptions;
use crate::dag_pb::PbLink;
use crate::data::{Attributes, Data, DataType, MURMUR3_X64_64};
use crate::hamt::{HashBits, prefix};

/// The shards of a directory with `entries` (distinct names, any order) and `attributes`, which the root has: the blocks, root last, and the bytes of all
/// blocks below the root, itself included.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when the hashes of two names are equal.
pub(crate) fn shard_directory(
    entries: Vec<PbLink>,
    attributes: &Attributes,
    options: &ImportOptions,
) -> Result<(Vec<Block>, u64)> {
    let entries: Vec<_> = entries.into_iter().map(|link| (HashBits::of(&link.name), link)).collect();
    let mut blocks = Vec::new();
    let root = build(entries, attributes, options, &mut blocks)?;
    Ok((blocks, root.tsize))
}

/// Builds the shard of `entries` and those below it. Each level uses up bits of the hash, which bounds the recursion.
fn build(
    entries: Vec<(HashBits, PbLink)>,
    attributes: &Attributes,
    options: &ImportOptions,
    blocks: &mut Vec<Block>,
) -> Result<PbLink> {
    let fanout = options.hamt_fanout;
    let mut positions: Vec<Vec<(HashBits, PbLink)>> = vec![Vec::new(); fanout as usize];
    for (mut bits, link) in entries {
        let position = bits.next(fanout.trailing_zeros()).map_err(|_too_deep| {
            Error::invalid(format!("directory entry {:?} has the same hash as another one", link.name))
        })?;
        positions[position as usize].push((bits, link));
    }
    let mut bitfield = vec![0_u8; fanout as usize / 8];
    let mut links = Vec::new();
    for (position, mut entries) in positions.into_iter().enumerate() {
        let prefix = prefix(fanout, position as u32);
        let link = match entries.len() {
            0 => continue,
            1 => entries.pop().map(|(_, link)| PbLink { name: prefix + &link.name, ..link }),
            _ => Some(PbLink { name: prefix, ..build(entries, &Attributes::default(), options, blocks)? }),
        };
        links.extend(link);
        let from_end = position / 8 + 1;
        bitfield[fanout as usize / 8 - from_end] |= 1 << (position % 8);
    }
    let first_used = bitfield.iter().position(|byte| *byte != 0).unwrap_or(bitfield.len());
    let data = Data {
        type_code: Some(DataType::HamtShard.code()),
        data: Some(Bytes::copy_from_slice(&bitfield[first_used..])),
        hash_type: Some(MURMUR3_X64_64),
        fanout: Some(fanout.into()),
        ..Data::default()
    }
    .with_attributes(attributes);
    let (block, tsize) = node_block(&links, &data, options)?;
    let link = PbLink { cid: *block.cid(), name: String::new(), tsize };
    blocks.push(block);
    Ok(link)
}

//! UnixFS files of any shape, built by hand so that they can also be invalid.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{FileNode, Node, decode};

pub(crate) fn raw(data: impl Into<Bytes>) -> Block {
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, data.into()).unwrap()
}

/// Creates a dag-pb block with UnixFS data of `kind` (1 directory, 2 file).
fn unixfs(kind: u8, inline: &[u8], size: u64, children: &[(Cid, u64)]) -> Block {
    let mut data = vec![0x08, kind];
    let put = |data: &mut Vec<u8>, key: u8, value: u64| {
        data.push(key);
        data.extend(unsigned_varint::encode::u64(value, &mut unsigned_varint::encode::u64_buffer()));
    };
    if !inline.is_empty() {
        put(&mut data, 0x12, inline.len() as u64);
        data.extend(inline);
    }
    put(&mut data, 0x18, size);
    for (_, size) in children {
        put(&mut data, 0x20, *size);
    }
    let links: Vec<_> =
        children.iter().map(|(cid, size)| PbLink { cid: *cid, name: "".into(), tsize: *size }).collect();
    Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, dag_pb::encode(&links, &data)).unwrap()
}

/// Creates a file node that declares a size of `size` bytes.
pub(crate) fn node_of_size(size: u64, inline: &[u8], children: &[(Cid, u64)]) -> Block {
    unixfs(2, inline, size, children)
}

/// Creates a file node that declares the correct size.
pub(crate) fn node(inline: &[u8], children: &[(Cid, u64)]) -> Block {
    node_of_size(inline.len() as u64 + children.iter().map(|(_, size)| size).sum::<u64>(), inline, children)
}

pub(crate) fn directory() -> Block {
    unixfs(1, &[], 0, &[])
}

pub(crate) fn root(block: &Block) -> FileNode {
    match decode(block.cid(), block.data()).unwrap() {
        Node::File(file) => file,
        other => panic!("not a file: {other:?}"),
    }
}

/// Creates a file of `leaves` raw blocks of `leaf_bytes` bytes below one root, which is the last block.
pub(crate) fn flat_file(leaves: usize, leaf_bytes: usize) -> Vec<Block> {
    let mut blocks: Vec<_> = (0..leaves).map(|leaf| raw(pattern(leaf as u64, leaf_bytes))).collect();
    let children: Vec<_> = blocks.iter().map(|leaf| (*leaf.cid(), leaf_bytes as u64)).collect();
    blocks.push(node(&[], &children));
    blocks
}

/// Returns pseudorandom bytes that depend on `seed`.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    use rand::{RngCore, SeedableRng};
    let mut bytes = vec![0; len];
    rand::rngs::SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

//! Blocks, and assertions about them.

use bytes::Bytes;
use futures::TryStreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use rand::RngCore;

use crate::{BlockStore, PutMode, Stored};

/// Returns a raw block of `data`.
pub fn block(data: impl Into<Bytes>) -> Block {
    let data = data.into();
    Block::trusted(Cid::new_v1(codec::RAW, HashFunction::Sha2_256.digest(&data).unwrap()), data)
}

/// Returns a raw block of `len` random bytes. From four bytes on, no two calls return the same block.
pub fn random_block(len: usize) -> Block {
    let mut data = vec![0; len];
    rand::rng().fill_bytes(&mut data);
    block(data)
}

/// Returns one small block per number.
pub fn numbered(numbers: std::ops::Range<u32>) -> Vec<Block> {
    numbers.map(|n| block(format!("block {n}"))).collect()
}

/// Returns the CIDs of blocks.
pub fn cids(blocks: &[Block]) -> Vec<Cid> {
    blocks.iter().map(|block| *block.cid()).collect()
}

/// Puts blocks and asserts that all of them are stored.
pub async fn put_all(store: &dyn BlockStore, blocks: &[Block]) -> Vec<Stored> {
    store.put_many(blocks.to_vec(), PutMode::Atomic).await.into_iter().map(Result::unwrap).collect()
}

/// Asserts that every block is present and complete, with all methods.
pub async fn assert_holds(store: &dyn BlockStore, blocks: &[Block]) {
    let sizes = store.has_many(&cids(blocks)).await.unwrap();
    let found: Vec<_> = store.get_many(cids(blocks)).try_collect().await.unwrap();
    assert_eq!(found.len(), blocks.len());
    for ((block, size), (cid, data)) in blocks.iter().zip(sizes).zip(found) {
        assert_eq!(size, Some(block.data().len() as u64), "{cid}");
        assert_eq!(cid, *block.cid());
        assert_eq!(data.as_ref(), Some(block.data()), "{cid}");
    }
}

/// Asserts that all blocks are absent.
pub async fn assert_lacks(store: &dyn BlockStore, blocks: &[Block]) {
    for block in blocks {
        assert_eq!(store.get(block.cid()).await.unwrap(), None, "{}", block.cid());
    }
}

/// Returns all CIDs that `iterate` lists, as sorted bytes.
pub async fn listed(store: &dyn BlockStore) -> Vec<Vec<u8>> {
    sorted(store.iterate().try_collect().await.unwrap())
}

/// Returns CIDs as sorted bytes.
pub fn sorted(cids: Vec<Cid>) -> Vec<Vec<u8>> {
    let mut bytes: Vec<_> = cids.iter().map(Cid::to_bytes).collect();
    bytes.sort();
    bytes
}

//! The files of a store, parsed without the store's own code.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, hash};
use ipfrs_store::{BlockStore, BlockStoreExt, CompactOptions, MemoryStore, PackOptions, PackStore, RESERVED_CODEC};

use crate::fixture::{cids, open_small, put_all, random_block, random_blocks};

/// Takes an unsigned LEB128 number from the front of `bytes`.
fn varint(bytes: &mut &[u8]) -> usize {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= usize::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Returns the sections of a CARv1 file after its header, which must have no roots.
pub(crate) fn sections(mut car: &[u8]) -> Vec<(Cid, &[u8])> {
    let header = varint(&mut car);
    // A map of two entries: "roots" with an empty array, and "version" with 1.
    assert_eq!(car[..header], *b"\xa2\x65roots\x80\x67version\x01");
    car = &car[header..];
    let mut sections = Vec::new();
    while !car.is_empty() {
        let length = varint(&mut car);
        let (mut section, rest) = car.split_at(length);
        car = rest;
        let cid = Cid::read_bytes(&mut section).unwrap();
        sections.push((cid, section));
    }
    sections
}

#[tokio::test]
async fn every_pack_is_a_car_file_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks = random_blocks(60, 10_000);
    put_all(&store, &blocks).await;
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
        put_all(&store, &[random_block(3_000)]).await;
    }
    store.delete_many(&cids(&blocks[..7])).await.unwrap();

    // The store is still open: the newest pack must be a valid CAR as well.
    let (mut found, mut deleted) = (BTreeSet::new(), Vec::new());
    let mut packs = 0;
    for entry in std::fs::read_dir(dir.path().join("packs")).unwrap() {
        let car = std::fs::read(entry.unwrap().path()).unwrap();
        packs += 1;
        for (cid, data) in sections(&car) {
            hash::verify(&cid, data).unwrap();
            if cid.codec() == RESERVED_CODEC {
                deleted.push(data.to_vec());
            } else {
                assert!(found.insert(cid.to_bytes()), "{cid} was written twice");
            }
        }
    }
    assert!(packs > 3);
    assert!(blocks.iter().all(|block| found.contains(&block.cid().to_bytes())));
    assert_eq!(found.len(), 120);
    // One tombstone: each multihash, preceded by its length.
    let expected = blocks[..7].iter().flat_map(|block| {
        let hash = block.cid().hash().to_bytes();
        [vec![hash.len() as u8], hash].concat()
    });
    assert_eq!(deleted, [expected.collect::<Vec<_>>()]);
    store.close().await.unwrap();
}

/// Returns a leaf of `UnixFS` in dag-pb with 256 KiB of content, and the offset of the content.
fn leaf() -> (Block, usize) {
    let content = random_block(256 * 1024);
    let unixfs = [b"\x08\x02\x12\x80\x80\x10", &content.data()[..], b"\x18\x80\x80\x10"].concat();
    let node = [b"\x0a\x8a\x80\x10", &unixfs[..]].concat();
    (Block::hash(0, 0x70, HashFunction::Sha2_256, node.into()).unwrap(), 4 + 6)
}

#[tokio::test]
async fn content_of_large_blocks_begins_at_a_page_and_padding_is_no_waste() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let mut blocks: Vec<(Block, usize)> = (0..10).map(|_| leaf()).collect();
    blocks.extend((0..5).map(|_| (random_block(1024 * 1024), 0)));
    blocks.insert(3, (random_block(1_000), 0));
    for put in blocks.chunks(4) {
        let put: Vec<Block> = put.iter().map(|(block, _)| block.clone()).collect();
        put_all(&store, &put).await;
    }
    let car = || std::fs::read(dir.path().join("packs/00000001.car")).unwrap();
    let before = car();
    let aligned = blocks.iter().filter(|(block, content)| {
        let data = store_offset(&before, block) + content;
        data.is_multiple_of(4096)
    });
    assert_eq!(aligned.count(), 15, "all but the short one");
    for (cid, data) in sections(&before) {
        hash::verify(&cid, data).unwrap();
    }

    // Padding does not count as dead, before and after the index is built from the packs.
    let all = CompactOptions { min_dead_share: 0.0, ..CompactOptions::default() };
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    assert_eq!(store.compact(all).await.unwrap().packs, 0);
    store.close().await.unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    for (block, _) in &blocks {
        assert_eq!(store.require(block.cid()).await.unwrap(), block.data());
    }
    // A compaction aligns what it copies.
    store.delete_many(&cids(&[blocks[0].0.clone()])).await.unwrap();
    assert_eq!(store.compact(all).await.unwrap().packs, 1);
    let after = std::fs::read(dir.path().join("packs/00000002.car")).unwrap();
    let aligned =
        blocks[1..].iter().filter(|(block, content)| (store_offset(&after, block) + content).is_multiple_of(4096));
    assert_eq!(aligned.count(), 14);
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    store.close().await.unwrap();
}

/// Returns the offset of the data of `block` in a pack.
fn store_offset(car: &[u8], block: &Block) -> usize {
    let (_, data) = sections(car).into_iter().find(|(cid, _)| cid == block.cid()).unwrap();
    data.as_ptr() as usize - car.as_ptr() as usize
}

#[tokio::test]
async fn oversized_atomic_put_is_stored_in_one_pack() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    put_all(&store, &[random_block(40_000)]).await;
    put_all(&store, &random_blocks(6, 10_000)).await;
    let large: Vec<Block> = (0..10).map(|_| random_block(50_000)).collect();
    put_all(&store, &large).await;
    let whole = std::fs::read_dir(dir.path().join("packs")).unwrap().filter(|entry| {
        let car = std::fs::read(entry.as_ref().unwrap().path()).unwrap();
        let found: BTreeSet<_> = sections(&car).into_iter().map(|(cid, _)| cid.to_bytes()).collect();
        large.iter().all(|block| found.contains(&block.cid().to_bytes()))
    });
    assert_eq!(whole.count(), 1);
    store.close().await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_read_can_be_sent_from_the_pack() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let block = random_block(30_000);
    store.put(block.clone()).await.unwrap();
    let data = store.require(block.cid()).await.unwrap();
    let mappings = store.mappings().unwrap();
    let part = &data[1_000..20_000];
    let found = mappings.locate(part).unwrap();
    let file = std::fs::File::from(found.file.as_fd().try_clone_to_owned().unwrap());
    let mut read = vec![0; part.len()];
    file.read_exact_at(&mut read, found.offset).unwrap();
    assert_eq!(read, part);
    assert!(found.file.as_raw_fd() >= 0);
    assert!(mappings.locate(&read).is_none());
    assert!(MemoryStore::default().mappings().is_none());
    store.close().await.unwrap();
}

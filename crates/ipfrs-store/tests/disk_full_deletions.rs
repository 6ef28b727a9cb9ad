//! Deletions on a full disk, which is simulated as in `disk_full`.

use std::path::Path;

use ipfrs_core::{Block, ErrorKind, Result};
use ipfrs_store::{BlockStore, PackOptions, PackStore, PutMode};

use crate::disk_full::{assert_child_passes, limit_files_to, pack_len};
use crate::fixture::{assert_holds, assert_lacks, child_dir, cids, numbered, put_all, random_block, small_packs};
use crate::recovery::{copy_index, len, lose_index, newest, packs, store_of};

#[tokio::test]
async fn child_that_deletes_without_space_for_the_index() {
    let Some(root) = child_dir() else { return };
    let (dir, saved) = (root.join("store"), root.join("saved"));
    std::fs::create_dir_all(saved.join("index")).unwrap();
    let blocks = numbered(0..1_000);
    store_of(&dir, &blocks[..1]).await;
    copy_index(&dir, &saved);
    let open = || PackStore::open(&dir, PackOptions::default());
    let store = open().unwrap();
    put_all(&store, &blocks).await;
    store.close().await.unwrap();
    copy_index(&saved, &dir);
    // The pack can grow, but the manifest is longer.
    let bytes = pack_len(&dir) + 2_000;
    limit_files_to(Some(bytes));
    let store = open().unwrap();
    let outcomes = store.put_many(vec![random_block(10)], PutMode::Atomic).await;
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::NoSpace);
    store.delete_many(&cids(&blocks[..20])).await.unwrap();
    assert_lacks(&store, &blocks[..20]).await;
    assert_eq!(store.close().await.unwrap_err().kind(), ErrorKind::NoSpace);
    let store = open().unwrap();
    store.delete_many(&cids(&blocks[20..30])).await.unwrap();
    store.close().await.unwrap_err();
    limit_files_to(None);
    assert_deleted(open, &dir, &blocks, 30).await;
    println!("reached the end");
}

#[test]
fn deletion_does_not_wait_for_index_on_full_disk() {
    assert_child_passes("disk_full_deletions::child_that_deletes_without_space_for_the_index");
}

/// Asserts that the first `count` blocks are deleted and the others are there, with the index and without.
async fn assert_deleted(open: impl Fn() -> Result<PackStore>, dir: &Path, blocks: &[Block], count: usize) {
    for _ in 0..2 {
        let store = open().unwrap();
        assert_lacks(&store, &blocks[..count]).await;
        assert_holds(&store, &blocks[count..]).await;
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        store.close().await.unwrap();
        lose_index(dir);
    }
}

#[tokio::test]
async fn child_that_deletes_behind_a_full_pack() {
    let Some(root) = child_dir() else { return };
    let (dir, saved) = (root.join("store"), root.join("saved"));
    std::fs::create_dir_all(saved.join("index")).unwrap();
    let blocks = numbered(0..2_000);
    store_of(&dir, &blocks[..1]).await;
    copy_index(&dir, &saved);
    let open = || PackStore::open(&dir, small_packs());
    let store = open().unwrap();
    // They fill a pack of their own.
    put_all(&store, &blocks).await;
    store.close().await.unwrap();
    copy_index(&saved, &dir);
    limit_files_to(Some(len(&newest(&dir)) + 2_000));
    for part in [0..20, 20..30] {
        let store = open().unwrap();
        let outcomes = store.put_many(vec![random_block(10)], PutMode::Atomic).await;
        assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::NoSpace);
        store.delete_many(&cids(&blocks[part.clone()])).await.unwrap();
        assert_lacks(&store, &blocks[..part.end]).await;
        assert_eq!(store.close().await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(packs(&dir).len(), 3);
    }
    limit_files_to(None);
    assert_deleted(open, &dir, &blocks, 30).await;
    println!("reached the end");
}

#[test]
fn deletion_on_full_disk_begins_pack_if_newest_is_full() {
    assert_child_passes("disk_full_deletions::child_that_deletes_behind_a_full_pack");
}

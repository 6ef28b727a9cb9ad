//! Blocks that no longer match their content IDs, which only a replay meets.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use ipfrs_store::{BlockStore, PackOptions, PackStore};

use crate::fixture::{
    assert_holds, assert_lacks, cids, index_files, numbered, open_small, put_all, random_block, small_packs,
};
use crate::read_only::open_read_only;
use crate::recovery::{PREFIX, copy_index, len, lose_index, newest, overwrite, packs, store_of};

const BLOCK: u64 = 8_000;

/// Opens a store without its index, read-only and then not, and returns its losses.
async fn losses_after_rebuild(dir: &Path) -> Vec<String> {
    lose_index(dir);
    let reader = open_read_only(dir).unwrap();
    let losses = reader.losses().unwrap();
    reader.close().await.unwrap();
    let store = open_small(dir);
    assert_eq!(store.losses().unwrap(), losses);
    store.close().await.unwrap();
    losses
}

fn blocks(count: usize) -> Vec<Block> {
    (0..count).map(|_| random_block(BLOCK as usize)).collect()
}

/// Damages the data of a block of a pack.
fn hurt(pack: &Path, block: u64) {
    overwrite(pack, 18 + (PREFIX + BLOCK) * block + PREFIX + 4_000, &[0; 16]);
}

#[tokio::test]
async fn damaged_blocks_of_older_packs_are_losses_unless_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let all = blocks(20);
    store_of(dir.path(), &all).await;
    let first = packs(dir.path()).remove(0);
    hurt(&first, 2);
    hurt(&first, 4);
    let losses = losses_after_rebuild(dir.path()).await;
    let offset = 18 + (PREFIX + BLOCK) * 2;
    let expected = format!(
        "pack 1 is damaged: 2 of its sections do not match their content IDs, the first at offset {offset} (or"
    );
    assert!(losses.len() == 1 && losses[0].starts_with(&expected), "{losses:?}");
    fs::remove_file(dir.path().join("lost-blocks")).unwrap();
    // One is put again, and the other is put and deleted.
    let store = open_small(dir.path());
    put_all(&store, &[all[2].clone(), all[4].clone()]).await;
    store.delete_many(&cids(&all[4..5])).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(losses_after_rebuild(dir.path()).await, Vec::<String>::new());
    let store = open_small(dir.path());
    assert_holds(&store, &[&all[..4], &all[5..]].concat()).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn damaged_block_before_what_a_crash_may_tear_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let all = blocks(3);
    put_all(&store, &all).await;
    let large: Vec<_> = (0..33).map(|_| random_block(2 * 1024 * 1024)).collect();
    put_all(&store, &large).await;
    store.close().await.unwrap();
    hurt(&packs(dir.path())[0], 1);
    let losses = losses_after_rebuild(dir.path()).await;
    assert!(losses.len() == 1 && losses[0].starts_with("pack 1 is damaged: 1 of its sections"), "{losses:?}");
}

#[tokio::test]
async fn damaged_blocks_of_only_pack_are_losses_without_index() {
    let dir = tempfile::tempdir().unwrap();
    let all = blocks(4);
    store_of(dir.path(), &all).await;
    let pack = newest(dir.path());
    hurt(&pack, 1);
    hurt(&pack, 3);
    let damaged = fs::read(&pack).unwrap();
    let losses = losses_after_rebuild(dir.path()).await;
    let end = 18 + (PREFIX + BLOCK) * 3;
    let expected = [format!("from offset {end} on, {} bytes", PREFIX + BLOCK), "1 of its sections".to_owned()];
    for (loss, what) in losses.iter().zip(&expected) {
        assert!(loss.starts_with(&format!("pack 1 is damaged: {what}")), "{losses:?}");
    }
    assert_eq!(losses.len(), 2);
    assert_eq!(fs::read(&pack).unwrap(), damaged[..end as usize], "a block between others is kept");
    let store = open_small(dir.path());
    assert_holds(&store, &[all[0].clone(), all[2].clone()]).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn torn_block_before_sound_ones_is_no_loss_in_any_later_replay() {
    let (dir, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(saved.path().join("index")).unwrap();
    let mut all = blocks(30);
    // The shortest of the usual sections.
    all[2] = Block::hash(0, codec::DAG_PB, HashFunction::Sha2_256, Bytes::from_static(&[0x0a, 2, 8, 1])).unwrap();
    store_of(dir.path(), &all[..1]).await;
    copy_index(dir.path(), saved.path());
    let store = open_small(dir.path());
    put_all(&store, &all[1..4]).await;
    store.close().await.unwrap();
    let pack = newest(dir.path());
    let before = len(&pack);
    // As after a power failure in the middle of a put.
    hurt(&pack, 1);
    overwrite(&pack, 18 + (PREFIX + BLOCK) * 2 + 1 + 34, &[0; 4]);
    copy_index(saved.path(), dir.path());
    let reader = open_read_only(dir.path()).unwrap();
    assert_eq!(reader.losses().unwrap(), Vec::<String>::new());
    reader.close().await.unwrap();
    store_of(dir.path(), &all[4..]).await;
    assert_eq!(packs(dir.path())[0], pack);
    assert!(len(&pack) > before && packs(dir.path()).len() > 2);
    assert_eq!(losses_after_rebuild(dir.path()).await, Vec::<String>::new());
    let store = open_small(dir.path());
    assert_lacks(&store, &all[1..3]).await;
    assert_holds(&store, &[&all[..1], &all[3..]].concat()).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn loss_that_cannot_be_noted_stops_the_start() {
    for is_pack_lost in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        store_of(dir.path(), &blocks(20)).await;
        let first = packs(dir.path()).remove(0);
        match is_pack_lost {
            true => fs::remove_file(&first).unwrap(),
            false => {
                hurt(&first, 2);
                lose_index(dir.path());
            }
        }
        // No file can take the place of a directory.
        let note = dir.path().join("lost-blocks");
        fs::create_dir(&note).unwrap();
        for _ in 0..2 {
            let error = PackStore::open(dir.path(), small_packs()).unwrap_err();
            let (loss, cause) = ("blocks are lost: pack 1 ", "lost-blocks: Is a directory");
            assert!(error.message().contains(loss) && error.message().contains(cause), "{error}");
            assert!(error.message().contains("store.read_only = true"), "{error}");
        }
        fs::remove_dir(&note).unwrap();
        // The second start does not find the loss again.
        for _ in 0..2 {
            let store = open_small(dir.path());
            let losses = store.losses().unwrap();
            assert!(losses[0].starts_with("pack 1 "), "{losses:?}");
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn damaged_index_proves_lost_pack() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    put_all(&store, &numbered(0..2_500)).await;
    store.close().await.unwrap();
    fs::remove_file(packs(dir.path()).remove(0)).unwrap();
    let run = index_files(dir.path()).into_iter().find(|path| path.extension().is_some_and(|end| end == "run"));
    overwrite(&run.unwrap(), 40, &[0xff; 8]);
    for _ in 0..2 {
        let store = open_small(dir.path());
        let losses = store.losses().unwrap();
        assert!(losses.len() == 2 && losses[0].starts_with("pack 1 with "), "{losses:?}");
        assert!(losses[1].contains(" of 2500 blocks are lost"), "{losses:?}");
        store.close().await.unwrap();
    }
}

//! Stores that were damaged while they were closed, or are held by another process.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use ipfrs_core::{Block, ErrorKind};
use ipfrs_store::{BlockStore, PackOptions, PackStore, Stored};
use rand::Rng;

use crate::fixture::{
    assert_holds, assert_lacks, child_dir, cids, index_files, listed, make_unreadable, numbered, open_small, put_all,
    random_block, random_blocks, small_packs, sorted, spawn_child,
};
use crate::read_only::open_read_only;

/// Length of the prefix of a raw sha2-256 block of up to 16 KiB, in bytes: a varint of 2 and a CID of 36.
pub(crate) const PREFIX: u64 = 38;

/// Creates a store with `blocks`, put one by one, and closes it.
pub(crate) async fn store_of(dir: &Path, blocks: &[Block]) {
    let store = open_small(dir);
    for block in blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    store.close().await.unwrap();
}

pub(crate) fn packs(dir: &Path) -> Vec<PathBuf> {
    let mut packs: Vec<_> = fs::read_dir(dir.join("packs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    packs.sort();
    packs
}

pub(crate) fn newest(dir: &Path) -> PathBuf {
    packs(dir).pop().unwrap()
}

/// Overwrites bytes of a file.
pub(crate) fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

pub(crate) fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// A change that a crash may make to the newest pack.
pub(crate) type Hurt = Box<dyn Fn(&Path)>;

/// Removes the index.
pub(crate) fn lose_index(dir: &Path) {
    fs::remove_dir_all(dir.join("index")).unwrap();
}

/// Replaces the index of one store with that of another.
pub(crate) fn copy_index(from: &Path, to: &Path) {
    lose_index(to);
    fs::create_dir(to.join("index")).unwrap();
    for path in index_files(from) {
        fs::copy(&path, to.join("index").join(path.file_name().unwrap())).unwrap();
    }
}

#[tokio::test]
async fn a_store_that_was_closed_opens_with_everything_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(60, 10_000);
    store_of(dir.path(), &blocks).await;
    assert!(packs(dir.path()).len() > 2);
    let lengths: Vec<_> = packs(dir.path()).iter().map(|pack| len(pack)).collect();
    let store = open_small(dir.path());
    assert_holds(&store, &blocks).await;
    assert_eq!(put_all(&store, &blocks).await, vec![Stored::Present; blocks.len()]);
    store.close().await.unwrap();
    assert_eq!(lengths, packs(dir.path()).iter().map(|pack| len(pack)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_lost_or_damaged_index_is_rebuilt_with_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(60, 10_000);
    store_of(dir.path(), &blocks).await;
    let store = open_small(dir.path());
    let (gone, kept) = blocks.split_at(20);
    store.delete_many(&cids(gone)).await.unwrap();
    put_all(&store, &gone[..5]).await;
    let expected = (listed(&store).await, store.stats().await.unwrap());
    store.close().await.unwrap();

    let (index, manifest) = (dir.path().join("index"), dir.path().join("index/manifest"));
    let whole = fs::read(&manifest).unwrap();
    let hurts: [&dyn Fn(); 7] = [
        &|| lose_index(dir.path()),
        &|| fs::write(&manifest, b"").unwrap(),
        &|| fs::write(&manifest, b"this is not an index").unwrap(),
        &|| fs::write(&manifest, &whole[..whole.len() / 3]).unwrap(),
        &|| fs::remove_file(&manifest).unwrap(),
        &|| make_unreadable(&manifest),
        &|| {
            lose_index(dir.path());
            fs::write(&index, b"this is no directory").unwrap();
        },
    ];
    for hurt in hurts {
        hurt();
        let store = open_small(dir.path());
        let stats = store.stats().await.unwrap();
        assert_eq!(listed(&store).await, expected.0);
        assert_eq!((stats.blocks, stats.payload_bytes), (expected.1.blocks, expected.1.payload_bytes));
        assert_holds(&store, kept).await;
        assert_holds(&store, &gone[..5]).await;
        assert_lacks(&store, &gone[5..]).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn changed_index_is_rebuilt_with_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let (kept, gone) = (numbered(0..2_500), numbered(2_500..3_000));
    put_all(&store, &kept).await;
    put_all(&store, &gone).await;
    store.delete_many(&cids(&gone)).await.unwrap();
    store.close().await.unwrap();
    let names = sorted(cids(&kept));
    for round in 0..60 {
        let files = index_files(dir.path());
        assert!(files.len() > 1, "there is no run");
        let mut rng = rand::rng();
        let path = &files[rng.random_range(0..files.len())];
        let whole = fs::read(path).unwrap();
        let mut hurt = whole.clone();
        if round % 4 == 0 {
            hurt.truncate(rng.random_range(0..whole.len()));
        } else {
            for _ in 0..rng.random_range(1..20) {
                let at = rng.random_range(0..hurt.len());
                hurt[at] ^= 1 << rng.random_range(0..8);
            }
        }
        fs::write(path, hurt).unwrap();
        let store = open_small(dir.path());
        assert_eq!(listed(&store).await, names, "round {round}");
        assert_holds(&store, &kept).await;
        assert_eq!(store.stats().await.unwrap().blocks, 2_500);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_index_of_other_packs_is_rebuilt() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (blocks, others) = (random_blocks(30, 10_000), random_blocks(60, 10_000));
    store_of(dir.path(), &blocks).await;
    store_of(other.path(), &others).await;
    copy_index(other.path(), dir.path());
    let store = open_small(dir.path());
    assert_holds(&store, &blocks).await;
    assert_lacks(&store, &others).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn matching_index_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(10, 3_000);
    store_of(dir.path(), &blocks[..5]).await;
    let inode = || fs::metadata(dir.path().join("index")).unwrap().ino();
    let before = inode();
    // Packs without a block, as a full disk may leave them.
    let header = fs::read(newest(dir.path())).unwrap()[..18].to_vec();
    fs::write(dir.path().join("packs/00000002.car"), &header).unwrap();
    fs::write(dir.path().join("packs/00000003.car"), &header).unwrap();
    for put in blocks[5..].chunks(1) {
        store_of(dir.path(), put).await;
    }
    assert!(len(&newest(dir.path())) > 18);
    let store = open_small(dir.path());
    assert_holds(&store, &blocks).await;
    store.close().await.unwrap();
    assert_eq!(inode(), before);
}

#[tokio::test]
async fn garbage_after_the_end_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(3, 10_000);
    store_of(dir.path(), &blocks).await;
    let pack = newest(dir.path());
    let whole = len(&pack);
    for garbage in [vec![0; 100_000], vec![0xff; 3], random_block(50_000).data().to_vec()] {
        overwrite(&pack, whole, &garbage);
        let store = open_small(dir.path());
        assert_eq!(len(&pack), whole);
        assert_holds(&store, &blocks).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn rebuild_skips_damaged_block_and_keeps_later_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let blocks: Vec<_> = (0..20).map(|_| random_block(8_000)).collect();
    store_of(dir.path(), &blocks).await;
    let first = packs(dir.path()).remove(0);
    let before = len(&first);
    overwrite(&first, 18 + (PREFIX + 8_000) * 2 + PREFIX + 4_000, &[0; 16]);
    lose_index(dir.path());
    let store = open_small(dir.path());
    assert_lacks(&store, &blocks[2..3]).await;
    assert_holds(&store, &[&blocks[..2], &blocks[3..]].concat()).await;
    assert_eq!(len(&first), before);

    assert_eq!(put_all(&store, &blocks[2..3]).await, [Stored::New]);
    assert_holds(&store, &blocks).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_length_loses_no_other_block() {
    // A byte, and sectors.
    let hurts = [&[0xff][..], &[0; 1_024]];
    for (newest_only, hurt) in [false, true].into_iter().flat_map(|newest_only| hurts.map(|hurt| (newest_only, hurt))) {
        let dir = tempfile::tempdir().unwrap();
        let blocks: Vec<_> = (0..20).map(|_| random_block(8_000)).collect();
        // One pack, and several.
        let options = if newest_only { PackOptions::default() } else { small_packs() };
        let store = PackStore::open(dir.path(), options.clone()).unwrap();
        put_all(&store, &blocks).await;
        store.delete_many(&cids(&blocks[..1])).await.unwrap();
        store.close().await.unwrap();
        let first = packs(dir.path()).remove(0);
        let before = len(&first);
        overwrite(&first, 18 + (PREFIX + 8_000) * 2, hurt);
        lose_index(dir.path());
        let reader = open_read_only(dir.path()).unwrap();
        let found = reader.losses().unwrap();
        assert!(!found.is_empty(), "newest only: {newest_only}");
        reader.close().await.unwrap();
        for _ in 0..2 {
            let store = PackStore::open(dir.path(), options.clone()).unwrap();
            assert_eq!(store.losses().unwrap(), found);
            assert_lacks(&store, &blocks[2..3]).await;
            assert_holds(&store, &[&blocks[1..2], &blocks[3..]].concat()).await;
            assert_eq!(len(&first), before, "nothing is cut off");
            store.close().await.unwrap();
        }
        let store = PackStore::open(dir.path(), options).unwrap();
        assert_eq!(put_all(&store, &blocks[2..3]).await, [Stored::New]);
        assert_holds(&store, &blocks[1..]).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn get_many_continues_after_unreadable_block() {
    let dir = tempfile::tempdir().unwrap();
    // More blocks than are looked up at once.
    let blocks: Vec<_> = (0..300).map(|_| random_block(100)).collect();
    let options = PackOptions::default();
    let store = PackStore::open(dir.path(), options.clone()).unwrap();
    put_all(&store, &blocks).await;
    store.close().await.unwrap();
    let hurt = [0, 5, 127, 128, 299];
    for number in hurt {
        // Damages the end of the digest.
        overwrite(&newest(dir.path()), 18 + (PREFIX + 100) * number + PREFIX - 8, &[0; 8]);
    }

    let store = PackStore::open(dir.path(), options).unwrap();
    // First with lookups from the index, then from the cache.
    for _ in 0..2 {
        let found: Vec<_> = store.get_many(cids(&blocks)).collect().await;
        assert_eq!(found.len(), blocks.len());
        for ((number, block), item) in (0..).zip(&blocks).zip(found) {
            match item {
                Ok(item) if !hurt.contains(&number) => {
                    assert_eq!(item, (*block.cid(), Some(block.data().clone())));
                }
                item => assert_eq!(item.unwrap_err().kind(), ErrorKind::Corrupt, "{number}"),
            }
        }
    }
    store.close().await.unwrap();
    let found: Vec<_> = store.get_many(cids(&blocks)).collect().await;
    assert_eq!(found.len(), blocks.len());
    assert!(found.into_iter().all(|item| item.unwrap_err().kind() == ErrorKind::Unavailable));
}

#[tokio::test]
async fn damage_not_from_crash_is_kept_and_not_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let options = PackOptions::default();
    let blocks: Vec<_> = (0..36).map(|_| random_block(2 * 1024 * 1024)).collect();
    let store = PackStore::open(dir.path(), options.clone()).unwrap();
    put_all(&store, &blocks).await;
    store.close().await.unwrap();
    let pack = newest(dir.path());
    let whole = len(&pack);
    // Damages the length of the section after the first block, which begins at a page, so that no later section can be
    // found.
    overwrite(&pack, 4096 + 2 * 1024 * 1024, &[0; 4]);

    for _ in 0..2 {
        lose_index(dir.path());
        let store = PackStore::open(dir.path(), options.clone()).unwrap();
        assert_holds(&store, &blocks[..1]).await;
        put_all(&store, &blocks[1..3]).await;
        store.close().await.unwrap();
        assert_eq!(len(&pack), whole);
        assert_eq!(packs(dir.path()).len(), 2);
    }
    lose_index(dir.path());
    let store = PackStore::open(dir.path(), options).unwrap();
    assert_holds(&store, &blocks[..3]).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_pack_whose_creation_was_cut_off_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(3, 10_000);
    store_of(dir.path(), &blocks).await;
    let next = dir.path().join("packs/00000002.car");
    for header in [b"".as_slice(), &[0x11, 0xa2], &[0; 18]] {
        fs::write(&next, header).unwrap();
        let store = open_small(dir.path());
        assert!(!next.exists());
        assert_holds(&store, &blocks).await;
        store.close().await.unwrap();
    }
    fs::write(&next, [0xff; 100]).unwrap();
    let error = PackStore::open(dir.path(), small_packs()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("00000002.car"), "{error}");
}

#[tokio::test]
async fn open_failure_names_the_cause() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = |path: &Path, options: PackOptions| PackStore::open(path, options).unwrap_err();
    for below in [file.clone(), file.join("store")] {
        let error = refused(&below, small_packs());
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.message().contains("file, on the path of the block store, is not a directory"), "{error}");
    }
    let error = refused(dir.path(), PackOptions { pack_bytes: 1_000, ..small_packs() });
    assert_eq!(error.kind(), ErrorKind::InvalidInput);

    fs::write(dir.path().join("version"), "2\n").unwrap();
    let error = refused(dir.path(), small_packs());
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("format 2"), "{error}");
    for unknown in [&b"what?"[..], b"\xff1"] {
        fs::write(dir.path().join("version"), unknown).unwrap();
        let error = refused(dir.path(), small_packs());
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains("is this the right directory?"), "{error}");
    }
    fs::write(dir.path().join("version"), "").unwrap();
    open_small(dir.path()).close().await.unwrap();
    open_small(&dir.path().join("several/directories/deep")).close().await.unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("version")).unwrap(), "1\n");
}

/// Holds a store until the process is killed.
#[tokio::test]
async fn child_that_holds_the_store() {
    let Some(dir) = child_dir() else { return };
    let options = PackOptions { holder: "a patient child".to_owned(), ..small_packs() };
    let _store = PackStore::open(&dir, options).unwrap();
    println!("\nopen");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_second_process_learns_who_holds_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn_child("recovery::child_that_holds_the_store", dir.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"));
    let error = PackStore::open(dir.path(), small_packs()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let who = format!("process {} (a patient child)", child.id());
    assert!(error.message().contains(&who), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    open_small(dir.path()).close().await.unwrap();
}

#[tokio::test]
async fn closed_store_returns_unavailable_and_keeps_bytes_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let block = random_block(10_000);
    let store = open_small(dir.path());
    let other_handle = store.clone();
    put_all(&store, std::slice::from_ref(&block)).await;
    let held = store.get(block.cid()).await.unwrap().unwrap();
    assert_eq!(PackStore::open(dir.path(), small_packs()).unwrap_err().kind(), ErrorKind::Conflict);
    store.close().await.unwrap();
    store.close().await.unwrap();

    assert_eq!(other_handle.get(block.cid()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(other_handle.flush().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let outcomes = other_handle.put_many(vec![random_block(10)], ipfrs_store::PutMode::Atomic).await;
    assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    let again = open_small(dir.path());
    put_all(&again, &random_blocks(20, 10_000)).await;
    assert_eq!(held, block.data());
    assert_eq!(listed(&again).await.len(), 21);
    assert!(listed(&again).await.contains(&sorted(vec![*block.cid()])[0]));
    again.close().await.unwrap();
}

#[tokio::test]
async fn the_index_of_an_earlier_version_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = random_blocks(20, 3_000);
    store_of(dir.path(), &blocks).await;
    lose_index(dir.path());
    let old = dir.path().join("index.redb");
    fs::write(&old, "redb and much else").unwrap();
    let store = open_small(dir.path());
    assert_holds(&store, &blocks).await;
    assert!(!old.exists());
    store.close().await.unwrap();
}

#[tokio::test]
async fn large_index_survives_reopen_and_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let blocks = numbered(0..30_000);
    // Runs of some thousand entries, which are merged meanwhile.
    for part in blocks.chunks(3_000) {
        put_all(&store, part).await;
        store.flush().await.unwrap();
    }
    let (gone, kept) = blocks.split_at(9_000);
    store.delete_many(&cids(gone)).await.unwrap();
    store.close().await.unwrap();
    for lose in [false, true] {
        if lose {
            lose_index(dir.path());
        }
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        assert_eq!(listed(&store).await, sorted(cids(kept)));
        assert_holds(&store, kept).await;
        assert_eq!(store.has_many(&cids(gone)).await.unwrap(), vec![None; gone.len()]);
        assert_eq!(store.stats().await.unwrap().blocks, kept.len() as u64);
        store.close().await.unwrap();
    }
}

//! Stores opened read-only: nothing on the disk changes, whatever its state.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipfrs_core::{Block, ErrorKind};
use ipfrs_store::{BlockStore, BlockStoreExt, CompactOptions, PackOptions, PackStore};

use crate::fixture::{assert_holds, assert_lacks, cids, listed, open_small, put_all, random_block, random_blocks};

pub(crate) fn open_read_only(dir: &Path) -> ipfrs_core::Result<PackStore> {
    PackStore::open(dir, PackOptions { read_only: true, ..PackOptions::default() })
}

/// Returns every file below `dir` with its content and its timestamps.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        if metadata.is_dir() {
            files.extend(snapshot(&path));
        }
        let content = if metadata.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        files.insert(path, (content, metadata.mtime_nsec(), metadata.ctime_nsec()));
    }
    files
}

fn copy(from: &Path, to: &Path) {
    for directory in ["packs", "index"] {
        fs::create_dir_all(to.join(directory)).unwrap();
    }
    for path in snapshot(from).into_keys().filter(|path| path.is_file()) {
        fs::copy(&path, to.join(path.strip_prefix(from).unwrap())).unwrap();
    }
}

/// Returns stores of the same blocks in all states that a crash may leave, the blocks that were kept, and those that
/// were deleted.
async fn stores() -> (Vec<tempfile::TempDir>, Vec<Block>, Vec<Block>) {
    let dirs: Vec<_> = (0..5).map(|_| tempfile::tempdir().unwrap()).collect();
    let [closed, lost, damaged, behind, torn] = [0, 1, 2, 3, 4].map(|n| dirs[n].path());
    let (mut kept, gone) = (random_blocks(40, 10_000), random_blocks(10, 10_000));
    let store = open_small(behind);
    put_all(&store, &kept).await;
    put_all(&store, &gone).await;
    store.flush().await.unwrap();
    store.delete_many(&cids(&gone)).await.unwrap();
    let last = random_block(3_000);
    put_all(&store, std::slice::from_ref(&last)).await;
    kept.push(last);
    // The state after a crash: the index covers neither the deletions nor the last block.
    copy(behind, torn);
    store.close().await.unwrap();
    copy(behind, closed);
    copy(behind, lost);
    copy(behind, damaged);
    copy(torn, behind);
    fs::remove_dir_all(lost.join("index")).unwrap();
    fs::write(damaged.join("index/manifest"), "this is not an index").unwrap();
    let newest = snapshot(&torn.join("packs")).into_keys().next_back().unwrap();
    OpenOptions::new().append(true).open(newest).unwrap().write_all(&[0x91; 500]).unwrap();
    fs::write(torn.join("packs/00000099.car"), "\x11\u{1}").unwrap();
    (dirs, kept, gone)
}

#[tokio::test]
async fn read_only_store_reads_all_blocks_and_changes_nothing() {
    let (dirs, kept, gone) = stores().await;
    let mut lists = Vec::new();
    for dir in &dirs {
        let before = snapshot(dir.path());
        let store = open_read_only(dir.path()).unwrap();
        assert_holds(&store, &kept).await;
        assert_lacks(&store, &gone).await;
        assert_eq!(store.stats().await.unwrap().blocks, kept.len() as u64);
        lists.push(listed(&store).await);
        store.check().unwrap();
        let forbidden = [
            store.put(random_block(10)).await.unwrap_err(),
            store.put(kept[0].clone()).await.unwrap_err(),
            store.delete_many(&cids(&kept[..1])).await.unwrap_err(),
            store.compact(CompactOptions::default()).await.unwrap_err(),
        ];
        for error in forbidden {
            assert_eq!(error.kind(), ErrorKind::Forbidden, "{error}");
            assert!(error.to_string().contains("store.read_only"), "{error}");
        }
        store.flush().await.unwrap();
        assert_holds(&store, &kept).await;
        store.close().await.unwrap();
        assert!(snapshot(dir.path()) == before);
    }
    assert!(lists.iter().all(|list| *list == lists[0]));
}

#[tokio::test]
async fn readers_share_a_store_that_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let block = random_block(100);
    let writer = open_small(dir.path());
    put_all(&writer, std::slice::from_ref(&block)).await;
    let refused = open_read_only(dir.path()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("already open in this process"), "{refused}");
    writer.close().await.unwrap();

    let (first, second) = (open_read_only(dir.path()).unwrap(), open_read_only(dir.path()).unwrap());
    for store in [&first, &second] {
        assert_holds(store, std::slice::from_ref(&block)).await;
    }
    first.close().await.unwrap();
    let refused = PackStore::open(dir.path(), PackOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.to_string().contains("already open read-only in this process"), "{refused}");
    second.close().await.unwrap();
    assert_eq!(second.get(block.cid()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    open_small(dir.path()).close().await.unwrap();
}

#[test]
fn read_only_open_does_not_create_store() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("none")] {
        let error = open_read_only(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert!(snapshot(dir.path()).is_empty());
}

#[tokio::test]
async fn unwritable_directory_is_rejected_but_opens_read_only() {
    // Permissions do not restrict root.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let block = random_block(100);
    let store = open_small(dir.path());
    put_all(&store, std::slice::from_ref(&block)).await;
    store.close().await.unwrap();
    fs::remove_file(dir.path().join("lock")).unwrap();
    let allow = |mode| {
        for path in snapshot(dir.path()).into_keys().chain([dir.path().to_owned()]) {
            let mode = if path.is_dir() { mode | 0o111 } else { mode };
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    allow(0o444);
    let error = PackStore::open(dir.path(), PackOptions::default()).unwrap_err();
    assert!(error.to_string().contains("store.read_only = true"), "{error}");
    let store = open_read_only(dir.path()).unwrap();
    assert_holds(&store, &[block]).await;
    store.close().await.unwrap();
    allow(0o644);
}

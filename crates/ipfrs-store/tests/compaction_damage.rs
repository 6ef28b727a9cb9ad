//! Compaction of packs that are damaged, and removals of packs that were interrupted.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ipfrs_store::BlockStore;

use crate::compaction::{ALL, pack, packs, reopen_without_index};
use crate::fixture::{USUAL, assert_holds, assert_lacks, cids, open_small, put_all, random_block};

#[tokio::test]
async fn pack_with_unattributable_damage_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks: Vec<_> = (0..40).map(|_| random_block(6_000)).collect();
    for part in blocks.chunks(10) {
        put_all(&store, part).await;
    }
    store.delete_many(&cids(&blocks[..38])).await.unwrap();
    store.flush().await.unwrap();
    let section = 6_038;
    let overwrite = |number, offset, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        fs::OpenOptions::new().write(true).open(pack(dir.path(), number)).unwrap().write_all_at(bytes, offset).unwrap();
    };
    // Damages the data of a dead block, as a power failure would; the CID of the fourth section; and the framing of
    // the sixth.
    overwrite(3, 18 + 3 * section + 3_000, &[0; 3_000]);
    overwrite(1, 18 + 3 * section + 2, &[0; 8]);
    overwrite(2, 18 + 5 * section, &[0; 2]);
    let before = packs(dir.path());
    let compacted = store.compact(ALL).await.unwrap();
    let damaged: Vec<_> = compacted.damaged.iter().map(|damaged| (damaged.path.clone(), damaged.offset)).collect();
    let expected = [(pack(dir.path(), 1), 18 + 3 * section), (pack(dir.path(), 2), 18 + 5 * section)];
    assert_eq!(damaged, expected);
    assert!(!pack(dir.path(), 3).exists());
    for path in damaged.iter().map(|(path, _)| path) {
        assert_eq!(fs::metadata(path).unwrap().len(), before[path]);
    }
    assert_holds(&store, &blocks[38..]).await;
    // Dead blocks in damaged packs must stay dead.
    let store = reopen_without_index(store, dir.path()).await;
    assert_lacks(&store, &blocks[..38]).await;
    assert_holds(&store, &blocks[38..]).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_block_that_is_alive_and_damaged_keeps_its_pack() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks: Vec<_> = (0..4).map(|_| random_block(6_000)).collect();
    put_all(&store, &blocks).await;
    store.delete_many(&cids(&blocks[..2])).await.unwrap();
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(pack(dir.path(), 1)).unwrap();
    file.write_all_at(&[0; 8], 18 + 2 * 6_038 + 3_000).unwrap();
    let compacted = store.compact(ALL).await.unwrap();
    let [damaged] = &compacted.damaged[..] else { panic!("{compacted:?}") };
    assert_eq!(damaged.offset, 18 + 2 * 6_038);
    assert!(damaged.reason.contains("does not match"), "{compacted:?}");
    assert!(pack(dir.path(), 1).exists());
    store.close().await.unwrap();
}

#[tokio::test]
async fn interrupted_pack_removal_is_completed_or_undone() {
    let dir = tempfile::tempdir().unwrap();
    let inode = || fs::metadata(dir.path().join("index")).unwrap().ino();
    let mut store = open_small(dir.path());
    let blocks: Vec<_> = (0..40).map(|_| random_block(6_000)).collect();
    for part in blocks.chunks(10) {
        put_all(&store, part).await;
    }
    let (gone, kept) = blocks.split_at(15);
    store.delete_many(&cids(gone)).await.unwrap();
    store.close().await.unwrap();

    // Crash after the file was removed, but before the index was updated: the index does not need the empty pack.
    let before = inode();
    let first = fs::read(pack(dir.path(), 1)).unwrap();
    fs::remove_file(pack(dir.path(), 1)).unwrap();
    store = open_small(dir.path());
    assert_holds(&store, kept).await;
    assert_lacks(&store, gone).await;
    store.close().await.unwrap();
    assert_eq!(inode(), before);

    // The removal itself was lost: the content is the same with and without the pack.
    for lose_index in [false, true] {
        fs::write(pack(dir.path(), 1), &first).unwrap();
        let second = fs::read(pack(dir.path(), 2)).unwrap();
        store = open_small(dir.path());
        assert_lacks(&store, gone).await;
        let compacted = store.compact(USUAL).await.unwrap();
        assert!(compacted.packs >= 1, "{compacted:?}");
        store.close().await.unwrap();
        fs::write(pack(dir.path(), 2), second).unwrap();
        if lose_index {
            fs::remove_dir_all(dir.path().join("index")).unwrap();
        }
        store = open_small(dir.path());
        assert_holds(&store, kept).await;
        assert_lacks(&store, gone).await;
        assert_eq!(store.stats().await.unwrap().blocks, kept.len() as u64);
        store.close().await.unwrap();
    }
}

//! Packs that another program truncates or changes while the store is open, and packs that the disk cannot read.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Block, ErrorKind};
use ipfrs_store::{BlockStore, BlockStoreExt, PackOptions, PackStore, Stored};

use crate::fixture::{
    assert_holds, assert_lacks, block, cids, make_unreadable, open_small, put_all, random_block, random_blocks,
    small_packs,
};

fn truncate(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn pack(dir: &Path, number: u32) -> std::path::PathBuf {
    dir.join(format!("packs/{number:08}.car"))
}

/// Reads each block, and asserts that an error names its pack. Returns `None` for an error.
async fn read(store: &PackStore, blocks: &[Block], pack: &Path) -> Vec<Option<Bytes>> {
    let mut single = Vec::new();
    for block in blocks {
        single.push(expect_corrupt(store.get(block.cid()).await.map(Option::unwrap), pack));
    }
    let many = store.get_many(cids(blocks)).map(|item| expect_corrupt(item.map(|(_, data)| data.unwrap()), pack));
    assert_eq!(many.collect::<Vec<_>>().await, single);
    single
}

fn expect_corrupt(read: ipfrs_core::Result<Bytes>, pack: &Path) -> Option<Bytes> {
    match read {
        Ok(data) => Some(data),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(pack.to_str().unwrap()), "{error}");
            None
        }
    }
}

#[tokio::test]
async fn truncation_while_reading_slices_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    let blocks = vec![block(vec![7; 1 << 20]); 1].into_iter().chain((0..15).map(|_| random_block(1 << 20)));
    let blocks: Vec<_> = blocks.collect();
    put_all(&store, &blocks).await;
    let mut slices = Vec::new();
    for block in &blocks {
        slices.push(store.get(block.cid()).await.unwrap().unwrap());
    }
    let mappings = store.mappings().unwrap();
    let (faults, epoch) = (mappings.faults(), store.epoch());
    assert_eq!(faults, 0);

    let is_truncated = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (mappings, blocks, slices, is_truncated) = (&mappings, &blocks, &slices, &is_truncated);
            scope.spawn(move || {
                // Reads every page of every slice, from before the truncation until after it.
                let mut rounds_after = 0;
                while rounds_after < 2 {
                    rounds_after += usize::from(is_truncated.load(Ordering::SeqCst));
                    for turn in 0..blocks.len() {
                        let place = (turn * 7 + reader * 5) % blocks.len();
                        let copy = Bytes::copy_from_slice(&slices[place]);
                        assert!(copy == blocks[place].data() || mappings.faults() > faults, "unnoticed");
                    }
                }
            });
        }
        // In many steps, each at the start of a page: a truncation within a page raises no signal.
        for pages in (0..2_048_u64).rev().step_by(16) {
            truncate(&pack(dir.path(), 1), pages * 4_096);
        }
        is_truncated.store(true, Ordering::SeqCst);
    });
    assert!(mappings.faults() > faults);
    assert_ne!(store.epoch(), epoch);
    assert_eq!(read(&store, &blocks, &pack(dir.path(), 1)).await, vec![None; blocks.len()]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn truncated_pack_keeps_remaining_blocks_and_store_usable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks = random_blocks(60, 10_000);
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    let first = pack(dir.path(), 1);
    let before = store.epoch();
    // Truncates within a page, which raises no signal, and within a block.
    let len = std::fs::metadata(&first).unwrap().len();
    truncate(&first, len - 1);
    let found = read(&store, &blocks, &first).await;
    let lost = found.iter().filter(|data| data.is_none()).count();
    assert_eq!(lost, 1);
    assert!(blocks.iter().zip(&found).all(|(block, data)| data.as_ref().is_none_or(|data| data == block.data())));
    assert_ne!(store.epoch(), before);
    // Verified blocks are copies: the store returns no more slices of that pack.
    let mappings = store.mappings().unwrap();
    assert!(mappings.locate(found[0].as_ref().unwrap()).is_none());
    assert!(mappings.locate(found.last().unwrap().as_ref().unwrap()).is_some());

    let mut more = random_blocks(20, 10_000);
    put_all(&store, &more).await;
    store.check().unwrap();
    // A readable block of that pack is written again as well, like one that is lost.
    assert_eq!(put_all(&store, &blocks[..1]).await, [Stored::New]);
    assert_eq!(put_all(&store, &blocks[59..]).await, [Stored::Present]);
    let data = store.get(blocks[0].cid()).await.unwrap().unwrap();
    assert!(mappings.locate(&data).is_some());
    more.push(blocks[0].clone());
    store.close().await.unwrap();
    let store = open_small(dir.path());
    let (lost, kept): (Vec<_>, Vec<_>) = blocks.iter().zip(&found).partition(|(_, data)| data.is_none());
    let blocks = |pairs: Vec<(&Block, _)>| pairs.into_iter().map(|(block, _)| block.clone()).collect::<Vec<_>>();
    assert_lacks(&store, &blocks(lost)).await;
    assert_holds(&store, &[blocks(kept), more].concat()).await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn pack_changed_by_other_process_is_not_appended_to() {
    for change in [-3_000_i64, -1, 1] {
        let dir = tempfile::tempdir().unwrap();
        let store = open_small(dir.path());
        let kept: Vec<_> = (0..3).map(|_| random_block(4_000)).collect();
        put_all(&store, &kept).await;
        let last = random_block(2_000);
        put_all(&store, std::slice::from_ref(&last)).await;
        let path = pack(dir.path(), 1);
        let changed = std::fs::metadata(&path).unwrap().len().checked_add_signed(change).unwrap();
        truncate(&path, changed);
        for _ in 0..2 {
            let refused = store.put(random_block(100)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        }
        assert!(store.check().is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), changed);
        assert_holds(&store, &kept[..2]).await;
        drop(store.close().await);
        let store = open_small(dir.path());
        assert_holds(&store, &kept[..2]).await;
        put_all(&store, &[last]).await;
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn verifying_store_never_returns_changed_bytes() {
    use std::os::unix::fs::FileExt;

    let dir = tempfile::tempdir().unwrap();
    let options = PackOptions { verify_on_read: true, ..PackOptions::default() };
    let store = PackStore::open(dir.path(), options).unwrap();
    let blocks = random_blocks(6, 10_000);
    put_all(&store, &blocks).await;
    assert_holds(&store, &blocks).await;
    let held = store.get(blocks[2].cid()).await.unwrap().unwrap();
    assert!(store.mappings().is_none());

    let path = pack(dir.path(), 1);
    let content = std::fs::read(&path).unwrap();
    let data = blocks[2].data();
    let at = content.windows(data.len()).position(|window| window == data).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    // In the data, and in the content ID before it.
    for at in [at + data.len() / 2, at - 1] {
        file.write_all_at(&[!content[at]], at as u64).unwrap();
        let found = read(&store, &blocks, &path).await;
        assert_eq!(found.iter().position(Option::is_none), Some(2));
        assert_eq!(found.iter().flatten().count(), 5);
        let error = store.get(blocks[2].cid()).await.unwrap_err();
        assert!(error.to_string().contains(&blocks[2].cid().to_string()), "{error}");
        file.write_all_at(&[content[at]], at as u64).unwrap();
        assert_holds(&store, &blocks).await;
    }
    assert_eq!(held, data);
    store.close().await.unwrap();
}

#[tokio::test]
async fn unreadable_pack_is_an_error_and_stays_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, blocks) = (open_small(dir.path()), random_blocks(60, 10_000));
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    store.close().await.unwrap();
    // The first pack, and the pack that is appended to.
    let newest = std::fs::read_dir(dir.path().join("packs")).unwrap().count() as u32;
    for path in [1, newest].map(|number| pack(dir.path(), number)) {
        let whole = std::fs::read(&path).unwrap();
        make_unreadable(&path);
        for _ in 0..2 {
            let error = PackStore::open(dir.path(), small_packs()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
            assert!(error.message().contains("os error 5"), "{error}");
        }
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, whole).unwrap();
    }
    let store = open_small(dir.path());
    assert_holds(&store, &blocks).await;
    store.close().await.unwrap();
}

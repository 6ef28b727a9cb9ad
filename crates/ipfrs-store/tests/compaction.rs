//! Compaction reclaims disk space and leaves the content unchanged.

use std::collections::BTreeMap;
use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::hash::{self, HashFunction};
use ipfrs_core::{Block, Cid, ErrorKind, Multihash, new_cid};
use ipfrs_store::{
    BlockStore, BlockStoreExt, CompactOptions, Compacted, DropStale, Footprint, PackOptions, PackStore, Provenance,
    RESERVED_CODEC,
};

use crate::fixture::{
    USUAL, assert_holds, assert_lacks, block, cids, index_bytes, listed, numbered, open_small, put_all, random_block,
    random_blocks, small_packs, sorted,
};
use crate::layout::sections;

pub(crate) const ALL: CompactOptions = CompactOptions::from_share(0.0);

/// Returns the packs of a store with their lengths.
pub(crate) fn packs(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = fs::read_dir(dir.join("packs")).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
}

pub(crate) fn pack(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("packs/{number:08}.car"))
}

/// Returns the length of all files of the store.
fn disk_bytes(dir: &Path) -> u64 {
    packs(dir).values().sum::<u64>() + index_bytes(dir)
}

/// Returns the bytes allocated for packs of a store, including removed packs that are still open.
fn allocated_bytes(dir: &Path) -> u64 {
    let named: u64 = packs(dir).keys().map(|path| fs::metadata(path).unwrap().blocks() * 512).sum();
    named + removed_and_open(dir).iter().map(|fd| fs::metadata(fd).unwrap().blocks() * 512).sum::<u64>()
}

/// Returns the descriptors of this process that refer to removed files of a store.
fn removed_and_open(dir: &Path) -> Vec<PathBuf> {
    let fds = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    let is_removed = |fd: &PathBuf| {
        let target = fs::read_link(fd).unwrap_or_default();
        target.starts_with(dir) && target.to_string_lossy().ends_with("(deleted)")
    };
    fds.filter(is_removed).collect()
}

/// Closes the store, removes its index and opens it again.
pub(crate) async fn reopen_without_index(store: PackStore, dir: &Path) -> PackStore {
    store.close().await.unwrap();
    fs::remove_dir_all(dir.join("index")).unwrap();
    open_small(dir)
}

/// Returns the CIDs of the blocks in all packs, and the number of multihashes in their tombstones, with duplicates.
fn written(dir: &Path) -> (Vec<Cid>, usize) {
    let (mut blocks, mut tombstones) = (Vec::new(), 0);
    for path in packs(dir).keys() {
        let car = fs::read(path).unwrap();
        for (cid, data) in sections(&car) {
            hash::verify(&cid, data).unwrap();
            match cid.codec() {
                // Each entry has one byte of length, two bytes of code and size, and a digest of 32 bytes.
                RESERVED_CODEC => tombstones += data.len() / 35,
                _ => blocks.push(cid),
            }
        }
    }
    (blocks, tombstones)
}

#[tokio::test]
async fn compaction_frees_space_of_deleted_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks = random_blocks(300, 10_000);
    for part in blocks.chunks(10) {
        put_all(&store, part).await;
    }
    assert_eq!(store.compact(ALL).await.unwrap(), Compacted::default(), "nothing is dead");
    // Every pack loses some blocks, and some packs lose all.
    let is_kept = |number: usize| number >= 100 && number.is_multiple_of(3);
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (number, block) in blocks.iter().enumerate() {
        if is_kept(number) { kept.push(block.clone()) } else { gone.push(block.clone()) }
    }
    store.delete_many(&cids(&gone)).await.unwrap();
    let (before, stats) = (packs(dir.path()), store.stats().await.unwrap());
    let allocated_before = allocated_bytes(dir.path());
    let gone_bytes: u64 = gone.iter().map(|block| block.data().len() as u64).sum();
    assert!(stats.dead_bytes >= gone_bytes, "{stats:?}");

    let epoch = store.epoch();
    let compacted = store.compact(ALL).await.unwrap();
    assert_eq!(compacted.packs, before.len() as u64);
    assert!(before.keys().all(|path| !path.exists()));
    assert_ne!(store.epoch(), epoch);
    let after = store.stats().await.unwrap();
    assert_eq!(after.dead_bytes, 0);
    assert_eq!(after.disk_bytes, disk_bytes(dir.path()));
    assert_eq!(compacted.freed_bytes, allocated_before - allocated_bytes(dir.path()));
    assert!(compacted.freed_bytes >= gone_bytes);
    let (in_packs, tombstones) = written(dir.path());
    assert_eq!((sorted(in_packs), tombstones), (sorted(cids(&kept)), 0));
    assert_eq!(store.compact(ALL).await.unwrap(), Compacted::default(), "nothing is left to do");

    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    let store = reopen_without_index(store, dir.path()).await;
    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    store.close().await.unwrap();
}

#[tokio::test]
async fn compaction_frees_removed_packs_unless_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions { pack_bytes: 1 << 22, ..PackOptions::default() }).unwrap();
    let blocks: Vec<_> = (0..4).map(|_| random_block(1 << 21)).collect();
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    let is_read = store.require(blocks[1].cid()).await.unwrap();

    store.delete_many(&cids(&blocks)).await.unwrap();
    let before = allocated_bytes(dir.path());
    let compacted = store.compact(ALL).await.unwrap();
    let [removed] = &removed_and_open(dir.path())[..] else { panic!("one pack is read") };
    let held = fs::metadata(removed).unwrap().blocks() * 512;
    assert!(held > 1 << 21);
    assert_eq!(compacted.freed_bytes, before - allocated_bytes(dir.path()), "what is read is not freed");
    assert_eq!(store.stats().await.unwrap().disk_bytes, disk_bytes(dir.path()) + held);
    assert_eq!(is_read, *blocks[1].data());

    drop(is_read);
    // Compaction waits until removed files are closed.
    store.compact(ALL).await.unwrap();
    assert_eq!(removed_and_open(dir.path()), Vec::<PathBuf>::new());
    assert_eq!(store.stats().await.unwrap().disk_bytes, disk_bytes(dir.path()));
    store.close().await.unwrap();
}

/// Slices of blocks, held like the caches of a daemon hold them.
struct Slices(Mutex<Vec<Bytes>>);

impl DropStale for Slices {
    fn drop_stale(&self) {
        self.0.lock().unwrap().clear();
    }
}

#[tokio::test]
async fn compaction_has_caches_drop_slices_before_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), PackOptions { pack_bytes: 1 << 22, ..PackOptions::default() }).unwrap();
    let slices = Arc::new(Slices(Mutex::default()));
    let watching: Weak<Slices> = Arc::downgrade(&slices);
    store.watch(watching);
    // Two blocks in each pack, one of which is deleted. The other is moved.
    let blocks: Vec<_> = (0..8).map(|_| random_block(3 << 19)).collect();
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
        let slice = store.require(block.cid()).await.unwrap();
        slices.0.lock().unwrap().push(slice);
    }
    let gone: Vec<_> = blocks.iter().step_by(2).cloned().collect();
    store.delete_many(&cids(&gone)).await.unwrap();
    let before = allocated_bytes(dir.path());
    let compacted = store.compact(USUAL).await.unwrap();
    assert_eq!((compacted.packs, removed_and_open(dir.path())), (4, Vec::new()));
    assert_eq!(compacted.freed_bytes, before - allocated_bytes(dir.path()));
    assert!(compacted.freed_bytes > 4 * (3 << 19) - 100_000, "{compacted:?}");
    store.close().await.unwrap();
}

#[tokio::test]
async fn bytes_outlive_store_and_later_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let block = random_block(1 << 21);
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    put_all(&store, std::slice::from_ref(&block)).await;
    let read = store.require(block.cid()).await.unwrap();
    store.close().await.unwrap();

    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    store.delete_many(&[*block.cid()]).await.unwrap();
    assert_eq!(store.compact(ALL).await.unwrap().packs, 1);
    assert_eq!(read, *block.data());
    store.close().await.unwrap();
}

#[tokio::test]
pub(crate) async fn packs_below_dead_share_are_not_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks: Vec<_> = (0..20).map(|_| random_block(30_000)).collect();
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    // Two blocks per pack: half of the second pack and all of the fourth are deleted.
    store.delete_many(&cids(&[&blocks[2..3], &blocks[6..8]].concat())).await.unwrap();
    let compacted = store.compact(CompactOptions::from_share(0.6)).await.unwrap();
    assert_eq!((compacted.packs, compacted.moved_bytes), (1, 0));
    assert!(!pack(dir.path(), 4).exists());
    assert!(pack(dir.path(), 2).exists());
    let compacted = store.compact(USUAL).await.unwrap();
    assert_eq!((compacted.packs, compacted.moved_bytes), (1, 30_039));
    assert!(!pack(dir.path(), 2).exists());
    assert!(pack(dir.path(), 1).exists() && pack(dir.path(), 3).exists());
    for min_dead_share in [-0.1, 1.1, f64::NAN] {
        let error = store.compact(CompactOptions::from_share(min_dead_share)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn tombstone_is_kept_while_older_pack_holds_block() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open_small(dir.path());
    // Some blocks of the first pack are deleted. Their tombstones are in the last pack, all of whose blocks are
    // deleted.
    let (first, second) = (numbered(0..1_000), (0..10).map(|_| random_block(6_000)).collect::<Vec<_>>());
    put_all(&store, &first).await;
    put_all(&store, &second).await;
    let filler = random_blocks(12, 6_000);
    put_all(&store, &filler).await;
    let (gone, kept) = first.split_at(100);
    store.delete_many(&cids(gone)).await.unwrap();
    store.delete_many(&cids(&filler)).await.unwrap();
    for _ in 0..3 {
        // The first pack is not worth compacting, so its tombstones are copied.
        store.compact(CompactOptions::from_share(0.3)).await.unwrap();
        assert!(pack(dir.path(), 1).exists());
        assert_eq!(written(dir.path()).1, 112);
        store = reopen_without_index(store, dir.path()).await;
        assert_lacks(&store, &[gone, &filler].concat()).await;
        assert_holds(&store, kept).await;
        put_all(&store, &filler).await;
        store.delete_many(&cids(&filler)).await.unwrap();
    }
    // A block that is put again is not deleted by old tombstones.
    put_all(&store, &gone[..10]).await;
    store.compact(CompactOptions::from_share(0.3)).await.unwrap();
    store = reopen_without_index(store, dir.path()).await;
    assert_holds(&store, &gone[..10]).await;
    store.compact(ALL).await.unwrap();
    assert_eq!(written(dir.path()).1, 0, "once the first pack is gone, there is nothing to remember");
    store = reopen_without_index(store, dir.path()).await;
    assert_holds(&store, &[&gone[..10], kept, &second].concat()).await;
    assert_lacks(&store, &gone[10..]).await;
    assert_eq!(store.stats().await.unwrap().blocks, 920);
    store.close().await.unwrap();
}

#[tokio::test]
async fn slow_reader_gets_all_blocks_during_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    // Wide codecs: the CIDs are listed from the packs.
    let wide = |n: u32| {
        let data = Bytes::from(n.to_le_bytes().repeat(300));
        Block::new(new_cid(1, 0x1234_5678, hash::sha2_256(&data)).unwrap(), data).unwrap()
    };
    let blocks: Vec<_> = (0..2_000).map(wide).collect();
    put_all(&store, &blocks).await;
    let (gone, kept) = blocks.split_at(50);
    let held = store.require(kept[0].cid()).await.unwrap();
    let (mut read, mut list) = (store.get_many(cids(kept)), store.iterate());
    let first = read.try_next().await.unwrap().unwrap();
    assert_eq!(first, (*kept[0].cid(), Some(kept[0].data().clone())));
    let mut seen = vec![list.try_next().await.unwrap().unwrap()];

    store.delete_many(&cids(gone)).await.unwrap();
    let before = packs(dir.path());
    // Some of the moved blocks are deleted, and the rest is moved again.
    for part in [25, 10] {
        let compacted = store.compact(ALL).await.unwrap();
        assert!(compacted.packs > 0);
        store.delete_many(&cids(&kept[1_000..1_000 + part])).await.unwrap();
    }
    assert!(before.keys().any(|path| !path.exists()));
    for (number, block) in kept.iter().enumerate().skip(1) {
        let (cid, data) = read.try_next().await.unwrap().unwrap();
        assert_eq!(cid, *block.cid());
        assert!(data.as_ref() == Some(block.data()) || (1_000..1_025).contains(&number) && data.is_none(), "{number}");
    }
    assert_eq!(read.next().await.map(|item| item.is_ok()), None);
    while let Some(cid) = list.try_next().await.unwrap() {
        seen.push(cid);
    }
    let seen = sorted(seen);
    let stays = sorted(cids(&[&kept[..1_000], &kept[1_025..]].concat()));
    assert!(stays.iter().all(|cid| seen.binary_search(cid).is_ok()));
    assert_eq!(held, kept[0].data());
    store.close().await.unwrap();
    assert_eq!(held, kept[0].data());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_are_unaffected_by_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let store = PackStore::open(dir.path(), small_packs()).unwrap();
    let stays = Arc::new(random_blocks(200, 4_000));
    let (ended, removed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    put_all(&store, &stays).await;
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (store, stays, ended) = (store.clone(), Arc::clone(&stays), Arc::clone(&ended));
            tokio::spawn(async move {
                while !ended.load(Ordering::Relaxed) {
                    if reader == 0 {
                        assert_holds(&store, &stays).await;
                    }
                    for block in stays.iter() {
                        assert_eq!(store.get(block.cid()).await.unwrap().as_ref(), Some(block.data()));
                    }
                    // Reading resident blocks never yields, so the other tasks would not run.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let compactor = {
        let (store, ended, removed) = (store.clone(), Arc::clone(&ended), Arc::clone(&removed));
        tokio::spawn(async move {
            let mut moved_bytes = 0;
            while !ended.load(Ordering::Relaxed) {
                let (this, that) = tokio::join!(store.compact(ALL), store.compact(USUAL));
                for this in [this.unwrap(), that.unwrap()] {
                    assert_eq!(this.damaged, []);
                    removed.fetch_add(this.packs, Ordering::Relaxed);
                    moved_bytes += this.moved_bytes;
                }
            }
            moved_bytes
        })
    };
    // The same blocks are put and deleted repeatedly, so the writer often finds a block that is being moved.
    let comes = numbered(0..400);
    let enough = |round: usize| round >= 25 && removed.load(Ordering::Relaxed) > 10;
    for round in (0..).take_while(|round| !enough(*round)) {
        put_all(&store, &comes).await;
        let (gone, left) = comes.split_at(100 + round % 25 * 10);
        assert!(store.delete_many(&cids(gone)).await.unwrap().into_iter().all(|gone| gone));
        assert_lacks(&store, gone).await;
        assert_holds(&store, left).await;
        put_all(&store, &random_blocks(10, 4_000)).await;
    }
    ended.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(compactor.await.unwrap() > 0);
    store.compact(ALL).await.unwrap();
    let expected = listed(&store).await;
    let stats = store.stats().await.unwrap();
    assert_eq!(stats.disk_bytes, disk_bytes(dir.path()));
    let taken: u64 = packs(dir.path()).values().sum();
    assert!(taken < stats.payload_bytes + stats.blocks * 50 + 40_000, "{taken} bytes for {stats:?}");
    let store = reopen_without_index(store, dir.path()).await;
    assert_holds(&store, &stays).await;
    assert_eq!(listed(&store).await, expected);
    store.close().await.unwrap();
}

#[tokio::test]
async fn iterate_continues_after_unreadable_cid() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let wide = |n: u32| {
        let data = Bytes::from(n.to_le_bytes().to_vec());
        Block::new(new_cid(1, 0x1234_5678, hash::sha2_256(&data)).unwrap(), data).unwrap()
    };
    let blocks: Vec<_> = (0..1_500).map(wide).collect();
    put_all(&store, &blocks).await;
    put_all(&store, &[block("narrow")]).await;
    store.close().await.unwrap();
    // Damages the digest of the third block, which is at the end of its prefix of 2 + 5 + 34 bytes, before 4 bytes of
    // data.
    let mut bytes = fs::read(pack(dir.path(), 1)).unwrap();
    let digest = Multihash::wrap(HashFunction::Sha2_256.code(), blocks[2].cid().hash().digest()).unwrap().to_bytes();
    let at = bytes.windows(digest.len()).position(|window| window == digest).unwrap();
    bytes[at + 10..at + 20].fill(0);
    fs::write(pack(dir.path(), 1), &bytes).unwrap();

    let store = open_small(dir.path());
    let items: Vec<_> = store.iterate().collect().await;
    assert_eq!(items.len(), 1_501);
    let (cids, errors): (Vec<_>, Vec<_>) = items.into_iter().partition(Result::is_ok);
    assert_eq!(cids.len(), 1_500);
    assert_eq!(errors[0].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
    store.close().await.unwrap();
}

#[tokio::test]
async fn compaction_after_dropped_compaction_finds_no_damage() {
    for polls in 1..12 {
        let dir = tempfile::tempdir().unwrap();
        let store = open_small(dir.path());
        let blocks = random_blocks(20, 10_000);
        for part in blocks.chunks(5) {
            put_all(&store, part).await;
        }
        store.delete_many(&cids(&blocks[..15])).await.unwrap();
        let (mut dropped, mut left) = (store.compact(ALL), polls);
        // In the last round, the future is dropped while its request is in progress.
        poll_fn(|cx| {
            let is_over = dropped.as_mut().poll(cx).is_ready();
            left -= 1;
            if is_over || left == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(dropped);
        let compacted = store.compact(ALL).await.unwrap();
        assert_eq!(compacted.damaged, [], "dropped after {polls} polls");
        assert_holds(&store, &blocks[15..]).await;
        assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn full_compaction_leaves_no_dead_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks: Vec<_> = (0..4).map(|_| random_block(30_000)).collect();
    for block in &blocks {
        put_all(&store, std::slice::from_ref(block)).await;
    }
    // All blocks of the second pack are deleted. The pack also holds the tombstone of one block of the first pack,
    // whose other block is alive.
    store.delete_many(&cids(&blocks[1..])).await.unwrap();
    store.compact(ALL).await.unwrap();
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    assert_eq!(written(dir.path()), (cids(&blocks[..1]), 0));
    store.close().await.unwrap();
}

#[tokio::test]
async fn compaction_stops_at_the_requested_size_after_the_packs_with_most_dead_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks: Vec<_> = (0..40).map(|_| random_block(6_000)).collect();
    for part in blocks.chunks(10) {
        put_all(&store, part).await;
    }
    // Four of the first, eight of the second, six of the third.
    let gone: Vec<_> = [0..4, 10..18, 20..26].into_iter().flat_map(|range| blocks[range].to_vec()).collect();
    store.delete_many(&cids(&gone)).await.unwrap();
    store.flush().await.unwrap();
    let used = store.stats().await.unwrap().disk_bytes;
    let until = |bytes| CompactOptions { until_disk_bytes: Some(bytes), ..CompactOptions::from_share(0.1) };
    assert_eq!(store.compact(until(used)).await.unwrap().packs, 0, "it has that size already");
    assert_eq!(store.compact(until(used - 1)).await.unwrap().packs, 1);
    assert!(pack(dir.path(), 1).exists() && !pack(dir.path(), 2).exists() && pack(dir.path(), 3).exists());
    assert_eq!(store.compact(until(0)).await.unwrap().packs, 2);
    store.close().await.unwrap();
}

#[tokio::test]
async fn epoch_of_blocks_changes_with_their_removal_and_with_that_of_packs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_small(dir.path());
    let blocks = numbered(0..20);
    put_all(&store, &blocks).await;
    let (of_kept, of_gone) = (Footprint::of([blocks[0].cid()]), Footprint::of([blocks[0].cid(), blocks[1].cid()]));
    let since = store.epoch();
    let [kept, gone, any] =
        [of_kept, of_gone, Footprint::ANY].map(|footprint| Provenance::new(&store, since, footprint).unwrap());
    store.delete_many(&[*blocks[1].cid()]).await.unwrap();
    assert_eq!([kept, gone, any].map(|provenance| provenance.is_current(&store)), [true, false, false]);
    // A value from before the removal may be derived from the removed block.
    assert_eq!(Provenance::new(&store, since, of_kept), None);
    let again = Provenance::new(&store, store.epoch(), of_gone).unwrap();
    put_all(&store, &blocks[1..2]).await;
    assert!(again.is_current(&store));
    assert!(store.compact(ALL).await.unwrap().packs > 0);
    assert_eq!([kept, again].map(|provenance| provenance.is_current(&store)), [false, false]);
    let many = numbered(0..16);
    assert_eq!(Footprint::of(many.iter().map(Block::cid)), Footprint::ANY);
    store.close().await.unwrap();
}

//! A full disk, simulated with a limit on file sizes. The limit applies to the whole process, so each test runs in a
//! child.

use std::io::Read;
use std::path::Path;

use ipfrs_core::{Block, ErrorKind};
use ipfrs_store::{BlockStore, CompactOptions, PackOptions, PackStore, Pin, Pins, PutMode};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fixture::{
    self, assert_holds, assert_lacks, block, child_dir, cids, put_all, random_block, small_packs, spawn_child,
};
use crate::read_only::open_read_only;
use crate::recovery::{PREFIX, copy_index, lose_index, overwrite, packs, store_of};

pub(crate) fn limit_files_to(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

pub(crate) fn pack_len(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("packs/00000001.car")).unwrap().len()
}

pub(crate) fn assert_child_passes(name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn_child(name, dir.path());
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
    assert!(output.contains("reached the end"), "{output}");
}

/// Puts batches until one is rejected. Returns the stored blocks and the rejected ones.
async fn fill(store: &PackStore, mut batch: impl FnMut(u32) -> Vec<Block>) -> (Vec<Block>, Vec<Block>) {
    let mut stored = Vec::new();
    for number in 0.. {
        let blocks = batch(number);
        let outcomes = store.put_many(blocks.clone(), PutMode::Atomic).await;
        if outcomes.iter().all(Result::is_ok) {
            stored.extend(blocks);
            continue;
        }
        for outcome in outcomes {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        }
        return (stored, blocks);
    }
    unreachable!()
}

#[tokio::test]
async fn child_whose_pack_cannot_grow() {
    let Some(dir) = child_dir() else { return };
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    put_all(&store, &[random_block(1_000)]).await;
    limit_files_to(Some(16 * 1024 * 1024));
    let (stored, refused) = fill(&store, |_| (0..3).map(|_| random_block(1_000_000)).collect()).await;
    assert!(stored.len() >= 12);
    let len = pack_len(&dir);
    assert!(len < 16 * 1024 * 1024, "what was written of a refused put must be cut away");
    assert_holds(&store, &stored).await;
    assert_lacks(&store, &refused).await;
    // A disk that rejected the last write is tested before it is reported as writable.
    limit_files_to(Some(1_000));
    let error = store.disk().await.unwrap_err();
    assert!(error.message().contains("cannot write to"), "{error}");
    limit_files_to(Some(16 * 1024 * 1024));
    assert!(store.disk().await.unwrap().unwrap().free_bytes > 0);
    assert!(!dir.join("write-probe").exists());
    // A smaller block still fits, at the same offset.
    let small = random_block(50_000);
    put_all(&store, std::slice::from_ref(&small)).await;
    assert!(pack_len(&dir) < len + 51_000);

    limit_files_to(None);
    put_all(&store, &refused).await;
    store.close().await.unwrap();
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    assert_holds(&store, &[stored, refused, vec![small]].concat()).await;
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn a_full_disk_refuses_puts_whole_and_loses_nothing() {
    assert_child_passes("disk_full::child_whose_pack_cannot_grow");
}

#[tokio::test]
async fn child_whose_index_cannot_grow() {
    let Some(dir) = child_dir() else { return };
    let options = PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() };
    let store = PackStore::open(&dir, options.clone()).unwrap();
    // Packs and the manifest stay below this limit, but a run of 2,500 blocks does not.
    limit_files_to(Some(100_000));
    let batch = |number: u32| (0..500).map(|n| block((number * 500 + n).to_le_bytes().to_vec())).collect();
    let (stored, refused) = fill(&store, batch).await;
    assert!(stored.len() >= 2_500);
    assert_holds(&store, &stored).await;
    assert_lacks(&store, &refused).await;
    // The full disk does not prevent reopening the store, and existing blocks can be read.
    store.close().await.unwrap_err();
    let store = PackStore::open(&dir, options).unwrap();
    assert_holds(&store, &stored).await;
    let (more, refused) = fill(&store, |_| refused.clone()).await;
    assert!(more.is_empty());

    limit_files_to(None);
    put_all(&store, &refused).await;
    assert_holds(&store, &refused).await;
    store.close().await.unwrap();
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    assert_holds(&store, &[stored, refused].concat()).await;
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn an_index_that_cannot_grow_refuses_puts_and_loses_nothing() {
    assert_child_passes("disk_full::child_whose_index_cannot_grow");
}

#[tokio::test]
async fn child_that_cannot_pad() {
    let Some(root) = child_dir() else { return };
    for is_reopened in [false, true] {
        let (dir, saved) = (root.join(format!("store-{is_reopened}")), root.join(format!("saved-{is_reopened}")));
        std::fs::create_dir_all(saved.join("index")).unwrap();
        let blocks: Vec<_> = (0..4).map(|_| random_block(8_000)).collect();
        store_of(&dir, &blocks[..1]).await;
        copy_index(&dir, &saved);
        store_of(&dir, &blocks[1..3]).await;
        // As after a power failure in the middle of the second put, on a disk that needs space to overwrite.
        overwrite(&dir.join("packs/00000001.car"), 18 + (PREFIX + 8_000) + PREFIX + 4_000, &[0; 16]);
        copy_index(&saved, &dir);
        let manifest = std::fs::read(dir.join("index/manifest")).unwrap();
        limit_files_to(Some(4_000));
        let store = PackStore::open(&dir, PackOptions::default()).unwrap();
        assert_holds(&store, &[blocks[0].clone(), blocks[2].clone()]).await;
        let outcomes = store.put_many(vec![blocks[3].clone()], PutMode::Atomic).await;
        assert_eq!(outcomes[0].as_ref().unwrap_err().kind(), ErrorKind::NoSpace);
        if is_reopened {
            assert_eq!(store.close().await.unwrap_err().kind(), ErrorKind::NoSpace);
            assert_eq!(std::fs::read(dir.join("index/manifest")).unwrap(), manifest);
        }
        limit_files_to(None);
        let store = if is_reopened { PackStore::open(&dir, PackOptions::default()).unwrap() } else { store };
        put_all(&store, &blocks[3..]).await;
        store.close().await.unwrap();
        lose_index(&dir);
        let store = PackStore::open(&dir, PackOptions::default()).unwrap();
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        assert_holds(&store, &[&blocks[..1], &blocks[2..]].concat()).await;
        store.close().await.unwrap();
    }
    println!("reached the end");
}

#[test]
fn full_disk_that_cannot_pad_torn_block_is_opened() {
    assert_child_passes("disk_full::child_that_cannot_pad");
}

#[tokio::test]
async fn child_with_a_gap() {
    let Some(root) = child_dir() else { return };
    let (dir, saved) = (root.join("store"), root.join("saved"));
    std::fs::create_dir_all(saved.join("index")).unwrap();
    let blocks: Vec<_> = (0..4).map(|_| random_block(8_000)).collect();
    store_of(&dir, &blocks[..1]).await;
    copy_index(&dir, &saved);
    store_of(&dir, &blocks[1..]).await;
    // As after a power failure in the middle of a put: the length of its first block is torn.
    overwrite(&dir.join("packs/00000001.car"), 18 + (PREFIX + 8_000), &[0xff]);
    copy_index(&saved, &dir);
    // A new pack fits on the disk, but a manifest does not.
    limit_files_to(Some(100));
    for _ in 0..2 {
        let store = PackStore::open(&dir, PackOptions::default()).unwrap();
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        assert_holds(&store, &[&blocks[..1], &blocks[2..]].concat()).await;
        assert_eq!(store.close().await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(packs(&dir).len(), 2);
        let reader = open_read_only(&dir).unwrap();
        assert_eq!(reader.losses().unwrap(), Vec::<String>::new());
        reader.close().await.unwrap();
    }
    limit_files_to(None);
    for _ in 0..2 {
        let store = PackStore::open(&dir, PackOptions::default()).unwrap();
        put_all(&store, &blocks[1..2]).await;
        assert_holds(&store, &blocks).await;
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        store.close().await.unwrap();
    }
    assert_eq!(packs(&dir).len(), 2);
    assert_eq!(pack_len(&dir), 18 + 4 * (PREFIX + 8_000), "nothing is appended to the damaged pack");
    println!("reached the end");
}

#[test]
fn gap_is_no_loss_if_index_cannot_be_committed() {
    assert_child_passes("disk_full::child_with_a_gap");
}

#[tokio::test]
async fn child_that_compacts() {
    let Some(dir) = child_dir() else { return };
    let options = PackOptions { pack_bytes: 31 * 1024 * 1024, ..PackOptions::default() };
    let store = PackStore::open(&dir, options.clone()).unwrap();
    // Three packs: all of the first and a third of the others are deleted.
    let blocks: Vec<_> = (0..90).map(|_| random_block(1024 * 1024)).collect();
    for part in blocks.chunks(30) {
        put_all(&store, part).await;
    }
    let is_kept = |number: &usize| *number >= 30 && !number.is_multiple_of(3);
    let (kept, gone): (Vec<_>, Vec<_>) = (0..90).partition(is_kept);
    let [kept, gone] = [kept, gone].map(|numbers| numbers.into_iter().map(|n| blocks[n].clone()).collect::<Vec<_>>());
    store.delete_many(&cids(&gone)).await.unwrap();
    limit_files_to(Some(16 * 1024 * 1024));

    let error = store.compact(CompactOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.message().contains("1 packs removed"), "{error}");
    let exists = |number: u32| dir.join(format!("packs/{number:08}.car")).exists();
    assert_eq!([1, 2, 3].map(exists), [false, true, true]);
    let moved = std::fs::metadata(dir.join("packs/00000004.car")).unwrap().len();
    assert!((8..16).contains(&(moved >> 20)), "{moved} bytes were moved before the disk was full");
    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    put_all(&store, &[block("there is room for this")]).await;

    limit_files_to(None);
    store.compact(CompactOptions::from_share(0.0)).await.unwrap();
    assert_eq!([2, 3, 4].map(exists), [false, false, true]);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.dead_bytes, stats.blocks), (0, 41));
    store.close().await.unwrap();
    std::fs::remove_dir_all(dir.join("index")).unwrap();
    let store = PackStore::open(&dir, options).unwrap();
    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn compaction_on_full_disk_removes_dead_packs_first() {
    assert_child_passes("disk_full::child_that_compacts");
}

/// Runs the test `name` as a separate process, on a disk of `mebibytes` MiB that only that process sees.
fn assert_passes_on_small_disk(name: &str, mebibytes: u32) {
    let dir = tempfile::tempdir().unwrap();
    let mounted = format!("mount -t tmpfs -o size={mebibytes}m tmpfs \"$0\"");
    let unshare = |command: &str| {
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", command]).arg(dir.path());
        unshare
    };
    if !unshare(&mounted).output().is_ok_and(|tried| tried.status.success()) {
        return fixture::skipped("no file system can be mounted here (unshare and mount of a tmpfs)");
    }
    let mut child = unshare(&format!("{mounted} && exec \"$@\""));
    child.arg(std::env::current_exe().unwrap()).args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = child.env(fixture::CHILD_DIR, dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("reached the end"), "{text}");
}

fn free_bytes(dir: &Path) -> u64 {
    let status = rustix::fs::statvfs(dir).unwrap();
    status.f_bavail * status.f_frsize
}

#[tokio::test]
async fn child_that_frees_a_small_share_of_each_pack() {
    let Some(dir) = child_dir() else { return };
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    for every in [8, 12, 30] {
        let (mut stored, _) = fill(&store, |_| vec![random_block(1_000_000)]).await;
        let gone: Vec<_> = stored.iter().step_by(every).cloned().collect();
        stored = stored.iter().enumerate().filter(|(n, _)| n % every > 0).map(|(_, block)| block.clone()).collect();
        store.delete_many(&cids(&gone)).await.unwrap();
        let (removed_bytes, before) = (gone.len() as u64 * 1_000_000, free_bytes(&dir));
        let compacted = store.compact(CompactOptions::default()).await.unwrap();
        let freed = free_bytes(&dir) - before;
        assert!(compacted.freed_bytes > removed_bytes / 10 * 9, "every {every}: {compacted:?} of {removed_bytes}");
        assert!(compacted.freed_bytes.abs_diff(freed) < 256 * 1024, "{compacted:?}, and {freed} by the file system");
        // The same number of blocks fits again, less one.
        let more = (1..gone.len()).map(|_| random_block(1_000_000)).collect::<Vec<_>>();
        put_all(&store, &more).await;
        stored.extend(more);
        assert_holds(&store, &stored).await;
        assert_lacks(&store, &gone).await;
        store.delete_many(&cids(&stored)).await.unwrap();
        store.compact(CompactOptions::default()).await.unwrap();
    }
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn full_disk_gets_back_the_small_shares_of_its_packs() {
    assert_passes_on_small_disk("disk_full::child_that_frees_a_small_share_of_each_pack", 100);
}

#[tokio::test]
async fn child_that_uses_the_space_for_removals() {
    let Some(dir) = child_dir() else { return };
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    let (mut stored, refused) = fill(&store, |_| vec![random_block(1_000_000)]).await;
    let mut reserved_bytes = 0;
    let mut next = refused;
    while store.put_many(next.clone(), PutMode::Reserved).await.iter().all(Result::is_ok) {
        reserved_bytes += 1_000_000;
        stored.extend(std::mem::replace(&mut next, vec![random_block(1_000_000)]));
    }
    assert!((12_000_000..20_000_000).contains(&reserved_bytes), "{reserved_bytes} bytes were reserved");
    // Every pack has one dead block, and stays nearly as long as the space for its copy.
    let (gone, kept): (Vec<_>, Vec<_>) = (0..stored.len()).partition(|number| number.is_multiple_of(10));
    let [gone, kept] = [gone, kept].map(|numbers| numbers.into_iter().map(|n| stored[n].clone()).collect::<Vec<_>>());
    store.delete_many(&cids(&gone)).await.unwrap();
    store.compact(CompactOptions::from_share(0.0)).await.unwrap();
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn reserved_puts_leave_what_compactions_need() {
    assert_passes_on_small_disk("disk_full::child_that_uses_the_space_for_removals", 100);
}

#[tokio::test]
async fn child_whose_packs_do_not_all_fit() {
    let Some(dir) = child_dir() else { return };
    let store = PackStore::open(&dir, PackOptions::default()).unwrap();
    // One long pack, nearly half of which is dead, and short packs.
    let mut stored: Vec<_> = (0..30).map(|_| random_block(1_000_000)).collect();
    put_all(&store, &stored).await;
    stored.extend(fill(&store, |_| vec![random_block(1_000_000)]).await.0);
    let is_gone = |number: usize| if number < 30 { number < 14 } else { number.is_multiple_of(3) };
    let (gone, kept): (Vec<_>, Vec<_>) = (0..stored.len()).partition(|number| is_gone(*number));
    let [gone, kept] = [gone, kept].map(|numbers| numbers.into_iter().map(|n| stored[n].clone()).collect::<Vec<_>>());
    store.delete_many(&cids(&gone)).await.unwrap();
    // Another program uses the space reserved for compactions, except for what a short pack needs.
    let taken = free_bytes(&dir) - 14 * 1024 * 1024;
    std::fs::write(dir.join("other"), vec![1; taken as usize]).unwrap();
    store.compact(CompactOptions::default()).await.unwrap();
    assert!(!dir.join("packs/00000001.car").exists(), "the short packs make room for the long one");
    // Only the tombstones may be left.
    let stats = store.stats().await.unwrap();
    assert!(stats.dead_bytes < 10_000, "{stats:?}");
    assert_holds(&store, &kept).await;
    assert_lacks(&store, &gone).await;
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn full_disk_is_compacted_from_the_pack_that_fits() {
    assert_passes_on_small_disk("disk_full::child_whose_packs_do_not_all_fit", 100);
}

#[tokio::test]
async fn child_whose_pins_cannot_grow() {
    let Some(dir) = child_dir() else { return };
    let pins = Pins::open(&dir, false).unwrap();
    let many = || (0..20_000).map(|_| Pin::recursive(*random_block(40).cid())).collect::<Vec<_>>();
    let kept = many();
    pins.insert_many(kept.clone()).await.unwrap();
    limit_files_to(Some(std::fs::metadata(dir.join("pins.redb")).unwrap().len()));
    let mut pinned = kept.len() as u64;
    let error = loop {
        match pins.insert_many(many()).await {
            Ok(()) => pinned += 20_000,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(pins.count().await.unwrap(), pinned);
    limit_files_to(None);
    pins.insert_many(many()).await.unwrap();
    pins.close().await.unwrap();
    let pins = Pins::open(&dir, false).unwrap();
    assert_eq!(pins.count().await.unwrap(), pinned + 20_000);
    let found = pins.get_many(kept.iter().map(|pin| pin.cid).collect()).await.unwrap();
    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), kept);
    println!("reached the end");
}

#[test]
fn pins_are_rejected_on_full_disk_and_added_after_it() {
    assert_child_passes("disk_full::child_whose_pins_cannot_grow");
}

#[tokio::test]
async fn child_whose_index_names_a_removed_pack() {
    let Some(dir) = child_dir() else { return };
    let open = || PackStore::open(&dir, small_packs()).unwrap();
    let store = open();
    // Each fills a pack.
    let blocks: Vec<_> = (0..4).map(|_| random_block(60_000)).collect();
    for one in blocks[..3].chunks(1) {
        put_all(&store, one).await;
    }
    store.delete_many(&cids(&blocks[..1])).await.unwrap();
    store.close().await.unwrap();
    // As after a kill of a compaction, before it commits the index.
    std::fs::remove_file(dir.join("packs/00000001.car")).unwrap();
    let manifest = std::fs::read(dir.join("index/manifest")).unwrap();
    limit_files_to(Some(100));
    let store = open();
    assert_holds(&store, &blocks[1..3]).await;
    assert_lacks(&store, &blocks[..1]).await;
    // It may fail without space.
    let _ = store.close().await;
    assert_eq!(std::fs::read(dir.join("index/manifest")).unwrap(), manifest);
    limit_files_to(None);
    let store = open();
    put_all(&store, &blocks[3..]).await;
    assert_holds(&store, &blocks[1..]).await;
    assert_eq!(store.losses().unwrap(), Vec::<String>::new());
    store.close().await.unwrap();
    println!("reached the end");
}

#[test]
fn store_opens_on_full_disk_after_a_pack_was_removed() {
    assert_child_passes("disk_full::child_whose_index_names_a_removed_pack");
}

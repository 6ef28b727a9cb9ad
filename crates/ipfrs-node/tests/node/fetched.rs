//! Fetched blocks: eviction within `store.max_bytes`, and content of users, which is never evicted.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, ErrorKind, codec};
use ipfrs_node::{
    AddOptions, BlockFormat, ContentPath, Durability, Engine, GcOptions, Node, PinOptions, PutBlock, Registry,
    StoreConfig, Stored,
};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

const MIB: u64 = 1 << 20;

/// Smallest limit that is accepted.
const LIMIT: u64 = 64 * MIB;

fn limited() -> StoreConfig {
    StoreConfig { max_bytes: LIMIT, durability: Durability::Os, ..StoreConfig::default() }
}

async fn open(repo: &Path, store: StoreConfig) -> Node {
    Node::builder(repo).store(store).open().await.unwrap()
}

/// Returns block `number`, whose content is random.
fn block(number: u64, len: usize) -> Block {
    let mut data = vec![0; len];
    StdRng::seed_from_u64(number).fill_bytes(&mut data);
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from(data)).unwrap()
}

fn put(block: &Block) -> PutBlock {
    PutBlock { data: block.data().clone(), cid: Some(*block.cid()), format: BlockFormat::default() }
}

fn path(cid: Cid) -> ContentPath {
    ContentPath::new(cid, Vec::new()).unwrap()
}

async fn fetch(node: &Node, blocks: Vec<Block>) {
    for outcome in node.put_fetched(blocks).await {
        outcome.unwrap();
    }
}

async fn has(node: &Node, block: &Block) -> bool {
    node.batch_has(&[*block.cid()]).await.unwrap()[0].is_some()
}

/// Fetches `mib` MiB of new blocks.
async fn flood(node: &Node, first: u64, mib: u64) {
    for part in 0..mib {
        fetch(node, (0..8).map(|index| block(first + part * 8 + index, MIB as usize / 8)).collect()).await;
    }
}

/// Returns the disk space of the files below `dir`.
fn disk_use(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_use(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // Removed meanwhile.
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_holds_while_ten_times_as_much_passes_through() {
    for engine in [Engine::Pack, Engine::Memory] {
        let repo = tempfile::tempdir().unwrap();
        let registry = Registry::new();
        let store = StoreConfig { engine, ..limited() };
        let node = Node::builder(repo.path()).store(store).registry(&registry).open().await.unwrap();
        let own: Vec<_> = (0..16).map(|number| block(number, MIB as usize / 2)).collect();
        for block in &own {
            node.put_block(put(block)).await.unwrap();
        }
        let mut most = 0;
        for part in 0..10 * LIMIT / MIB {
            fetch(&node, (0..8).map(|index| block(1_000 + part * 8 + index, MIB as usize / 8)).collect()).await;
            let stats = node.stats().await.unwrap();
            most = most.max(if engine == Engine::Pack { disk_use(repo.path()) } else { stats.payload_bytes });
        }
        assert!(most <= LIMIT + LIMIT / 50, "{most} bytes of {LIMIT}");
        assert!(most > LIMIT / 10 * 8, "the limit was not used: {most} bytes");
        for block in &own {
            assert_eq!(node.get_block(block.cid()).await.unwrap(), block.data());
        }
        let evicted = registry.gather().into_iter().find(|family| family.name() == "ipfrs_fetched_evictions_total");
        let evicted = evicted.unwrap().get_metric()[0].get_counter().get_value();
        assert!(evicted > (8 * 8 * LIMIT / MIB) as f64, "{evicted}");
        // The newest are there.
        assert!(has(&node, &block(1_000 + 10 * LIMIT / MIB * 8 - 1, MIB as usize / 8)).await);
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_are_fetched_together_find_space_in_a_small_store() {
    for engine in [Engine::Pack, Engine::Memory] {
        let repo = tempfile::tempdir().unwrap();
        let node = open(repo.path(), StoreConfig { engine, ..limited() }).await;
        for part in 0..3 * LIMIT / MIB / 4 {
            fetch(&node, (0..4).map(|index| block(part * 4 + index, MIB as usize)).collect()).await;
        }
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_and_pin_make_fetched_blocks_permanent_over_restarts() {
    let (repo, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // A file of several blocks, with its inner nodes.
    let source = Node::open_default(other.path()).await.unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let local = other.path().join("file");
    fs::write(&local, &content).unwrap();
    let file = source.add_path(local, AddOptions::default()).await.unwrap().cid;
    let (cids, _) = source.block_page(None, 1_000).await.unwrap();
    let mut blocks = Vec::new();
    for cid in &cids {
        blocks.push(Block::new(*cid, source.get_block(cid).await.unwrap()).unwrap());
    }
    let root = blocks.iter().find(|block| block.cid().hash() == file.hash()).unwrap().clone();
    assert!(blocks.len() > 40);

    let node = open(repo.path(), limited()).await;
    let (added, direct, cached) = (block(1, 1_000), block(2, 1_000), block(3, 1_000));
    fetch(&node, vec![added.clone(), direct.clone(), cached.clone()]).await;
    fetch(&node, blocks.clone()).await;
    assert_eq!(node.put_fetched(vec![cached.clone()]).await.pop().unwrap().unwrap(), Stored::Present);
    node.put_block(put(&added)).await.unwrap();
    node.pin(&[path(*direct.cid())], &PinOptions { recursive: false, ..PinOptions::default() }, |_| {}).await.unwrap();
    node.pin(&[path(file)], &PinOptions::default(), |_| {}).await.unwrap();
    // As after a kill: nothing is closed, and the copy is opened.
    let crashed = tempfile::tempdir().unwrap();
    copy_tree(repo.path(), crashed.path());
    node.close().await.unwrap();
    for repo in [repo.path(), crashed.path()] {
        let node = open(repo, limited()).await;
        flood(&node, 1_000, 2 * LIMIT / MIB).await;
        assert!(has(&node, &added).await && has(&node, &direct).await && has(&node, &root).await);
        assert!(!has(&node, &cached).await);
        let read = node.read_range(path(file), ..).await.unwrap();
        assert_eq!(read, content);
        node.close().await.unwrap();
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_keep_their_bytes_during_eviction() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    let first: Vec<_> = (0..64).map(|number| block(number, MIB as usize / 8)).collect();
    fetch(&node, first.clone()).await;
    // Slices of packs that are removed, and a stream that has only begun.
    let mut slices = HashMap::new();
    for block in &first {
        slices.insert(*block.cid(), node.get_block(block.cid()).await.unwrap());
    }
    let ended = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn({
        let (node, ended) = (node.clone(), Arc::clone(&ended));
        async move {
            let mut read = 0;
            while !ended.load(Ordering::SeqCst) {
                for number in 0..2_000 {
                    let block = block(number % 64 + 1_000, MIB as usize / 8);
                    // A block may be evicted, but bytes are never wrong.
                    match node.get_block(block.cid()).await {
                        Ok(data) => {
                            assert_eq!(data, block.data());
                            read += 1;
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                    tokio::task::yield_now().await;
                    if ended.load(Ordering::SeqCst) {
                        break;
                    }
                }
            }
            read
        }
    });
    flood(&node, 1_000, 4 * LIMIT / MIB).await;
    ended.store(true, Ordering::SeqCst);
    assert!(reader.await.unwrap() > 0);
    for block in &first {
        assert_eq!(slices[block.cid()], block.data());
        assert!(!has(&node, block).await);
    }
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_eviction_race_for_blocks_and_users_win() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    let ended = Arc::new(AtomicBool::new(false));
    let flooding = tokio::spawn({
        let (node, ended) = (node.clone(), Arc::clone(&ended));
        async move {
            flood(&node, 10_000, 6 * LIMIT / MIB).await;
            ended.store(true, Ordering::SeqCst);
        }
    });
    // Fetched blocks of all ages are added or pinned while they are evicted.
    let mut own = Vec::new();
    let mut number = 0;
    while !ended.load(Ordering::SeqCst) {
        let fetched: Vec<_> = (0..20).map(|index| block(number + index, 2_000)).collect();
        fetch(&node, fetched.clone()).await;
        number += 20;
        let old: Vec<_> = fetched.into_iter().take(4).collect();
        for (index, block) in old.iter().enumerate() {
            if index % 2 == 0 {
                node.put_block(put(block)).await.unwrap();
                own.push(block.clone());
            } else if node.pin(&[path(*block.cid())], &PinOptions::default(), |_| {}).await.is_ok() {
                own.push(block.clone());
            }
        }
        // Early ones, which are being evicted just now.
        let early = block(number.saturating_sub(2_000) + 7, 2_000);
        node.put_block(put(&early)).await.unwrap();
        own.push(early);
    }
    flooding.await.unwrap();
    flood(&node, 100_000, 2 * LIMIT / MIB).await;
    assert!(own.len() > 50);
    for block in &own {
        assert_eq!(node.get_block(block.cid()).await.unwrap(), block.data());
    }
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_of_users_beyond_the_limit_is_kept_with_a_small_cache() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    flood(&node, 1_000, LIMIT / MIB).await;
    let own: Vec<_> = (0..80).map(|number| block(number, MIB as usize)).collect();
    for block in &own {
        node.put_block(put(block)).await.unwrap();
    }
    // Fetching goes on within a minimum.
    flood(&node, 10_000, 32).await;
    assert!(has(&node, &block(10_000 + 32 * 8 - 1, MIB as usize / 8)).await);
    for block in &own {
        assert!(has(&node, block).await);
    }
    let used = disk_use(repo.path());
    assert!(used < (80 + 64 / 16 + 12) * MIB, "{used} bytes");
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_dead_bytes_in_each_pack_leave_room_for_fetched_blocks() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    // A pack has 1 MiB.
    for number in 0..90 * 8 {
        node.put_block(put(&block(number, MIB as usize / 8))).await.unwrap();
    }
    let removed: Vec<_> = (0..90 * 8).step_by(6).map(|number| *block(number, MIB as usize / 8).cid()).collect();
    node.remove_blocks(&removed, false).await.unwrap();
    flood(&node, 10_000, 32).await;
    // At least a third of the 16th, 4 MiB, that is left for them.
    let newest: Vec<_> = (0..10).map(|index| block(10_000 + 32 * 8 - 1 - index, MIB as usize / 8)).collect();
    for block in &newest {
        assert!(has(&node, block).await);
    }
    for number in (0..90 * 8).filter(|number| number % 6 != 0) {
        assert!(has(&node, &block(number, MIB as usize / 8)).await);
    }
    node.close().await.unwrap();
}

#[tokio::test]
async fn ledger_follows_gc() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    let (fetched, kept) = (block(1, 1_000), block(2, 1_000));
    fetch(&node, vec![fetched.clone(), kept.clone()]).await;
    node.pin(&[path(*kept.cid())], &PinOptions::default(), |_| {}).await.unwrap();
    assert_eq!(node.gc(GcOptions::default()).await.unwrap().removed, 1);
    assert!(!has(&node, &fetched).await);
    // Now it is content of a user.
    node.put_block(put(&fetched)).await.unwrap();
    node.close().await.unwrap();
    let node = open(repo.path(), limited()).await;
    flood(&node, 1_000, 2 * LIMIT / MIB).await;
    assert!(has(&node, &fetched).await && has(&node, &kept).await);
    node.close().await.unwrap();
}

#[tokio::test]
async fn blocks_fetched_without_a_limit_are_evicted_once_there_is_one() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), StoreConfig { max_bytes: 0, ..limited() }).await;
    let own = block(1, 1_000);
    node.put_block(put(&own)).await.unwrap();
    flood(&node, 1_000, 2 * LIMIT / MIB).await;
    assert!(has(&node, &block(1_000, MIB as usize / 8)).await);
    node.close().await.unwrap();
    let node = open(repo.path(), limited()).await;
    flood(&node, 100_000, 8).await;
    assert!(disk_use(repo.path()) < LIMIT + 8 * MIB, "{}", disk_use(repo.path()));
    assert!(has(&node, &own).await && !has(&node, &block(1_000, MIB as usize / 8)).await);
    node.close().await.unwrap();
}

#[tokio::test]
async fn damaged_ledger_makes_everything_permanent() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    let fetched = block(1, 1_000);
    fetch(&node, vec![fetched.clone()]).await;
    node.close().await.unwrap();
    let ledger = repo.path().join("fetched");
    fs::write(ledger.join("00000009.log"), fs::read(ledger.join("00000001.log")).unwrap()).unwrap();
    fs::write(ledger.join("00000001.log"), "damaged").unwrap();
    let node = open(repo.path(), limited()).await;
    flood(&node, 1_000, 2 * LIMIT / MIB).await;
    assert!(has(&node, &fetched).await);
    node.close().await.unwrap();
}

#[tokio::test]
async fn read_only_repo_evicts_and_records_nothing() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), StoreConfig { max_bytes: 0, ..limited() }).await;
    flood(&node, 1_000, 2 * LIMIT / MIB).await;
    node.close().await.unwrap();
    let before = disk_use(repo.path());
    let node = open(repo.path(), StoreConfig { read_only: true, ..limited() }).await;
    let error = node.put_fetched(vec![block(1, 1_000)]).await.pop().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    assert!(has(&node, &block(1_000, MIB as usize / 8)).await);
    node.close().await.unwrap();
    assert_eq!(disk_use(repo.path()), before);
}

#[tokio::test]
async fn limit_outside_its_range_is_refused() {
    for max_bytes in [1, LIMIT - 1, 1 << 51] {
        let repo = tempfile::tempdir().unwrap();
        let store = StoreConfig { max_bytes, ..StoreConfig::default() };
        let error = Node::builder(repo.path()).store(store).open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(&format!("store.max_bytes = {max_bytes}")), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_caches_serve_are_not_evicted() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(repo.path(), limited()).await;
    let (used, unused) = (block(1, 1_000), block(2, 1_000));
    fetch(&node, vec![used.clone(), unused.clone()]).await;
    for part in 0..2 * LIMIT / MIB {
        // As a cache does that serves data derived from the block.
        node.note_use(&[*used.cid()]);
        flood(&node, 1_000 + 8 * part, 1).await;
    }
    assert!(has(&node, &used).await && !has(&node, &unused).await);
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn fetched_block_that_stays_in_a_file_is_not_evicted_with_it() {
    let (repo, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = StoreConfig { filestore_root: Some(files.path().to_owned()), ..limited() };
    let node = open(repo.path(), store).await;
    let (kept, packed) = (block(1, 100_000), block(2, 100_000));
    // One block is added without a copy and fetched afterwards, the other one in the opposite order.
    fetch(&node, vec![packed.clone()]).await;
    for (name, block) in [("kept", &kept), ("packed", &packed)] {
        fs::write(files.path().join(name), block.data()).unwrap();
        let options = AddOptions { nocopy: true, ..AddOptions::default() };
        assert_eq!(node.add_path(files.path().join(name), options).await.unwrap().cid.hash(), block.cid().hash());
    }
    fetch(&node, vec![kept.clone(), packed.clone()]).await;
    assert_eq!(node.duplicated_blocks().unwrap().count().await, 0);
    flood(&node, 1_000, 80).await;
    assert!(has(&node, &kept).await && has(&node, &packed).await);
    node.close().await.unwrap();
}

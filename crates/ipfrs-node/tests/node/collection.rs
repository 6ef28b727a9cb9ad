//! Garbage collection concurrent with writes, pins and reads.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, poll, stream};
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_node::{
    AddOptions, Attributes, BlockFormat, ContentPath, GcEvent, GcReport, MemoryStore, Node, ObjectKind, PinFilter,
    PinOptions, PutBlock, Span,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Mutex, mpsc};

/// Environment variable with the duration of the stress test, in seconds.
const SECONDS: &str = "IPFRS_STRESS_SECONDS";

/// Number of things that the stress test adds, pins and unpins.
const SLOTS: u64 = 48;

/// Number of distinct pieces in the files. Files share pieces.
const PIECES: u64 = 64;

const PIECE_BYTES: usize = 16 * 1024;

async fn open(repo: &tempfile::TempDir) -> Node {
    Node::open_default(repo.path()).await.unwrap()
}

async fn collect(node: &Node) -> Result<GcReport> {
    let (events, _) = mpsc::channel(1);
    node.collect(false, events).await
}

#[tokio::test]
async fn gc_refuses_to_run_after_pins_were_lost() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    let (kept, _) = node.put_block(put(codec::RAW, "kept")).await.unwrap();
    let (other, _) = node.put_block(put(codec::RAW, "other")).await.unwrap();
    node.close().await.unwrap();
    std::fs::remove_file(repo.path().join("pins.redb")).unwrap();
    // Neither a restart nor a pin created in the meantime changes this.
    for _ in 0..2 {
        let node = open(&repo).await;
        node.pin(&[path(kept)], &PinOptions::default(), |_| {}).await.unwrap();
        let error = collect(&node).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.message().contains("repo gc --force"), "{error}");
        assert_eq!(node.get_block(&other).await.unwrap(), "other");
        node.close().await.unwrap();
    }
    let node = open(&repo).await;
    let (events, _) = mpsc::channel(1);
    assert_eq!(node.collect(true, events).await.unwrap().removed, 1);
    assert_eq!(node.get_block(&kept).await.unwrap(), "kept");
    node.put_block(put(codec::RAW, "another")).await.unwrap();
    assert_eq!(collect(&node).await.unwrap().removed, 1, "it was accepted that they are lost");
}

#[tokio::test]
async fn gc_over_engine_with_blocks_requires_force() {
    let engine = Arc::new(MemoryStore::default());
    let over = async |repo: &tempfile::TempDir| Node::builder(repo.path()).engine(engine.clone()).open().await.unwrap();
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let node = over(&first).await;
    node.put_block(put(codec::RAW, "a block")).await.unwrap();
    node.close().await.unwrap();
    let node = over(&second).await;
    assert_eq!(collect(&node).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(collect(&over(&first).await).await.unwrap().removed, 1, "the engine was empty when its pins were made");
}

fn path(cid: Cid) -> ContentPath {
    ContentPath::new(cid, Vec::new()).unwrap()
}

fn options() -> AddOptions {
    AddOptions { chunker: Some(format!("size-{PIECE_BYTES}").parse().unwrap()), ..AddOptions::default() }
}

fn content(bytes: Bytes) -> impl futures::Stream<Item = Result<Bytes>> + Send + Unpin {
    stream::iter([Ok(bytes)])
}

fn put(codec: u64, data: impl Into<Bytes>) -> PutBlock {
    PutBlock { data: data.into(), cid: None, format: BlockFormat { codec, ..BlockFormat::default() } }
}

/// Content to add: the pieces of one file, or of several files in a directory.
#[derive(Debug, Clone)]
struct Thing {
    files: Vec<Vec<u64>>,
}

impl Thing {
    /// Creates random content. One of its pieces is unique to `own`, so that no two things are equal.
    fn random(random: &mut StdRng, own: u64) -> Self {
        let files = if random.random_bool(0.7) { 1 } else { random.random_range(2..6) };
        let mut file = || (0..random.random_range(0..24)).map(|_| random.random_range(0..PIECES)).collect();
        let mut files: Vec<Vec<_>> = (0..files).map(|_| file()).collect();
        files[0].push(PIECES + own);
        Self { files }
    }

    fn bytes(file: &[u64]) -> Bytes {
        let mut bytes = Vec::with_capacity(file.len() * PIECE_BYTES);
        for piece in file {
            let mut random = [0; PIECE_BYTES];
            StdRng::seed_from_u64(*piece).fill(&mut random[..]);
            bytes.extend(random);
        }
        bytes.into()
    }

    async fn add(&self, node: &Node, unpinned: bool) -> Result<Cid> {
        let mut session = node.add(AddOptions { unpinned, ..options() }).await?;
        for (number, file) in self.files.iter().enumerate() {
            let path = if self.files.len() == 1 { "file".to_owned() } else { format!("d/{number}") };
            session.file(&path, Attributes::default(), content(Self::bytes(file)), |_| {}).await?;
        }
        Ok(session.finish().await?.pop().unwrap().cid)
    }

    /// Reads all files and compares them with the added content.
    async fn check(&self, node: &Node, root: Cid) {
        for (number, file) in self.files.iter().enumerate() {
            let path = if self.files.len() == 1 { path(root) } else { path(root).join(number.to_string()) };
            let object = node.resolve(path).await.unwrap();
            let ObjectKind::File(content) = &object.kind else { panic!("{root} is not a file") };
            let span = Span::whole(content.size());
            let read: Vec<Bytes> = node.read(content, span).try_collect().await.unwrap();
            assert!(read.concat() == Self::bytes(file), "file {number} of {root} is not what was added");
        }
    }
}

/// A thing and its state. A task that uses a slot locks it, but slots still share blocks.
#[derive(Debug)]
struct ShardLink {
    thing: Thing,
    cid: Option<Cid>,
    is_pinned: bool,
}

/// Performs one random operation on one random slot.
async fn work(node: &Node, slots: &[Mutex<ShardLink>], random: &mut StdRng) {
    let mut slot = slots[random.random_range(0..slots.len())].lock().await;
    match (random.random_range(0..100), slot.cid) {
        (0..25, _) => {
            slot.cid = Some(slot.thing.add(node, false).await.unwrap());
            slot.is_pinned = true;
        }
        (25..40, _) => slot.cid = Some(slot.thing.add(node, true).await.unwrap()),
        (40..60, Some(cid)) => match node.pin(&[path(cid)], &PinOptions::default(), |_| {}).await {
            Ok(_) => slot.is_pinned = true,
            // The block was removed by gc.
            Err(e) => assert!(e.kind() == ErrorKind::NotFound && !slot.is_pinned, "{e}"),
        },
        (60..80, Some(cid)) if slot.is_pinned => {
            node.unpin(&[path(cid)], true).await.unwrap();
            slot.is_pinned = false;
        }
        (80..85, Some(cid)) => {
            let removals = node.remove_blocks(&[cid], true).await.unwrap();
            assert!(!slot.is_pinned || removals[0].1.is_err(), "{cid} is pinned");
        }
        _ => {}
    }
    if let (Some(cid), true) = (slot.cid, slot.is_pinned) {
        slot.thing.check(node, cid).await;
    }
}

/// Returns the number of distinct blocks of these things.
async fn blocks_of(things: &[Thing]) -> u64 {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    for thing in things {
        thing.add(&node, false).await.unwrap();
    }
    node.stats().await.unwrap().blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gc_stress_keeps_exactly_the_pinned_blocks() {
    let seconds = std::env::var(SECONDS).map_or(3, |seconds| seconds.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    let mut random = StdRng::seed_from_u64(1);
    let mut slot = |own| Mutex::new(ShardLink { thing: Thing::random(&mut random, own), cid: None, is_pinned: false });
    let slots: Arc<Vec<_>> = Arc::new((0..SLOTS).map(&mut slot).collect());
    let workers: Vec<_> = (0..6)
        .map(|seed| {
            let (node, slots, mut random) = (node.clone(), slots.clone(), StdRng::seed_from_u64(100 + seed));
            tokio::spawn(async move {
                while Instant::now() < end {
                    work(&node, &slots, &mut random).await;
                }
            })
        })
        .collect();
    let (mut collections, mut removed) = (0, 0);
    while Instant::now() < end {
        removed += collect(&node).await.unwrap().removed;
        collections += 1;
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert!(collections > 2 && removed > 100, "{collections} collections removed {removed} blocks");

    // Most of the pinned blocks are removed; the others stay complete.
    let mut kept = Vec::new();
    for (number, slot) in slots.iter().enumerate() {
        let slot = slot.lock().await;
        if let (Some(cid), true) = (slot.cid, slot.is_pinned) {
            if number % 8 != 0 {
                node.unpin(&[path(cid)], true).await.unwrap();
            } else {
                kept.push((slot.thing.clone(), cid));
            }
        }
    }
    let before = node.stats().await.unwrap();
    collect(&node).await.unwrap();
    let after = node.stats().await.unwrap();
    let things: Vec<_> = kept.iter().map(|(thing, _)| thing.clone()).collect();
    assert_eq!(after.blocks, blocks_of(&things).await, "what is kept and nothing else");
    assert!(after.disk_bytes < before.disk_bytes, "{} of {} bytes are left", after.disk_bytes, before.disk_bytes);
    node.close().await.unwrap();
    let node = open(&repo).await;
    let pins: Vec<_> = node.pins(PinFilter::Recursive).try_collect().await.unwrap();
    assert_eq!(pins.len(), kept.len());
    for (thing, cid) in &kept {
        thing.check(&node, *cid).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_unpinned_blocks_that_an_import_reuses() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    // This is more than an import buffers, so most of it has reached the store before the last piece is read.
    let thing = Thing { files: vec![(0..2_000).collect()] };
    let garbage = thing.add(&node, true).await.unwrap();
    let blocks = node.stats().await.unwrap().blocks;
    let mut session = node.add(options()).await.unwrap();
    session.file("file", Attributes::default(), content(Thing::bytes(&thing.files[0])), |_| {}).await.unwrap();
    let collected = collect(&node).await.unwrap();
    assert!(collected.removed < blocks / 2, "{collected:?} of {blocks}");
    let root = session.finish().await.unwrap().pop().unwrap();
    assert_eq!(root.cid, garbage);
    collect(&node).await.unwrap();
    assert_eq!(node.stats().await.unwrap().blocks, blocks);
    thing.check(&node, garbage).await;
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_concurrent_with_gc_is_complete_or_fails() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    let thing = Thing { files: (0..200).map(|file| vec![file % PIECES, file / PIECES, 7]).collect() };
    let cid = thing.add(&node, true).await.unwrap();
    let (paths, options) = ([path(cid)], PinOptions::default());
    let is_begun = std::sync::atomic::AtomicBool::new(false);
    let pinning = node.pin(&paths, &options, |_| is_begun.store(true, std::sync::atomic::Ordering::Relaxed));
    let mut pinning = std::pin::pin!(pinning);
    // Runs until the first blocks have been visited.
    while !is_begun.load(std::sync::atomic::Ordering::Relaxed) {
        assert!(poll!(pinning.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    collect(&node).await.unwrap();
    match pinning.await {
        Ok(_) => thing.check(&node, cid).await,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
            assert!(node.pins(PinFilter::All).next().await.is_none());
        }
    }
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_gc_conflicts_until_the_first_is_dropped() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    for number in 0..3 {
        Thing { files: vec![vec![number]] }.add(&node, true).await.unwrap();
    }
    let (events, mut received) = mpsc::channel(1);
    let mut first: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(node.collect(false, events));
    let begun = async { assert_eq!(received.recv().await, Some(GcEvent::Marked(0))) };
    tokio::select! {
        _ = &mut first => panic!("it waits for whoever listens"),
        () = begun => {}
    }
    let refused: Error = collect(&node).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    drop(first);
    let collected = collect(&node).await.unwrap();
    assert_eq!((collected.kept, node.stats().await.unwrap().blocks), (0, 0));
    node.close().await.unwrap();
}

#[tokio::test]
async fn remove_blocks_refuses_pinned_block_under_any_codec() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    let thing = Thing { files: vec![vec![1, 2]] };
    let root = thing.add(&node, false).await.unwrap();
    let below: Vec<_> = node.pins(PinFilter::Indirect).map_ok(|(cid, _)| cid).try_collect().await.unwrap();
    let (direct, _) = node.put_block(put(codec::RAW, "direct")).await.unwrap();
    let only_it = PinOptions { recursive: false, ..PinOptions::default() };
    node.pin(&[path(direct)], &only_it, |_| {}).await.unwrap();
    for cid in below.into_iter().chain([root, direct]) {
        for codec in [codec::RAW, codec::DAG_PB, codec::DAG_CBOR] {
            let same = Cid::new_v1(codec, *cid.hash());
            let removals = node.remove_blocks(&[same], false).await.unwrap();
            let refused = removals[0].1.as_ref().unwrap_err();
            assert!(refused.message().starts_with("pinned"), "{same}: {refused}");
        }
    }
    thing.check(&node, root).await;
    node.close().await.unwrap();
}

#[tokio::test]
async fn remove_blocks_reports_duplicate_cid_as_missing() {
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    let (cid, _) = node.put_block(put(codec::RAW, "twice")).await.unwrap();
    let identity: Cid = "bafkqaa3bmjrq".parse().unwrap();
    let removals = node.remove_blocks(&[cid, cid, identity], false).await.unwrap();
    let kinds: Vec<_> = removals.into_iter().map(|(_, outcome)| outcome.err().map(|e| e.kind())).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::NotFound), None]);
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_of_a_million_leaves_is_pinned_and_kept_by_gc() {
    const LEAVES: u16 = 50_000;
    const NODES: u8 = 22;
    let repo = tempfile::tempdir().unwrap();
    let node = open(&repo).await;
    // Leaves with identity CIDs, so that they need not be stored.
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let mut list = [&[0x99][..], &LEAVES.to_be_bytes()].concat();
        for leaf in 0..LEAVES {
            list.extend([0xd8, 0x2a, 0x49, 0x00, 0x01, 0x55, 0x00, 0x04]);
            list.extend((u32::from(number) * u32::from(LEAVES) + u32::from(leaf)).to_be_bytes());
        }
        nodes.push(node.put_block(put(codec::DAG_CBOR, list)).await.unwrap().0);
    }
    let mut list = vec![0x80 | NODES];
    for node in &nodes {
        let cid = node.to_bytes();
        list.extend([0xd8, 0x2a, 0x58, cid.len() as u8 + 1, 0x00]);
        list.extend(cid);
    }
    let (root, _) = node.put_block(put(codec::DAG_CBOR, list)).await.unwrap();
    node.pin(&[path(root)], &PinOptions::default(), |_| {}).await.unwrap();
    let collected = collect(&node).await.unwrap();
    let blocks = u64::from(NODES) * (u64::from(LEAVES) + 1) + 1;
    assert_eq!((collected.kept, collected.removed), (blocks, 0));
    node.close().await.unwrap();
}

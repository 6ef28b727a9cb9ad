//! Changes of files, compared with imports of the result and with a model.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, Result, codec};
use ipfrs_unixfs::{
    BlockSink, BlockSource, Chunker, CidFormat, FileEdit, ImportOptions, Layout, Mtime, NewLink, Overrides,
};
use proptest::prelude::*;
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, watch};
use tokio::time::timeout;

use crate::harness::{Memory, import_file, random_bytes, read_file};

const NOW: Mtime = Mtime { seconds: 1_700_000_000, nanos: 0 };

fn v1() -> CidFormat {
    CidFormat::new(1, None).unwrap()
}

/// Stores an empty file and returns its content ID.
fn empty_file(store: &Memory, format: CidFormat) -> Cid {
    let block = FileEdit::empty(format).unwrap();
    let cid = *block.cid();
    store.insert(block);
    cid
}

async fn open(store: &Arc<Memory>, cid: &Cid) -> FileEdit {
    open_with(store, cid, Chunker::default()).await
}

async fn open_with<S: BlockSource + BlockSink + 'static>(store: &Arc<S>, cid: &Cid, chunker: Chunker) -> FileEdit {
    FileEdit::open(Arc::clone(store) as _, Arc::clone(store) as _, cid, None, chunker, NOW).await.unwrap()
}

/// Ends a change and returns the root and the number of new blocks.
async fn finish(store: &Memory, edit: FileEdit) -> (NewLink, usize) {
    let (link, blocks) = edit.finish().await.unwrap();
    let count = blocks.len();
    blocks.into_iter().for_each(|block| store.insert(block));
    (link, count)
}

async fn write(store: &Arc<Memory>, cid: &Cid, offset: u64, content: Bytes) -> (NewLink, usize) {
    let mut edit = open(store, cid).await;
    edit.seek(offset).await.unwrap();
    edit.write(content).await.unwrap();
    finish(store, edit).await
}

#[tokio::test]
async fn content_written_at_once_has_the_cid_of_a_trickle_import() {
    let content = random_bytes(5 * 1024 * 1024 + 12_345);
    for (format, raw_leaves) in [(CidFormat::V0, false), (v1(), true)] {
        for len in [1, 262_144, 262_145, 2 * 1024 * 1024, content.len()] {
            let store = Arc::new(Memory::default());
            let content = content.slice(..len);
            let overrides = Overrides {
                layout: Some(Layout::Trickle),
                cid_version: Some(format.version()),
                raw_leaves: Some(raw_leaves),
                ..Overrides::default()
            };
            let options = ImportOptions::new(None, overrides).unwrap();
            let (_, imported) = import_file(options, &content, 100_000).await;
            let (written, _) = write(&store, &empty_file(&store, format), 0, content.clone()).await;
            assert_eq!(read_file(&store, &written.cid), content);
            // A file of one raw leaf is that leaf.
            if !raw_leaves || len > 262_144 {
                assert_eq!((written.cid, written.tsize), (imported.cid, imported.tsize), "{len} bytes");
            }
        }
    }
}

#[tokio::test]
async fn content_written_in_pieces_is_split_every_2_mib() {
    const PART: usize = 2 * 1024 * 1024;
    let content = random_bytes(4 * PART + PART / 2 + 12_345);
    let chunkers = [Chunker::default(), Chunker::Size(10_000), Chunker::Buzhash];
    let settings = chunkers.into_iter().flat_map(|chunker| [(CidFormat::V0, chunker), (v1(), chunker)]);
    for (format, chunker) in settings {
        let mut files = Vec::new();
        for lens in [[PART, PART], [content.len(), 1], [1 << 20, 1 << 20], [100_000, 7], [70_000, 5_000_000]] {
            let store = Arc::new(Memory::default());
            let mut edit = open_with(&store, &empty_file(&store, format), chunker).await;
            let (mut written, mut lens) = (0, lens.into_iter().cycle());
            while written < content.len() {
                if files.is_empty() {
                    // Ends the part.
                    edit.seek(written as u64).await.unwrap();
                }
                let end = content.len().min(written + lens.next().unwrap());
                edit.write(content.slice(written..end)).await.unwrap();
                written = end;
                assert_eq!(edit.size(), written as u64);
            }
            let (file, _) = finish(&store, edit).await;
            assert_eq!(read_file(&store, &file.cid), content);
            files.push(file);
        }
        assert!(files.iter().all(|file| *file == files[0]), "{chunker}: {files:?}");
    }
}

/// A store in which each put takes some time.
#[derive(Default)]
struct Slow(Memory);

#[async_trait]
impl BlockSink for Slow {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.put(blocks).await
    }
}

#[async_trait]
impl BlockSource for Slow {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.0.block(cid).await
    }
}

#[tokio::test(start_paused = true)]
async fn leaf_that_is_being_stored_can_be_overwritten() {
    let store = Arc::new(Slow::default());
    let mut content = random_bytes(12 * 1024 * 1024).to_vec();
    let mut cid = empty_file(&store.0, v1());
    // The second write ends its parts in the middle of leaves.
    for (offset, written) in [(0, Bytes::from(content.clone())), (1_000, random_bytes(11 * 1024 * 1024 + 1))] {
        let mut edit = open_with(&store, &cid, Chunker::default()).await;
        edit.seek(offset).await.unwrap();
        edit.write(written.clone()).await.unwrap();
        cid = finish(&store.0, edit).await.0.cid;
        content[offset as usize..][..written.len()].copy_from_slice(&written);
        assert_eq!(read_file(&store.0, &cid), content);
    }
}

/// A store whose puts end four at a time.
struct Fours {
    blocks: Memory,
    four: Barrier,
    running: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl BlockSink for Fours {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.four.wait().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.blocks.put(blocks).await
    }
}

#[async_trait]
impl BlockSource for Fours {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.blocks.block(cid).await
    }
}

#[tokio::test(start_paused = true)]
async fn four_puts_are_in_progress_while_leaves_are_hashed() {
    let (blocks, four) = (Memory::default(), Barrier::new(4));
    let store = Arc::new(Fours { blocks, four, running: AtomicUsize::new(0), most: AtomicUsize::new(0) });
    let content = random_bytes(32 * 1024 * 1024);
    let mut edit = open_with(&store, &empty_file(&store.blocks, v1()), Chunker::default()).await;
    let written = async {
        edit.write(content.clone()).await.unwrap();
        finish(&store.blocks, edit).await.0.cid
    };
    let cid = timeout(Duration::from_secs(60), written).await.expect("puts wait for each other");
    assert_eq!(store.most.load(Ordering::SeqCst), 4);
    assert_eq!(read_file(&store.blocks, &cid), content);
}

/// A store whose puts do not end.
#[derive(Default)]
struct Stuck {
    blocks: Memory,
    /// Puts have receivers.
    puts: watch::Sender<()>,
}

#[async_trait]
impl BlockSink for Stuck {
    async fn put(&self, _: Vec<Block>) -> Result<()> {
        let _receiver = self.puts.subscribe();
        pending().await
    }
}

#[async_trait]
impl BlockSource for Stuck {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.blocks.block(cid).await
    }
}

#[tokio::test(start_paused = true)]
async fn puts_end_with_a_change_that_is_dropped() {
    let store = Arc::new(Stuck::default());
    let mut edit = open_with(&store, &empty_file(&store.blocks, v1()), Chunker::default()).await;
    edit.write(random_bytes(12 * 1024 * 1024)).await.unwrap();
    assert!(store.puts.receiver_count() > 0);
    drop(edit);
    timeout(Duration::from_secs(60), store.puts.closed()).await.expect("a put continues");
}

/// A store that keeps the order in which blocks are put.
#[derive(Default)]
struct Ordered {
    blocks: Memory,
    order: Mutex<Vec<Cid>>,
}

#[async_trait]
impl BlockSink for Ordered {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        self.order.lock().unwrap().extend(blocks.iter().map(|block| *block.cid()));
        self.blocks.put(blocks).await
    }
}

#[async_trait]
impl BlockSource for Ordered {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.blocks.block(cid).await
    }
}

#[tokio::test]
async fn leaves_are_stored_in_the_order_of_the_file() {
    let (store, content) = (Arc::new(Ordered::default()), random_bytes(9 * 1024 * 1024 + 1));
    let mut edit = open_with(&store, &empty_file(&store.blocks, v1()), Chunker::default()).await;
    edit.write(content.clone()).await.unwrap();
    let (_, rest) = edit.finish().await.unwrap();
    let mut stored = store.order.lock().unwrap().clone();
    stored.extend(rest.iter().map(|block| *block.cid()));
    stored.retain(|cid| cid.codec() == codec::RAW);
    let leaf = |data: &[u8]| Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::copy_from_slice(data)).unwrap();
    let leaves: Vec<_> = content.chunks(256 * 1024).map(|data| *leaf(data).cid()).collect();
    assert_eq!(stored, leaves);
}

#[tokio::test]
async fn write_creates_only_the_leaf_and_the_nodes_above_it() {
    let store = Arc::new(Memory::default());
    let content = random_bytes(10 * 262_144);
    let (file, _) = write(&store, &empty_file(&store, CidFormat::V0), 0, content.clone()).await;
    let (changed, blocks) = write(&store, &file.cid, 3 * 262_144 + 5, "changed".into()).await;
    assert_eq!(blocks, 2, "a leaf and the root");
    let mut expected = content.to_vec();
    expected[3 * 262_144 + 5..][..7].copy_from_slice(b"changed");
    assert_eq!(read_file(&store, &changed.cid), expected);
    let (_, blocks) = write(&store, &file.cid, content.len() as u64, "appended".into()).await;
    assert_eq!(blocks, 2, "a leaf and the root");
}

#[tokio::test]
async fn hole_over_the_limit_is_refused() {
    let store = Arc::new(Memory::default());
    let mut edit = open(&store, &empty_file(&store, CidFormat::V0)).await;
    edit.seek(600 * 4_096).await.unwrap();
    assert_eq!(edit.size(), 600 * 4_096);
    assert!(edit.seek(u64::MAX).await.is_err());
    let (file, blocks) = finish(&store, edit).await;
    assert!(blocks < 10, "equal leaves are one block: {blocks}");
    assert_eq!(read_file(&store, &file.cid), vec![0; 600 * 4_096]);
}

/// A step of the model test.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize),
    Truncate(u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || prop_oneof![0..3_000_u64, 0..900_000_u64, Just(262_144_u64)];
    let len = prop_oneof![0..2_000_usize, 200_000..700_000_usize];
    let step = prop_oneof![
        4 => (offset(), len).prop_map(|(offset, len)| Step::Write(offset, len)),
        2 => offset().prop_map(Step::Truncate),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn file_has_the_content_of_a_model(steps in steps(), version in 0..=1_i64, inline in any::<bool>()) {
        Runtime::new().unwrap().block_on(async {
            let noise = random_bytes(700_000);
            let format = CidFormat::new(version, None).unwrap();
            let (store, mut cid, mut model) = if inline {
                // The content of an imported file may be in its root.
                let (store, entry) = import_file(ImportOptions::default(), &noise.slice(..500), 500).await;
                (store, entry.cid, noise[..500].to_vec())
            } else {
                let store = Arc::new(Memory::default());
                let cid = empty_file(&store, format);
                (store, cid, Vec::new())
            };
            let mut edit = open(&store, &cid).await;
            for step in steps {
                match step {
                    Step::Write(offset, len) => {
                        edit.seek(offset).await.unwrap();
                        edit.write(noise.slice(..len)).await.unwrap();
                        let end = offset as usize + len;
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&noise[..len]);
                    }
                    Step::Truncate(size) => {
                        edit.truncate(size).await.unwrap();
                        model.resize(size as usize, 0);
                    }
                    Step::Reopen => {
                        cid = finish(&store, edit).await.0.cid;
                        edit = open(&store, &cid).await;
                    }
                }
            }
            cid = finish(&store, edit).await.0.cid;
            assert_eq!(read_file(&store, &cid), model);
        });
    }
}

#[tokio::test]
async fn new_content_is_split_by_the_chunker() {
    let content = random_bytes(300_000);
    for chunker in ["size-1000", "rabin-1024-4096-16384", "buzhash"] {
        let chunker: Chunker = chunker.parse().unwrap();
        let store = Arc::new(Memory::default());
        let empty = empty_file(&store, v1());
        let edit = FileEdit::open(Arc::clone(&store) as _, Arc::clone(&store) as _, &empty, None, chunker, NOW).await;
        let mut edit = edit.unwrap();
        edit.write(content.clone()).await.unwrap();
        let (file, _) = finish(&store, edit).await;
        let overrides = Overrides {
            cid_version: Some(1),
            chunker: Some(chunker),
            layout: Some(Layout::Trickle),
            ..Overrides::default()
        };
        let options = ImportOptions::new(None, overrides).unwrap();
        let (_, imported) = import_file(options, &content, 100_000).await;
        assert_eq!(file.cid, imported.cid, "{chunker}");
    }
}

//! The DAG reader compared with an oracle, and with invalid files.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::StreamExt;
use futures::{FutureExt, poll};
use ipfrs_core::{Block, Cid, ErrorKind};
use ipfrs_store::{BlockStore, MemoryStore};
use ipfrs_stream::{BlockStoreSource, DagReader, FlowControl, NodeCache, Span, StoreSink, StreamingConfig};
use ipfrs_unixfs::{BlockSink, BlockSource, Child};
use proptest::prelude::*;

use crate::dag::{directory, flat_file, node, node_of_size, pattern, raw, root};
use crate::runtime;
use crate::store::{CountingStore, memory};

const LEAF: usize = 256 * 1024;

/// The tree of a file, without its bytes.
#[derive(Debug, Clone)]
enum Shape {
    Raw(usize),
    Node(usize, Vec<Shape>),
}

fn shapes() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![(0..40_usize).prop_map(Shape::Raw), (0..40_usize).prop_map(|n| Shape::Node(n, Vec::new()))];
    leaf.prop_recursive(5, 60, 6, |inner| {
        // Inner nodes may hold bytes of their own too, as in trickle files.
        (prop_oneof![Just(0), 1..20_usize], prop::collection::vec(inner, 0..6))
            .prop_map(|(inline, children)| Shape::Node(inline, children))
    })
}

/// A file built from a shape: all of its blocks, its bytes, and the range of each block in the file.
#[derive(Debug, Default)]
struct Built {
    blocks: Vec<Block>,
    content: Vec<u8>,
    extents: Vec<(Cid, usize, usize)>,
}

impl Built {
    fn build(shape: &Shape) -> (Self, Block) {
        let mut built = Self::default();
        let root = built.add(shape);
        // The root is passed to the reader, which therefore never requests it.
        built.extents.pop();
        (built, root)
    }

    fn add(&mut self, shape: &Shape) -> Block {
        let start = self.content.len();
        let block = match shape {
            Shape::Raw(len) => raw(self.bytes(*len)),
            Shape::Node(len, children) => {
                let inline = self.bytes(*len);
                let children: Vec<_> = children
                    .iter()
                    .map(|child| {
                        let before = self.content.len();
                        (*self.add(child).cid(), (self.content.len() - before) as u64)
                    })
                    .collect();
                node(&inline, &children)
            }
        };
        self.extents.push((*block.cid(), start, self.content.len()));
        self.blocks.push(block.clone());
        block
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let bytes = pattern(self.content.len() as u64, len);
        self.content.extend(&bytes);
        bytes
    }
}

proptest! {
    #[test]
    fn reader_fetches_only_blocks_within_span(
        shape in shapes(), start in 0.0..1.0_f64, len in 0.0..1.0_f64, chunk_size in 1..50_u32,
    ) {
        let (built, root_block) = Built::build(&shape);
        let size = built.content.len();
        let start = (start * size as f64) as usize;
        let len = (len * (size - start + 1) as f64) as usize;
        let span = Span { start: start as u64, len: len as u64 };
        let config = StreamingConfig { chunk_size, ..StreamingConfig::default() };
        runtime().block_on(async {
            let store = memory(&built.blocks).await;
            let mut reader = DagReader::new(store.clone(), &root(&root_block), span, &config);
            let mut read = Vec::new();
            while let Some(piece) = reader.next().await {
                let piece = piece.unwrap();
                assert!(!piece.is_empty() && piece.len() <= chunk_size as usize);
                read.extend_from_slice(&piece);
                assert_eq!(reader.remaining(), (len - read.len()) as u64);
            }
            assert_eq!(read, &built.content[start..start + len]);
            let touched: HashSet<_> = built.extents.iter()
                .filter(|(_, from, to)| *from.max(&start) < *to.min(&(start + len)))
                .map(|(cid, ..)| *cid)
                .collect();
            assert_eq!(store.asked(), touched);
        });
    }
}

#[tokio::test]
async fn reader_stays_within_window_and_never_copies() {
    for flow_control in [FlowControl::Conservative, FlowControl::Balanced, FlowControl::Aggressive] {
        let window = flow_control.window_bytes();
        let blocks = flat_file(160, LEAF);
        let store = memory(&blocks).await;
        let file = root(blocks.last().unwrap());
        let config = StreamingConfig { flow_control, chunk_size: 100_000, ..StreamingConfig::default() };
        let mut reader = DagReader::new(store.clone(), &file, Span::whole(file.size), &config);
        assert_eq!(store.asked().len(), 0, "nothing is asked for before the first poll");
        let mut taken = 0;
        while let Some(piece) = reader.next().await {
            let piece = piece.unwrap();
            let leaf = &blocks[taken as usize / LEAF];
            let within = taken as usize % LEAF;
            assert_eq!(piece.as_ptr(), leaf.data()[within..].as_ptr());
            let asked = store.asked().len() as u64 * LEAF as u64;
            // The reader requested the blocks before this piece was taken.
            assert!(asked - taken <= window, "{flow_control:?}: {asked} asked for, {taken} taken");
            assert!(asked == file.size || asked - taken >= window / 2, "{flow_control:?}: {asked}, {taken}");
            taken += piece.len() as u64;
        }
        assert_eq!(taken, file.size);
        assert_eq!(store.fetched_bytes(), file.size, "each block is fetched once");
    }
}

#[tokio::test]
async fn dropping_pending_reader_cancels_requests() {
    let blocks = flat_file(8, LEAF);
    let file = root(blocks.last().unwrap());
    let store = Arc::new(CountingStore { stalled: true, ..CountingStore::new(MemoryStore::default()) });
    let span = Span::whole(file.size);
    let mut reader = DagReader::new(store.clone(), &file, span, &StreamingConfig::default());
    assert!(poll!(reader.next()).is_pending());
    assert_eq!((store.asked().len(), Arc::strong_count(&store.under_way)), (8, 2));
    drop(reader);
    assert_eq!(Arc::strong_count(&store.under_way), 1);
}

#[tokio::test]
async fn reader_poll_reads_bounded_number_of_nodes() {
    let mut blocks = vec![raw(&b"x"[..])];
    for _ in 0..100 {
        let below = blocks.last().unwrap();
        blocks.push(node(&[], &[(*below.cid(), 1)]));
    }
    let chain = *blocks.last().unwrap().cid();
    let top = node(&[], &vec![(chain, 1); 1000]);
    let largest = blocks.iter().map(|block| block.data().len() as u64).max().unwrap();
    let store = memory(&blocks).await;
    let mut reader = DagReader::new(store.clone(), &root(&top), Span::whole(1000), &StreamingConfig::default());
    let mut fetched = 0;
    for _ in 0..5 {
        // All blocks are available, so only the reader's own limit ends a poll.
        while poll!(reader.next()).is_ready() {}
        let now = store.fetched_bytes();
        assert!(now > fetched && now - fetched <= 256 * largest, "{fetched} bytes, then {now}");
        fetched = now;
        tokio::task::yield_now().await;
    }
    let rest: Vec<_> = reader.by_ref().map(Result::unwrap).collect().await;
    assert!(!rest.is_empty() && rest.concat().iter().all(|byte| *byte == b'x'));
    assert_eq!(reader.remaining(), 0);
}

#[tokio::test]
async fn reader_limits_lookups_after_interrupted_run() {
    let leaf = raw(&b"x"[..]);
    let (small_leaf, small_node) = (node(b"x", &[]), node(&[], &[(*leaf.cid(), 1)]));
    let pair = [(*small_leaf.cid(), 1), (*small_node.cid(), 1)];
    let top = node(&[], &pair.repeat(500));
    let store = memory(&[leaf, small_leaf, small_node]).await;
    let reader = DagReader::new(store.clone(), &root(&top), Span::whole(1000), &StreamingConfig::default());
    assert_eq!(reader.map(Result::unwrap).collect::<Vec<_>>().await.concat(), vec![b'x'; 1000]);
    let looked_up = store.looked_up.load(Ordering::SeqCst);
    assert!(looked_up < 4 * 1500 + 256, "{looked_up} lookups for 1,500 blocks");
}

#[test]
fn large_nodes_are_decoded_on_blocking_thread() {
    let leaf = node(&pattern(1, LEAF), &[]);
    let large = node(&[], &vec![(*raw(&b"x"[..]).cid(), 1); 4000]);
    let top = node(&[], &[(*leaf.cid(), LEAF as u64), (*large.cid(), 4000), (*large.cid(), 4000)]);
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        let store = memory(&[leaf.clone(), large.clone(), raw(&b"x"[..])]).await;
        let file = root(&top);
        let mut reader = DagReader::new(store.clone(), &file, Span::whole(file.size), &StreamingConfig::default());
        assert_eq!(reader.next().await.unwrap().unwrap(), pattern(1, LEAF));
        for _ in 0..10 {
            assert!(poll!(reader.next()).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(store.fetched_bytes(), (leaf.data().len() + large.data().len()) as u64);
        drop(release);
        assert!(busy.await.unwrap().is_err());
        let rest: Vec<_> = reader.map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), vec![b'x'; 8000]);
    });
}

#[test]
fn a_file_in_its_root_block_never_asks_the_store() {
    for content in [&b""[..], b"hello, block"] {
        for block in [raw(content.to_vec()), node(content, &[])] {
            // Without a Tokio runtime and with a waker that never fires, everything must be ready at once.
            let store = Arc::new(CountingStore { stalled: true, ..CountingStore::new(MemoryStore::default()) });
            let span = Span::within(content.len() as u64, 7, None);
            let reader = DagReader::new(store.clone(), &root(&block), span, &StreamingConfig::default());
            let read: Vec<_> = reader.map(Result::unwrap).collect().now_or_never().unwrap();
            assert_eq!(read.concat(), content.get(7..).unwrap_or_default());
            assert_eq!(store.asked().len(), 0);
        }
    }
}

/// Returns the bytes that a reader of the whole file yields, and the error that ends the stream.
async fn read_broken(root_block: &Block, blocks: &[Block]) -> (Vec<u8>, ErrorKind, String) {
    let file = root(root_block);
    let store = memory(blocks).await;
    let mut reader = DagReader::new(store, &file, Span::whole(file.size), &StreamingConfig::default());
    let mut read = Vec::new();
    loop {
        match reader.next().await {
            Some(Ok(piece)) => read.extend_from_slice(&piece),
            Some(Err(error)) => {
                assert!(reader.next().await.is_none(), "nothing follows an error");
                return (read, error.kind(), error.message().to_owned());
            }
            None => panic!("the file was read to its end: {} bytes", read.len()),
        }
    }
}

#[tokio::test]
async fn reader_missing_block_fails_after_preceding_bytes() {
    let (first, missing, last) = (raw(pattern(1, 1000)), raw(pattern(2, 1000)), raw(pattern(3, 1000)));
    let top = node(b"top", &[&first, &missing, &last].map(|leaf| (*leaf.cid(), 1000)));
    let (read, kind, message) = read_broken(&top, &[first.clone(), last]).await;
    assert_eq!(read, [b"top", &first.data()[..]].concat());
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(message.contains(&missing.cid().to_string()) && message.contains("byte 1003"), "{message}");
}

#[tokio::test]
async fn reader_fails_before_bytes_of_mismatched_block() {
    let good = raw(pattern(1, 100));
    let inner_that_lies = node_of_size(100, b"five!", &[(*good.cid(), 100)]);
    for bad in [
        raw(pattern(2, 101)),
        raw(pattern(2, 99)),
        node(&pattern(3, 101), &[]),
        node(&pattern(3, 99), &[]),
        node(b"too much", &[(*good.cid(), 100)]),
        inner_that_lies,
        node_of_size(100, &pattern(4, 50), &[]),
        directory(),
        Block::trusted(*node(b"x", &[]).cid(), pattern(5, 100).into()),
    ] {
        let blocks = [good.clone(), bad.clone()];
        let top = node(&[], &[&good, &bad, &good].map(|leaf| (*leaf.cid(), 100)));
        let (read, found, message) = read_broken(&top, &blocks).await;
        assert_eq!((&read[..], found), (&good.data()[..], ErrorKind::InvalidContent), "{message}");
        assert!(message.contains(&bad.cid().to_string()), "{message}");
    }
}

#[tokio::test]
async fn a_root_whose_parts_are_not_its_size_is_refused() {
    let leaf = raw(pattern(1, 100));
    for children in [vec![(*leaf.cid(), 100)], vec![(*leaf.cid(), u64::MAX), (*leaf.cid(), 2)]] {
        let mut file = root(&leaf);
        let mut end = file.size;
        let mut child = |(cid, size)| {
            end = end.wrapping_add(size);
            Child { cid, size, end }
        };
        file.children = children.into_iter().map(&mut child).collect();
        let store = memory(std::slice::from_ref(&leaf)).await;
        let mut reader = DagReader::new(store, &file, Span::whole(100), &StreamingConfig::default());
        assert_eq!(reader.next().await.unwrap().unwrap_err().kind(), ErrorKind::InvalidContent);
        assert!(reader.next().await.is_none());
    }
}

#[tokio::test]
async fn reader_reads_deep_file_for_any_child_position() {
    const LEVELS: u64 = 100_000;
    let leaf = raw(&b"leaf"[..]);
    for is_last in [true, false] {
        let mut blocks = vec![leaf.clone()];
        for level in 1..=LEVELS {
            let mut children = [(*blocks.last().unwrap().cid(), 4 * level), (*leaf.cid(), 4)];
            if is_last {
                children.reverse();
            }
            blocks.push(node(&[], &children));
        }
        let (file, size) = (root(blocks.last().unwrap()), 4 * (LEVELS + 1));
        let store = memory(&blocks).await;
        let reader = DagReader::new(store, &file, Span::whole(size), &StreamingConfig::default());
        let read: Vec<_> = reader.map(Result::unwrap).collect().await;
        assert!(read.concat() == b"leaf".repeat(LEVELS as usize + 1), "{is_last}");
    }
}

#[tokio::test]
async fn depth_links_and_spans_have_limits() {
    let most = 64;
    let config = StreamingConfig { max_dag_depth: most, ..StreamingConfig::default() };
    let mut chain = vec![raw(&b"deep"[..])];
    for depth in 1..=most + 1 {
        let below = chain.last().unwrap();
        chain.push(node(&[], &[(*below.cid(), 4)]));
        let reader = |blocks| DagReader::new(blocks, &root(chain.last().unwrap()), Span::whole(4), &config);
        if depth == most {
            let read: Vec<_> = reader(memory(&chain).await).map(Result::unwrap).collect().await;
            assert_eq!(read.concat(), b"deep");
        }
        if depth == most + 1 {
            let error = reader(memory(&chain).await).next().await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        }
    }

    // Consecutive nodes with tens of thousands of links each. The first child of each node is the next node.
    let leaf = raw(&b"x"[..]);
    let mut wide = vec![leaf.clone()];
    for _ in 0..6 {
        let below = root(wide.last().unwrap()).size;
        let first = (*wide.last().unwrap().cid(), below);
        let children: Vec<_> = std::iter::once(first).chain((0..40_000).map(|_| (*leaf.cid(), 1))).collect();
        wide.push(node(&[], &children));
    }
    let (read, kind, message) = read_broken(wide.last().unwrap(), &wide).await;
    assert_eq!((read.len(), kind), (0, ErrorKind::TooLarge), "{message}");

    let beyond = Span { start: 3, len: 2 };
    let mut reader = DagReader::new(memory(&[]).await, &root(&node(b"four", &[])), beyond, &StreamingConfig::default());
    assert_eq!(reader.next().await.unwrap().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(reader.next().await.is_none());
}

/// Creates a file of two levels: `nodes` inner nodes of `leaves` leaves of ten bytes each. The root is the last
/// block, and the inner nodes precede it.
fn deep_file(nodes: u64, leaves: u64) -> Vec<Block> {
    let (mut blocks, mut inner) = (Vec::new(), Vec::new());
    for at in 0..nodes {
        let below: Vec<_> = (0..leaves).map(|leaf| raw(pattern(at * leaves + leaf, 10))).collect();
        inner.push(node(&[], &below.iter().map(|leaf| (*leaf.cid(), 10)).collect::<Vec<_>>()));
        blocks.extend(below);
    }
    let top = node(&[], &inner.iter().map(|node| (*node.cid(), leaves * 10)).collect::<Vec<_>>());
    blocks.extend(inner);
    blocks.push(top);
    blocks
}

async fn read_part(store: &Arc<CountingStore<MemoryStore>>, nodes: &Arc<NodeCache>, start: u64) -> Vec<Cid> {
    let file = root(&deep_file(3, 4)[15]);
    store.asked.lock().unwrap().clear();
    let span = Span { start, len: 10 };
    let reader = DagReader::new(store.clone(), &file, span, &StreamingConfig::default());
    let read: Vec<_> = reader.with_nodes(Some(nodes.clone())).map(Result::unwrap).collect().await;
    assert_eq!(read.concat(), pattern(start / 10, 10));
    store.asked().into_iter().collect()
}

#[tokio::test]
async fn node_cache_hits_until_a_block_is_removed() {
    let blocks = deep_file(3, 4);
    let store = memory(&blocks).await;
    let nodes = Arc::new(NodeCache::new(store.clone(), 1 << 20));
    assert_eq!(read_part(&store, &nodes, 0).await.len(), 2);
    assert_eq!(read_part(&store, &nodes, 20).await, [*blocks[2].cid()]);
    assert_eq!(read_part(&store, &nodes, 50).await.len(), 2, "of another inner node");
    let (hits, misses, bytes) = nodes.counts();
    assert_eq!((hits, misses), (1, 2));
    assert!((1_000..10_000).contains(&bytes), "{bytes}");

    // Once the inner node of the first part is deleted, the reader must not use its cached links.
    store.delete_many(&[*blocks[12].cid()]).await.unwrap();
    let reader = DagReader::new(store.clone(), &root(&blocks[15]), Span::whole(40), &StreamingConfig::default());
    let failed = reader.with_nodes(Some(nodes.clone())).next().await.unwrap().unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::NotFound);
    assert!(failed.message().contains(&blocks[12].cid().to_string()), "{}", failed.message());
    assert_eq!(read_part(&store, &nodes, 60).await.len(), 2, "another node is read anew");
    assert_eq!(read_part(&store, &nodes, 70).await.len(), 1);
}

#[tokio::test]
async fn node_cache_stays_within_its_size() {
    let leaf = raw(&b"x"[..]);
    let wide = |links: usize| node(&[], &vec![(*leaf.cid(), 1); links]);
    let blocks: Vec<_> = (1_000..1_040).chain([40_000]).map(wide).chain([leaf.clone()]).collect();
    let store = memory(&blocks).await;
    let nodes = Arc::new(NodeCache::new(store.clone(), 1 << 20));
    for inner in &blocks[..41] {
        let size = root(inner).size;
        let top = root(&node(&[], &[(*inner.cid(), size)]));
        let reader = DagReader::new(store.clone(), &top, Span { start: size - 1, len: 1 }, &StreamingConfig::default());
        let read: Vec<_> = reader.with_nodes(Some(nodes.clone())).map(Result::unwrap).collect().await;
        assert_eq!(read.concat(), b"x");
    }
    let (_, misses, bytes) = nodes.counts();
    assert_eq!(misses, 41);
    assert!(bytes > 0 && bytes <= 1 << 20, "{bytes}");
}

#[tokio::test]
async fn a_store_is_a_source_and_a_sink_of_unixfs_blocks() {
    let store: Arc<dyn BlockStore> = Arc::new(MemoryStore::default());
    let (block, absent) = (raw(&b"in"[..]), raw(&b"out"[..]));
    StoreSink(store.clone()).put(vec![block.clone()]).await.unwrap();
    let source = BlockStoreSource(store);
    assert_eq!(source.block(block.cid()).await.unwrap(), block.data());
    let error = source.block(absent.cid()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains(&absent.cid().to_string()));
}

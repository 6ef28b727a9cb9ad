//! Walks over parts of DAGs, with and without repeated blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::StreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use ipfrs_store::MemoryStore;
use ipfrs_stream::{DagWalk, Part, Span, StreamingConfig};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{Node, decode};
use proptest::prelude::*;

use crate::dag::{node, pattern, raw};
use crate::runtime;
use crate::store::{CountingStore, memory};

fn along(store: &Arc<CountingStore<MemoryStore>>, path: &[Cid], target: Cid, part: Part, repeats: bool) -> DagWalk {
    DagWalk::along(store.clone(), path.to_vec(), target, part, repeats, &StreamingConfig::default())
}

async fn order(walk: DagWalk) -> Vec<Cid> {
    walk.map(|block| *block.unwrap().cid()).collect().await
}

/// Generates files whose nodes share parts at every level. The last block is the root.
fn files() -> impl Strategy<Value = Vec<Block>> {
    let node_of = (prop::collection::vec(any::<prop::sample::Index>(), 1..5), 0..3_usize);
    let leaves = prop::collection::vec(1..40_usize, 1..4);
    (leaves, prop::collection::vec(node_of, 1..12)).prop_map(|(leaves, nodes)| {
        let leaf = |(at, len): (usize, &usize)| raw(pattern(at as u64, *len));
        let mut blocks: Vec<Block> = leaves.iter().enumerate().map(leaf).collect();
        for (at, (children, inline)) in nodes.into_iter().enumerate() {
            // Nodes mostly link to recent blocks, so that files become deep, and the size is bounded.
            let recent = blocks.len().min(5);
            let pick = |index: &prop::sample::Index| &blocks[blocks.len() - 1 - index.index(recent)];
            let children: Vec<_> = children.iter().map(|index| (*pick(index).cid(), size(pick(index)))).collect();
            if children.iter().map(|(_, size)| size).sum::<u64>() < 4_000 {
                blocks.push(node(&pattern(at as u64, inline), &children));
            }
        }
        blocks
    })
}

fn size(block: &Block) -> u64 {
    match decode(block.cid(), block.data()).unwrap() {
        Node::File(file) => file.size,
        _ => panic!("all are files"),
    }
}

/// Collects, by recursion, the blocks with bytes from `from` up to `to`, each time that the walk meets them.
fn plain(cid: &Cid, blocks: &[Block], offset: u64, (from, to): (u64, u64), order: &mut Vec<Cid>) {
    order.push(*cid);
    let block = blocks.iter().find(|block| block.cid() == cid).unwrap();
    let Node::File(file) = decode(cid, block.data()).unwrap() else { panic!("all are files") };
    let mut start = offset + file.inline.len() as u64;
    for child in file.children.iter_from(0) {
        if start.max(from) < (start + child.size).min(to) {
            plain(&child.cid, blocks, start, (from, to), order);
        }
        start += child.size;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn walk_of_span_yields_only_needed_nodes(
        blocks in files(), start in any::<prop::sample::Index>(), len in any::<prop::sample::Index>()
    ) {
        let root = blocks.last().unwrap();
        let start = start.index(size(root) as usize) as u64;
        let len = len.index((size(root) - start) as usize) as u64 + 1;
        let mut expected = Vec::new();
        plain(root.cid(), &blocks, 0, (start, start + len), &mut expected);
        runtime().block_on(async {
            let store = memory(&blocks).await;
            let part = Part::Bytes(Span { start, len });
            assert_eq!(order(along(&store, &[], *root.cid(), part, true)).await, expected);
            let once = order(along(&store, &[], *root.cid(), part, false)).await;
            // A block that precedes the span in one place and is within it in another is not left out.
            let mut first_visits = Vec::new();
            expected.iter().for_each(|cid| if !first_visits.contains(cid) { first_visits.push(*cid) });
            assert_eq!(once, first_visits);
        });
    }
}

#[tokio::test]
async fn walk_along_path_yields_path_then_target_part() {
    let leaf = raw(&b"leaf"[..]);
    let file = node(b"inline", &[(*leaf.cid(), 4)]);
    let links = [PbLink { cid: *file.cid(), name: "name".into(), tsize: 0 }];
    let data = b"\x08\x01";
    let folder = Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, dag_pb::encode(&links, data)).unwrap();
    let plain = Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, dag_pb::encode(&links, b"")).unwrap();
    let store = memory(&[leaf.clone(), file.clone(), folder.clone(), plain.clone()]).await;
    let [leaf, file, folder, plain] = [leaf, file, folder, plain].map(|block| *block.cid());
    let all = Part::Bytes(Span::whole(10));
    for (path, target, part, expected) in [
        (&[][..], file, Part::All, &[file, leaf][..]),
        (&[folder], file, Part::Block, &[folder, file]),
        (&[plain, folder], file, Part::Entity, &[plain, folder, file, leaf]),
        (&[], folder, Part::Entity, &[folder]),
        (&[], folder, all, &[folder]),
        (&[], folder, Part::All, &[folder, file, leaf]),
        (&[], plain, Part::Entity, &[plain]),
        (&[], plain, Part::All, &[plain, file, leaf]),
        (&[], file, all, &[file, leaf]),
        (&[], file, Part::Bytes(Span::whole(6)), &[file]),
        (&[], file, Part::Bytes(Span::default()), &[file]),
    ] {
        for repeats in [false, true] {
            assert_eq!(order(along(&store, path, target, part, repeats)).await, expected, "{part:?} of {target}");
        }
    }
}

#[tokio::test]
async fn walk_with_repeats_requests_blocks_lazily() {
    let mut chain = vec![raw(pattern(1, 100))];
    for _ in 0..60 {
        let child = (*chain.last().unwrap().cid(), 0);
        chain.push(node(&[], &[child, child]));
    }
    let store = memory(&chain).await;
    let mut walk = along(&store, &[], *chain.last().unwrap().cid(), Part::All, true);
    for _ in 0..10_000 {
        walk.next().await.unwrap().unwrap();
    }
    let looked_up = store.looked_up.load(Ordering::SeqCst);
    assert!((10_000..30_000).contains(&looked_up), "{looked_up}: bounded by what waits to be taken");

    let leaf = raw(pattern(2, 100));
    let zeros = node(&[], &[(*leaf.cid(), 100); 600]);
    let store = memory(&[leaf, zeros.clone()]).await;
    assert_eq!(order(along(&store, &[], *zeros.cid(), Part::Entity, true)).await.len(), 601);
    assert_eq!(store.asks.load(Ordering::SeqCst), 1 + 3, "256 at once");
}

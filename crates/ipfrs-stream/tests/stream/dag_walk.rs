//! The walk over all blocks of a DAG, compared with a simple recursive walk.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::poll;
use futures::stream::StreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, Error, ErrorKind, codec, identity_payload};
use ipfrs_store::{BlockStore, MemoryStore};
use ipfrs_stream::{DagWalk, FlowControl, Part, StreamingConfig};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use proptest::prelude::*;

use crate::dag::{flat_file, pattern, raw};
use crate::runtime;
use crate::store::{CountingStore, memory};

/// Creates a dag-pb node of any hash function that links to `links`.
fn pb(hash: HashFunction, links: &[Cid], data: &[u8]) -> Block {
    let links: Vec<_> = links.iter().map(|cid| PbLink { cid: *cid, name: "".into(), tsize: 0 }).collect();
    Block::hash(1, codec::DAG_PB, hash, dag_pb::encode(&links, data)).unwrap()
}

fn identity(data: &[u8]) -> Block {
    Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::copy_from_slice(data)).unwrap()
}

fn links(cid: &Cid, data: &Bytes) -> Vec<Cid> {
    ipfrs_unixfs::links(cid, data).unwrap().iter().collect()
}

/// Collects the blocks in the order of the specification, by recursion.
fn plain(root: &Cid, blocks: &[Block], seen: &mut HashSet<Cid>, order: &mut Vec<Cid>) {
    let payload = identity_payload(root).map(Bytes::copy_from_slice);
    if !seen.insert(*root) {
        return;
    }
    order.push(*root);
    let stored = || blocks.iter().find(|block| block.cid() == root).unwrap().data().clone();
    for link in links(root, &payload.unwrap_or_else(stored)) {
        plain(&link, blocks, seen, order);
    }
}

/// Returns the least number of links to each stored block, level by level.
fn distances(root: &Cid, blocks: &[Block]) -> HashMap<Cid, u32> {
    let (mut found, mut level) = (HashMap::new(), HashSet::from([*root]));
    for depth in 0_u32.. {
        level.retain(|cid| !found.contains_key(cid));
        found.extend(level.iter().map(|cid| (*cid, depth)));
        let stored = |cid: &Cid| blocks.iter().find(|block| block.cid() == cid).map(|block| block.data().clone());
        let payload = |cid: &Cid| identity_payload(cid).map(Bytes::copy_from_slice).or_else(|| stored(cid)).unwrap();
        level = level.iter().flat_map(|cid| links(cid, &payload(cid))).collect();
        if level.is_empty() {
            break;
        }
    }
    found.retain(|cid, _| identity_payload(cid).is_none());
    found
}

async fn walked(walk: &mut DagWalk) -> (Vec<Cid>, Option<Error>) {
    let mut order = Vec::new();
    while let Some(block) = walk.next().await {
        match block {
            Ok(block) => order.push(*block.cid()),
            Err(error) => {
                assert!(walk.next().await.is_none(), "nothing follows an error");
                return (order, Some(error));
            }
        }
    }
    (order, None)
}

fn walk(store: &Arc<CountingStore<MemoryStore>>, root: &Block) -> DagWalk {
    DagWalk::new(store.clone(), vec![*root.cid()], &StreamingConfig::default())
}

/// Generates nodes that link to any of the earlier nodes, so that the walk meets many of them more than once. The
/// last one is the root.
fn dags() -> impl Strategy<Value = Vec<Block>> {
    let node = (prop::collection::vec(any::<prop::sample::Index>(), 0..12), 0..4_u8);
    prop::collection::vec(node, 1..60).prop_map(|nodes| {
        let mut blocks: Vec<Block> = vec![raw(&b"leaf"[..])];
        for (at, (links, kind)) in nodes.into_iter().enumerate() {
            let links: Vec<_> = links.iter().map(|index| *blocks[index.index(blocks.len())].cid()).collect();
            blocks.push(match kind {
                0 => raw(pattern(at as u64, at * 1000)),
                // A digest is at most 128 bytes long, so one link to another block fits.
                1 => {
                    let is_digest = |link: &&Cid| identity_payload(link).is_none();
                    let link: Vec<_> = links.iter().find(is_digest).copied().into_iter().collect();
                    pb(HashFunction::Identity, &link, b"")
                }
                _ => pb(HashFunction::Sha2_256, &links, &[at as u8]),
            });
        }
        let all: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        blocks.push(pb(HashFunction::Sha2_256, &all.iter().rev().copied().collect::<Vec<_>>(), b"root"));
        blocks
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_block_comes_once_in_the_order_of_the_specification(blocks in dags()) {
        let root = blocks.last().unwrap();
        let mut expected = Vec::new();
        plain(root.cid(), &blocks, &mut HashSet::new(), &mut expected);
        runtime().block_on(async {
            let store = memory(&blocks).await;
            let (order, error) = walked(&mut walk(&store, root)).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!(order, expected);
        });
    }

    #[test]
    fn walk_of_available_blocks_leaves_out_what_only_missing_ones_lead_to(
        blocks in dags(),
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let (root, others) = blocks.split_last().unwrap();
        let missing: HashSet<Cid> = missing.iter().filter(|_| !others.is_empty())
            .map(|index| *index.get(others).cid()).filter(|cid| identity_payload(cid).is_none()).collect();
        let available: Vec<_> = blocks.iter().filter(|block| !missing.contains(block.cid())).cloned().collect();
        let mut expected = Vec::new();
        // Missing blocks count as seen.
        plain(root.cid(), &blocks, &mut missing.clone(), &mut expected);
        runtime().block_on(async {
            let store = memory(&available).await;
            let roots = vec![*root.cid()];
            let (order, error) =
                walked(&mut DagWalk::of_available(store, roots, &StreamingConfig::default())).await;
            assert!(error.is_none(), "{error:?}");
            assert_eq!(order, expected);
        });
    }

    #[test]
    fn walk_of_levels_reads_only_blocks_within_them(
        blocks in dags(),
        levels in 0..6_u32,
    ) {
        let root = blocks.last().unwrap();
        let mut expected = distances(root.cid(), &blocks);
        expected.retain(|_, depth| *depth <= levels);
        runtime().block_on(async {
            // The store does not have the blocks beyond the last level.
            let near: Vec<_> = blocks.iter().filter(|block| expected.contains_key(block.cid())).cloned().collect();
            let store = memory(&near).await;
            let config = StreamingConfig::default();
            let walk = DagWalk::along(store, Vec::new(), *root.cid(), Part::Levels(levels), false, &config);
            let given: Vec<_> = walk.with_depths().map(|block| block.unwrap()).collect().await;
            assert_eq!(given.len(), expected.len());
            for (block, depth) in given {
                assert!(expected[block.cid()] <= depth && depth <= levels);
            }
        });
    }
}

#[tokio::test]
async fn walk_batches_children_and_skips_visited_ones() {
    let shared = raw(&b"shared"[..]);
    let leaves: Vec<_> = (0..500).map(|seed| raw(pattern(seed, 100))).collect();
    let below = pb(HashFunction::Sha2_256, &[*shared.cid()], b"");
    let links: Vec<_> = [&below, &shared].into_iter().chain(&leaves).map(|block| *block.cid()).collect();
    let root = pb(HashFunction::Sha2_256, &links, b"");
    let store = memory(&[&[shared.clone(), below.clone(), root.clone()], &leaves[..]].concat()).await;
    let (order, error) = walked(&mut walk(&store, &root)).await;
    assert!(error.is_none(), "{error:?}");
    let expected = [&root, &below, &shared].into_iter().chain(&leaves).map(|block| *block.cid());
    assert_eq!(order, expected.collect::<Vec<_>>());
    // The root, two runs of its links, and the one link of the node below it.
    assert_eq!((store.asks.load(Ordering::SeqCst), store.looked_up.load(Ordering::SeqCst)), (4, 1 + 502 + 1));
    let zeros = pb(HashFunction::Sha2_256, &[*shared.cid(); 5000], b"");
    let store = memory(&[shared, zeros.clone()]).await;
    assert_eq!(walked(&mut walk(&store, &zeros)).await.0.len(), 2);
    assert_eq!(
        store.looked_up.load(Ordering::SeqCst),
        2,
        "a block that is linked to again and again is asked for once"
    );
}

#[tokio::test]
async fn walk_requests_links_of_small_neighbours_together() {
    // As in a large sharded directory: 200 nodes, each with two leaves of its own.
    let mut blocks = Vec::new();
    for node in 0..200 {
        let leaves = [0, 1].map(|leaf| raw(pattern(2 * node + leaf, 100)));
        let links = leaves.each_ref().map(|leaf| *leaf.cid());
        blocks.extend(leaves);
        blocks.push(pb(HashFunction::Sha2_256, &links, b""));
    }
    let nodes: Vec<_> = blocks.iter().skip(2).step_by(3).map(|block| *block.cid()).collect();
    let root = pb(HashFunction::Sha2_256, &nodes, b"");
    blocks.push(root.clone());
    let store = memory(&blocks).await;
    let (order, error) = walked(&mut walk(&store, &root)).await;
    assert!(error.is_none(), "{error:?}");
    let mut expected = Vec::new();
    plain(root.cid(), &blocks, &mut HashSet::new(), &mut expected);
    assert_eq!(order, expected);
    // The root, its links, and those of the 16 nodes of each batch that the store returns.
    let (asks, looked_up) = (store.asks.load(Ordering::SeqCst), store.looked_up.load(Ordering::SeqCst));
    assert_eq!((asks, looked_up), (1 + 1 + 13, 1 + 200 + 400));
}

#[tokio::test]
async fn walk_requests_chains_of_small_nodes_once() {
    // Each of 100 nodes begins a chain. The links of the nodes are requested together, those further down are not.
    let (mut blocks, mut heads) = (Vec::new(), Vec::new());
    for chain in 0..100 {
        let leaf = raw(pattern(chain, 100));
        let middle = pb(HashFunction::Sha2_256, &[*leaf.cid()], b"middle");
        let head = pb(HashFunction::Sha2_256, &[*middle.cid()], b"head");
        heads.push(*head.cid());
        blocks.extend([leaf, middle, head]);
    }
    let root = pb(HashFunction::Sha2_256, &heads, b"");
    blocks.push(root.clone());
    let store = memory(&blocks).await;
    assert_eq!(walked(&mut walk(&store, &root)).await.0.len(), 301);
    assert_eq!(store.looked_up.load(Ordering::SeqCst), 301);
}

#[tokio::test]
async fn walk_missing_block_fails_after_preceding_blocks() {
    for missing in [0, 3, 6] {
        let mut blocks = flat_file(6, 1000);
        let absent = blocks.remove(missing);
        let root = if missing == 6 { absent.clone() } else { blocks.last().unwrap().clone() };
        let store = memory(&blocks).await;
        let (order, error) = walked(&mut walk(&store, &root)).await;
        assert_eq!(order.len(), if missing == 6 { 0 } else { 1 + missing });
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains(&absent.cid().to_string()), "{error}");
        assert!(
            missing == 6 || error.message().contains(&root.cid().to_string()),
            "it says where the link is: {error}"
        );
    }
}

#[tokio::test]
async fn walk_fails_at_the_missing_block_of_a_neighbour() {
    let (mut blocks, mut nodes) = (Vec::new(), Vec::new());
    for node in 0..10 {
        let leaves = [0, 1].map(|leaf| raw(pattern(2 * node + leaf, 100)));
        let links = leaves.each_ref().map(|leaf| *leaf.cid());
        blocks.extend(leaves);
        blocks.push(pb(HashFunction::Sha2_256, &links, b""));
        nodes.push(*blocks.last().unwrap().cid());
    }
    let root = pb(HashFunction::Sha2_256, &nodes, b"");
    blocks.push(root.clone());
    let mut expected = Vec::new();
    plain(root.cid(), &blocks, &mut HashSet::new(), &mut expected);
    // The second leaf of the node at 6, whose links are requested with those of the first node.
    let absent = blocks.remove(3 * 6 + 1);
    let (order, error) = walked(&mut walk(&memory(&blocks).await, &root)).await;
    let at = expected.iter().position(|cid| cid == absent.cid()).unwrap();
    assert_eq!(order, expected[..at]);
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for named in [absent.cid(), &nodes[6]] {
        assert!(error.message().contains(&named.to_string()), "{error}");
    }
}

#[tokio::test]
async fn walk_fails_on_deep_or_malformed_dag() {
    let most = 64;
    let config = StreamingConfig { max_dag_depth: most as u32, ..StreamingConfig::default() };
    let mut chain = vec![raw(&b"end"[..])];
    for _ in 0..=most {
        chain.push(pb(HashFunction::Sha2_256, &[*chain.last().unwrap().cid()], b""));
    }
    let store = memory(&chain).await;
    let within = |root: &Block| DagWalk::new(store.clone(), vec![*root.cid()], &config);
    let (order, error) = walked(&mut within(&chain[most])).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(order.len(), most + 1);
    let error = walked(&mut within(chain.last().unwrap())).await.1.unwrap();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains(&format!("limit of {most}")), "{error}");

    let nonsense = Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, Bytes::from_static(b"\xff\xff")).unwrap();
    let root = pb(HashFunction::Sha2_256, &[*identity(b"x").cid(), *nonsense.cid()], b"");
    let store = memory(&[nonsense.clone(), root.clone()]).await;
    let error = walked(&mut walk(&store, &root)).await.1.unwrap();
    assert!(error.message().contains(&nonsense.cid().to_string()), "{error}");
}

#[tokio::test]
async fn walk_of_long_lists_keeps_the_order_and_the_depths() {
    const NODES: usize = 100_000;
    // Each node links to a leaf of its own, either before or after the next node. In one of the two lists, the walk
    // has to return to every node.
    for is_last in [true, false] {
        let mut blocks: Vec<Block> = Vec::with_capacity(2 * NODES);
        let (mut nodes, mut leaves): (Vec<Cid>, Vec<Cid>) = (Vec::new(), Vec::new());
        for at in 0..NODES {
            blocks.push(raw(at.to_le_bytes().to_vec()));
            leaves.push(*blocks.last().unwrap().cid());
            let mut links: Vec<Cid> = nodes.last().into_iter().chain(leaves.last()).copied().collect();
            if is_last {
                links.reverse();
            }
            blocks.push(pb(HashFunction::Sha2_256, &links, b""));
            nodes.push(*blocks.last().unwrap().cid());
        }
        let store = memory(&blocks).await;
        let root = blocks.last().unwrap();
        let walk = DagWalk::new(store.clone(), vec![*root.cid()], &StreamingConfig::default());
        let found: Vec<_> =
            walk.with_depths().map(|item| item.map(|(block, depth)| (*block.cid(), depth))).collect().await;
        let found: Vec<(Cid, u32)> = found.into_iter().map(Result::unwrap).collect();
        let depth = |at: usize| (NODES - 1 - at) as u32;
        let down = (0..NODES).rev();
        let expected: Vec<_> = if is_last {
            down.flat_map(|at| [(nodes[at], depth(at)), (leaves[at], depth(at) + 1)]).collect()
        } else {
            let back = (0..NODES).map(|at| (leaves[at], depth(at) + 1));
            down.map(|at| (nodes[at], depth(at))).chain(back).collect()
        };
        assert!(found == expected, "the order, {is_last}");
    }
}

#[tokio::test]
async fn a_walk_that_repeats_blocks_comes_back_to_each_level() {
    const LEVELS: usize = 60_000;
    // Each node links to the next one and to a shared leaf. With repetitions, the walk yields the leaf once for each
    // node.
    let leaf = raw(&b"leaf"[..]);
    let mut blocks = vec![leaf.clone()];
    for _ in 0..LEVELS {
        let next = blocks.last().unwrap();
        blocks.push(pb(HashFunction::Sha2_256, &[*next.cid(), *leaf.cid()], b""));
    }
    let store = memory(&blocks).await;
    let root = *blocks.last().unwrap().cid();
    let walk = DagWalk::along(store, Vec::new(), root, Part::All, true, &StreamingConfig::default());
    let order: Vec<Cid> = walk.map(|block| *block.unwrap().cid()).collect().await;
    let nodes = blocks.iter().rev().map(|block| *block.cid());
    let expected: Vec<Cid> = nodes.chain(std::iter::repeat_n(*leaf.cid(), LEVELS)).collect();
    assert!(order == expected, "{} blocks", order.len());
}

#[tokio::test]
async fn walk_reads_wide_nodes_again() {
    // Seven nested nodes of 20,000 links have more links than the walk keeps in memory.
    let mut blocks = Vec::new();
    let mut below: Option<Cid> = None;
    for level in 0..7_u64 {
        let leaves: Vec<_> = (0..20_000).map(|leaf| raw((level << 32 | leaf).to_le_bytes().to_vec())).collect();
        let middle = leaves.len() / 2;
        let mut links: Vec<_> = leaves.iter().map(|leaf| *leaf.cid()).collect();
        links.splice(middle..middle, below);
        blocks.extend(leaves);
        blocks.push(pb(HashFunction::Sha2_256, &links, b""));
        below = Some(*blocks.last().unwrap().cid());
    }
    let root = blocks.last().unwrap().clone();
    let mut expected = Vec::new();
    let by_cid: HashMap<_, _> = blocks.iter().map(|block| (*block.cid(), block)).collect();
    let mut pending = vec![*root.cid()];
    while let Some(cid) = pending.pop() {
        expected.push(cid);
        pending.extend(links(&cid, by_cid[&cid].data()).into_iter().rev());
    }
    let store = memory(&blocks).await;
    let (order, error) = walked(&mut walk(&store, &root)).await;
    assert!(error.is_none(), "{error:?}");
    assert!(order == expected, "the order is the same");
}

#[tokio::test]
async fn walk_stays_within_window_and_is_lazy() {
    const LEAF: usize = 256 * 1024;
    let blocks = flat_file(80, LEAF);
    let root = blocks.last().unwrap();
    for flow_control in [FlowControl::Conservative, FlowControl::Balanced] {
        let window = flow_control.window_bytes();
        let store = memory(&blocks).await;
        let config = StreamingConfig { flow_control, ..StreamingConfig::default() };
        let mut walk = DagWalk::new(store.clone(), vec![*root.cid()], &config);
        assert_eq!(store.looked_up.load(Ordering::SeqCst), 0, "nothing before it is polled");
        let mut taken = 0;
        while let Some(block) = walk.next().await {
            taken += block.unwrap().data().len() as u64;
            assert!(store.fetched_bytes() <= taken + window + LEAF as u64);
        }
        assert_eq!(store.fetched_bytes(), taken);
    }
}

#[tokio::test]
async fn dropping_the_walk_cancels_what_is_under_way() {
    let blocks = flat_file(3, 100);
    let store = MemoryStore::default();
    crate::store::put(&store, &blocks).await;
    let store = Arc::new(CountingStore { stalled: true, ..CountingStore::new(store) });
    let mut walk = DagWalk::new(store.clone(), vec![*blocks.last().unwrap().cid()], &StreamingConfig::default());
    assert!(poll!(walk.next()).is_pending());
    assert_eq!(Arc::strong_count(&store.under_way), 2);
    drop(walk);
    assert_eq!(Arc::strong_count(&store.under_way), 1);
    assert!(store.check().is_ok());
}

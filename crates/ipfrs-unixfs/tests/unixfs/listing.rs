//! Listings of directories of a few blocks with an astronomical number of entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, ErrorKind, Result, codec};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{Attributes, BlockSource, Entries, Node, Place, decode, entries, page};
use tokio::task::yield_now;

use crate::harness::Memory;

const FANOUT: usize = 1024;

/// A source whose blocks are always ready, and which counts requests.
#[derive(Default)]
struct Counting {
    blocks: Memory,
    asked: AtomicUsize,
}

impl Counting {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Adds a shard whose first `used` positions link to `target`, with names that end in `suffix`.
    fn add_shard(&self, used: usize, target: &Cid, suffix: &str) -> Cid {
        let mut data = vec![8, 5, 0x12, 0x80, 1];
        data.extend(
            (0..FANOUT / 8).rev().map(|byte| (0..8).fold(0, |bits, i| bits | u8::from(byte * 8 + i < used) << i)),
        );
        data.extend([0x28, 0x22, 0x30, 0x80, 8]);
        let link = |position| PbLink { cid: *target, name: format!("{position:03X}{suffix}").into(), tsize: 0 };
        let links: Vec<_> = (0..used).map(link).collect();
        let block = Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, dag_pb::encode(&links, &data)).unwrap();
        let cid = *block.cid();
        self.blocks.insert(block);
        cid
    }

    /// Adds `levels` shards above `bottom`, each with the same child in every position.
    fn stack(&self, levels: usize, bottom: Cid) -> Cid {
        (0..levels).fold(bottom, |below, _| self.add_shard(FANOUT, &below, ""))
    }

    fn node(&self, cid: &Cid) -> Node {
        decode(cid, &self.blocks.get(cid).unwrap()).unwrap()
    }
}

#[async_trait]
impl BlockSource for Counting {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.blocks.block(cid).await
    }
}

fn some_file() -> Cid {
    *Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::new()).unwrap().cid()
}

#[tokio::test]
async fn listing_fails_on_empty_shard_below_root() {
    let source = Arc::new(Counting::default());
    let empty = source.add_shard(0, &some_file(), "");
    let root = source.stack(5, empty);
    let error = entries(source.clone(), source.node(&root)).try_collect::<Vec<_>>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.message().contains(&format!("{empty} is empty")), "{error}");
    assert_eq!(source.asked(), 5);
    assert_eq!(entries(source.clone(), source.node(&empty)).count().await, 0);
}

#[tokio::test]
async fn listing_fails_on_shards_deeper_than_name_hash() {
    let source = Arc::new(Counting::default());
    let leaf = source.add_shard(2, &some_file(), "file");
    let deepest = source.stack(5, leaf);
    let first = entries(source.clone(), source.node(&deepest)).next().await.unwrap();
    assert_eq!(first.unwrap().name, "file");
    let too_deep = source.stack(6, leaf);
    let error = entries(source.clone(), source.node(&too_deep)).next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidContent);
    assert!(error.message().contains(&format!("{leaf} is deeper")), "{error}");
}

#[tokio::test]
async fn huge_listing_is_lazy_and_yields_to_other_tasks() {
    let source = Arc::new(Counting::default());
    let leaf = source.add_shard(FANOUT, &some_file(), "file");
    let root = source.stack(5, leaf);
    let mut listing = entries(source.clone(), source.node(&root));
    assert_eq!(source.asked(), 0, "nothing is asked for before the first poll");
    assert_eq!(listing.next().await.unwrap().unwrap().cid, some_file());
    assert_eq!(source.asked(), 5, "one shard for each level");

    let mut taken = 0_usize;
    let others = async {
        for _ in 0..10 {
            yield_now().await;
        }
    };
    tokio::select! {
        // The listing is polled first and runs as far as one poll allows before the other tasks run.
        biased;
        () = listing.by_ref().for_each(|_| { taken += 1; std::future::ready(()) }) => panic!("10^18 entries listed"),
        () = others => {}
    }
    assert!((1..100_000).contains(&taken), "{taken}");
    assert!(source.asked() < 100, "{}", source.asked());
    drop(listing);
    assert_eq!(Arc::strong_count(&source), 1);
}

#[tokio::test]
async fn pages_equal_listing_and_read_only_needed_blocks() {
    let source = Arc::new(Counting::default());
    let leaf = source.add_shard(5, &some_file(), "file");
    let below = source.add_shard(3, &leaf, "");
    let sharded = source.add_shard(2, &below, "");
    let link = |name: u8| PbLink { cid: some_file(), name: name.to_string().into(), tsize: 0 };
    let links: Vec<_> = (0..30).map(link).collect();
    let basic = Block::hash(1, codec::DAG_PB, HashFunction::Sha2_256, dag_pb::encode(&links, &[8, 1])).unwrap();
    let basic_cid = *basic.cid();
    source.blocks.insert(basic);
    for root in [sharded, basic_cid] {
        let whole: Vec<_> = entries(source.clone(), source.node(&root)).try_collect().await.unwrap();
        assert_eq!(whole.len(), 30);
        for most in [1, 4, 5, 7, 29, 30, 31] {
            let (mut listed, mut place) = (Vec::new(), Some(Place::default()));
            while let Some(from) = place {
                let before = source.asked();
                let written = from.to_string().parse().unwrap_or(from);
                let (entries, next) =
                    page(source.clone(), source.node(&root), &written, most, usize::MAX).await.unwrap();
                assert!(source.asked() - before <= 2 + 2 * most.div_ceil(5) + most.div_ceil(15), "pages of {most}");
                assert!(!entries.is_empty() && entries.len() <= most);
                listed.extend(entries);
                place = next;
            }
            assert_eq!(listed, whole, "pages of {most}");
        }
        let (few, place) = page(source.clone(), source.node(&root), &Place::default(), 30, 3).await.unwrap();
        assert!(few.len() < 5 && place.is_some(), "names of more than 3 bytes end a page");
        for nowhere in ["31", "1.1.1.1", "0.1", "1.4", "1.1.6", "18446744073709551615"] {
            let place: Place = nowhere.parse().unwrap();
            let refused = page(source.clone(), source.node(&root), &place, 1, usize::MAX).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput, "{nowhere}");
        }
    }
    assert!("0.".repeat(23).trim_end_matches('.').parse::<Place>().is_err());
}

#[tokio::test]
async fn entries_report_the_memory_of_every_open_shard() {
    let source = Arc::new(Counting::default());
    let leaf = source.add_shard(FANOUT, &some_file(), "file");
    let root = source.stack(3, leaf);
    let mut entries = Entries::new(source.clone(), source.node(&root)).unwrap();
    let of_root = entries.memory();
    entries.next().await.unwrap().unwrap();
    // The leaf holds an entry, with its name, in each of its slots.
    assert!(entries.memory() >= of_root + FANOUT * "file".len(), "{} after {of_root}", entries.memory());
    assert!(
        Entries::new(source.clone(), Node::Symlink { target: Bytes::new(), attributes: Attributes::default() })
            .is_err()
    );
}

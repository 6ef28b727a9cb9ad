//! Waits of puts for eviction.

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, ErrorKind, codec};

use crate::{Engine, Node, NodeConfig, RetrievalConfig, StoreConfig};

const LIMIT: u64 = 64 << 20;

fn block(number: u32) -> Block {
    let mut data = vec![0; 1 << 20];
    data[..4].copy_from_slice(&number.to_le_bytes());
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from(data)).unwrap()
}

#[tokio::test]
async fn put_waits_for_less_than_the_time_limit_of_a_retrieval() {
    for (timeout_seconds, expected) in [(8, "in 4 s"), (30, "in 10 s")] {
        let repo = tempfile::tempdir().unwrap();
        let store = StoreConfig { engine: Engine::Memory, max_bytes: LIMIT, ..StoreConfig::default() };
        let retrieval = RetrievalConfig { timeout_seconds, ..RetrievalConfig::default() };
        let config = NodeConfig { retrieval, ..NodeConfig::default() };
        let node = Node::builder(repo.path()).store(store).config(config).open().await.unwrap();
        // A lease protects all blocks from eviction.
        let _lease = node.inner.protection.lease();
        let blocks: Vec<_> = (0..64).map(block).collect();
        node.inner.protection.touch(blocks.iter().map(|block| block.cid().hash()));
        for block in blocks {
            node.put_fetched(vec![block]).await.remove(0).unwrap();
        }
        tokio::time::pause();
        let error = node.put_fetched(vec![block(64)]).await.remove(0).unwrap_err();
        tokio::time::resume();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.message().contains(expected) && error.message().contains("repo gc"), "{error}");
    }
}

//! Nodes with blocks in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_bitswap::{Attempt, Bitswap, BitswapConfig, BlockProvider, Multiaddr, Outcome, PeerId, Session, Trace};
use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Block, Cid, Result, codec};
use libp2p::identity::Keypair;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::Semaphore;

/// Blocks in memory. Reads wait for a permit each.
pub(crate) struct MemoryBlocks {
    blocks: Mutex<HashMap<Cid, Bytes>>,
    reads: Semaphore,
    /// Number of reads.
    count: AtomicUsize,
}

impl MemoryBlocks {
    pub(crate) fn insert(&self, block: &Block) {
        self.blocks.lock().insert(*block.cid(), block.data().clone());
    }

    /// Lets `count` more reads complete.
    pub(crate) fn allow_reads(&self, count: usize) {
        self.reads.add_permits(count);
    }
}

#[async_trait]
impl BlockProvider for MemoryBlocks {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        self.reads.acquire().await.unwrap().forget();
        // As reads from a disk, they are not done at once and not together.
        for _ in 0..self.count.fetch_add(1, Ordering::Relaxed) % 5 {
            tokio::task::yield_now().await;
        }
        Ok(self.blocks.lock().get(cid).cloned())
    }

    async fn size(&self, cid: &Cid) -> Result<Option<u64>> {
        Ok(self.blocks.lock().get(cid).map(|data| data.len() as u64))
    }
}

/// A transport of the tests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transport {
    Tcp,
    Quic,
}

/// A node with its blocks and metrics.
pub(crate) struct Node {
    pub bitswap: Bitswap,
    pub blocks: Arc<MemoryBlocks>,
    pub registry: Registry,
}

/// Returns a configuration that listens on loopback.
pub(crate) fn config(transport: Transport) -> BitswapConfig {
    let listen = match transport {
        Transport::Tcp => "/ip4/127.0.0.1/tcp/0",
        Transport::Quic => "/ip4/127.0.0.1/udp/0/quic-v1",
    };
    BitswapConfig { enabled: true, listen: vec![listen.parse().unwrap()], ..BitswapConfig::default() }
}

/// Returns a new key.
pub(crate) fn key() -> Vec<u8> {
    Keypair::generate_ed25519().to_protobuf_encoding().unwrap()
}

/// Starts a node whose reads are not limited.
pub(crate) async fn node(config: BitswapConfig) -> Node {
    node_with_reads(config, Semaphore::MAX_PERMITS).await
}

/// Starts a node of which peers can read `reads` blocks.
pub(crate) async fn node_with_reads(config: BitswapConfig, reads: usize) -> Node {
    let blocks =
        Arc::new(MemoryBlocks { blocks: Mutex::default(), reads: Semaphore::new(reads), count: AtomicUsize::new(0) });
    let registry = Registry::new();
    let provider = Arc::clone(&blocks) as Arc<dyn BlockProvider>;
    let bitswap = Bitswap::start(config, &key(), provider, Arc::new(|_| true), &registry).await.unwrap();
    Node { bitswap, blocks, registry }
}

impl Node {
    /// Returns the peer ID and addresses, as a router would.
    pub(crate) fn provider(&self) -> (PeerId, Vec<Multiaddr>) {
        (self.bitswap.peer_id(), self.bitswap.listen_addrs())
    }

    /// Returns the address with the peer ID.
    pub(crate) fn address(&self) -> Multiaddr {
        self.bitswap.listen_addrs()[0].clone().with_p2p(self.bitswap.peer_id()).unwrap()
    }

    /// Returns the sum of a metric over all of its labels that contain `label`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == format!("ipfrs_bitswap_{name}")).unwrap();
        let has_label = |metric: &&prometheus::proto::Metric| {
            label.is_empty() || metric.get_label().iter().any(|pair| pair.value() == label)
        };
        let value =
            |metric: &prometheus::proto::Metric| metric.get_counter().get_value() + metric.get_gauge().get_value();
        family.get_metric().iter().filter(has_label).map(value).sum()
    }
}

/// Returns a block of `size` bytes, different for each `number`.
pub(crate) fn block(number: u32, size: usize) -> Block {
    let data: Bytes = number.to_be_bytes().into_iter().cycle().take(size).collect();
    Block::new(Cid::new_v1(codec::RAW, sha2_256(&data)), data).unwrap()
}

/// Returns `count` blocks of `size` bytes.
pub(crate) fn blocks(count: u32, size: usize) -> Vec<Block> {
    (0..count).map(|number| block(number, size)).collect()
}

/// Fetches all blocks at the same time and compares them.
pub(crate) async fn fetch_all(session: &Session, blocks: &[Block]) {
    let fetched = futures::future::join_all(blocks.iter().map(|block| session.get(block.cid()))).await;
    for (fetched, block) in fetched.into_iter().zip(blocks) {
        assert_eq!(fetched.unwrap(), *block);
    }
}

/// Collects the attempts of a session.
#[derive(Clone, Default)]
pub(crate) struct Attempts(Arc<Mutex<Vec<Attempt>>>);

impl Attempts {
    pub(crate) fn trace(&self) -> Option<Trace> {
        let attempts = Arc::clone(&self.0);
        Some(Arc::new(move |attempt| attempts.lock().push(attempt.clone())))
    }

    /// Returns the outcomes of the requests to a peer.
    pub(crate) fn outcomes(&self, peer: PeerId) -> Vec<Outcome> {
        self.0.lock().iter().filter(|attempt| attempt.peer == peer).map(|attempt| attempt.outcome).collect()
    }
}

/// Waits until a condition holds that another task establishes. Panics after a minute.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("the condition holds within a minute");
}

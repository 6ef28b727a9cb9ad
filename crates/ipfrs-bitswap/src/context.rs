//! State that all tasks share.

use std::net::IpAddr;
use std::sync::Arc;

use ipfrs_core::Cid;
use ipfrs_core::fair_pool::FairPool;
use libp2p::{Multiaddr, PeerId};
use parking_lot::RwLock;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::config::BitswapConfig;
use crate::metrics::Metrics;
use crate::peer::Peer;
use crate::peers::Peers;
use crate::provider::BlockProvider;
use crate::server::waiting::Waiting;

/// Maximum number of blocks that are read at the same time, for all peers.
const MAX_READS: usize = 64;

/// Maximum number of callers that wait for a peer that has a block, of which those of one client are at most as many as
/// are free. What they want counts towards the wants that a peer accepts, of which others need a part.
const MAX_PATIENT: usize = 512;

/// State that all tasks share.
pub(crate) struct Context {
    pub config: BitswapConfig,
    pub metrics: Metrics,
    pub provider: Arc<dyn BlockProvider>,
    pub peers: Peers,
    /// Wants of peers for missing blocks.
    pub waiting: Waiting,
    /// Memory for messages that are received and whose blocks are not yet stored.
    pub receive_memory: Arc<Semaphore>,
    /// Memory for blocks that are read and not yet sent.
    pub send_memory: Arc<Semaphore>,
    /// Permits to read a block. Tasks receive them in the order in which they ask.
    pub reads: Semaphore,
    /// Places of callers that wait for a peer that has a block.
    pub patient: FairPool<Option<IpAddr>>,
    /// Cancelled when callers no longer wait for such a peer.
    pub waits_ended: CancellationToken,
    /// Peers to disconnect.
    disconnects: mpsc::UnboundedSender<PeerId>,
    /// Addresses on which this node listens.
    pub listen_addrs: RwLock<Vec<Multiaddr>>,
    /// Cancelled by `shutdown`.
    pub stop: CancellationToken,
}

impl Context {
    pub(crate) fn new(
        config: BitswapConfig,
        metrics: Metrics,
        provider: Arc<dyn BlockProvider>,
        disconnects: mpsc::UnboundedSender<PeerId>,
    ) -> Self {
        let memory = config.max_memory_bytes.min(Semaphore::MAX_PERMITS);
        Self {
            config,
            metrics,
            provider,
            peers: Peers::default(),
            waiting: Waiting::default(),
            receive_memory: Arc::new(Semaphore::new(memory)),
            send_memory: Arc::new(Semaphore::new(memory)),
            reads: Semaphore::new(MAX_READS),
            patient: FairPool::new(MAX_PATIENT, 1, usize::MAX),
            waits_ended: CancellationToken::new(),
            disconnects,
            listen_addrs: RwLock::default(),
            stop: CancellationToken::new(),
        }
    }

    /// Closes all connections to a peer that misbehaves or does not respond.
    pub(crate) fn disconnect(&self, peer: &Peer, why: &str) {
        if !peer.closed.is_cancelled() && peer.start_disconnecting() {
            tracing::debug!(peer = %peer.id, "the peer is disconnected: {why}");
            self.disconnects.send(peer.id).ok();
        }
    }

    /// Serves the wants for blocks that are now stored.
    pub(crate) fn notify(&self, cids: &[Cid]) {
        for cid in cids {
            for (peer, wanted) in self.waiting.take(cid) {
                if let Some(peer) = self.peers.get(&peer)
                    && peer.served.lock().wake(&wanted)
                {
                    peer.served_changed.notify_one();
                }
            }
        }
    }

    /// Forgets a peer whose last connection has ended.
    pub(crate) fn forget(&self, peer: &Peer) {
        // Wants that arrive after this are not added.
        peer.close();
        let mut served = peer.served.lock();
        let cids = served.clear();
        cids.iter().for_each(|cid| self.waiting.remove(peer.id, cid));
        drop(served);
        self.metrics.server_wants.sub(i64::try_from(cids.len()).unwrap_or(i64::MAX));
    }
}

//! Peers: connections, and the blocks that are exchanged with them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Cid, Error};
use tokio::sync::OwnedMutexGuard;

#[cfg(feature = "bitswap")]
mod bitswap;
#[cfg(not(feature = "bitswap"))]
mod none;

#[cfg(feature = "bitswap")]
pub use bitswap::PeerPinger;
#[cfg(feature = "bitswap")]
pub(crate) use bitswap::exchange;
#[cfg(not(feature = "bitswap"))]
pub use none::PeerPinger;

/// Exclusive right to change the list of bootstrap peers in the configuration and in the node, until this value is
/// dropped.
#[derive(Debug)]
pub struct BootstrapChange {
    _guard: OwnedMutexGuard<()>,
}

impl crate::Node {
    /// Waits until no other task changes the list of bootstrap peers. A caller that reads the list and then replaces it
    /// holds the returned value meanwhile, so that no change is lost.
    pub async fn begin_bootstrap_change(&self) -> BootstrapChange {
        BootstrapChange { _guard: Arc::clone(&self.inner.bootstrap_changes).lock_owned().await }
    }

    /// Same as [`announced_addresses`](Self::announced_addresses), with the ID of the node: `{address}/p2p/{id}`.
    #[must_use]
    pub fn addresses_with_id(&self) -> Vec<String> {
        let id = self.identity().peer_id();
        self.announced_addresses().iter().map(|address| format!("{address}/p2p/{id}")).collect()
    }
}

/// A connected peer.
#[derive(Debug, Clone)]
pub struct ConnectedPeer {
    /// Peer ID in base58btc.
    pub id: String,
    /// Public key as a libp2p protobuf message, if the ID contains it; otherwise empty.
    pub public_key: Vec<u8>,
    /// Address of the oldest connection.
    pub address: String,
    /// Whether this node opened that connection.
    pub is_outbound: bool,
    /// Time of that connection.
    pub since: SystemTime,
    /// Last measured round-trip time.
    pub latency: Option<Duration>,
    /// Name and version of the peer's program. Empty until it has reported them.
    pub agent_version: String,
    /// Protocols that the peer supports.
    pub protocols: Vec<String>,
    /// Addresses on which the peer listens.
    pub listen_addresses: Vec<String>,
}

/// Blocks and messages that were exchanged with all peers since the start.
#[derive(Debug, Clone, Default)]
pub struct ExchangeTotals {
    /// Blocks that this node wants.
    pub wanted: Vec<Cid>,
    /// IDs of the connected peers.
    pub peers: Vec<String>,
    /// Received blocks, and their bytes.
    pub received_blocks: u64,
    /// See `received_blocks`.
    pub received_bytes: u64,
    /// Received blocks that were no longer needed, and their bytes.
    pub unneeded_blocks: u64,
    /// See `unneeded_blocks`.
    pub unneeded_bytes: u64,
    /// Received messages.
    pub received_messages: u64,
    /// Sent blocks, and their bytes.
    pub sent_blocks: u64,
    /// See `sent_blocks`.
    pub sent_bytes: u64,
}

/// Blocks that were exchanged with one peer since it connected.
#[derive(Debug, Clone)]
pub struct PeerLedger {
    /// Peer ID.
    pub peer: String,
    /// Bytes sent, divided by bytes received plus one.
    pub debt_ratio: f64,
    /// Bytes of blocks sent to the peer.
    pub sent_bytes: u64,
    /// Bytes of blocks received from the peer.
    pub received_bytes: u64,
    /// Blocks in both directions.
    pub blocks: u64,
}

/// Returns the error of commands that need peers (`retrieval.bitswap.enabled`). It is Kubo's, because clients look for
/// that text.
fn offline() -> Error {
    Error::unsupported("this action must be run in online mode, try running 'ipfs daemon' first")
}

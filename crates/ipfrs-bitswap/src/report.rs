//! Reports about peers and exchanged blocks, with the values of Kubo's `swarm/peers` and `bitswap/*`.

use std::time::{Duration, SystemTime};

use ipfrs_core::Cid;
use libp2p::{Multiaddr, PeerId};

use crate::peer::Direction;

/// A connected peer.
#[derive(Debug, Clone)]
pub struct PeerInfo {
    /// Peer ID.
    pub id: PeerId,
    /// Remote address of the oldest connection.
    pub addr: Multiaddr,
    /// Direction of the oldest connection.
    pub direction: Direction,
    /// Time of the oldest connection.
    pub since: SystemTime,
    /// Last measured round-trip time.
    pub latency: Option<Duration>,
    /// Name and version of the peer's program, as it reports them. Empty until it has.
    pub agent_version: String,
    /// Protocols that the peer supports, as it reports them.
    pub protocols: Vec<String>,
}

/// Totals since the start, as in Kubo's `bitswap/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stat {
    /// Content IDs that this node wants.
    pub wantlist: Vec<Cid>,
    /// Connected peers.
    pub peers: Vec<PeerId>,
    /// Received blocks.
    pub blocks_received: u64,
    /// Bytes of received blocks.
    pub data_received: u64,
    /// Received blocks that were no longer needed.
    pub dup_blks_received: u64,
    /// Bytes of received blocks that were no longer needed.
    pub dup_data_received: u64,
    /// Received messages.
    pub messages_received: u64,
    /// Sent blocks.
    pub blocks_sent: u64,
    /// Bytes of sent blocks.
    pub data_sent: u64,
}

/// Exchange with one peer, as in Kubo's `bitswap/ledger`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    /// Peer ID.
    pub peer: PeerId,
    /// Bytes sent, divided by bytes received plus one.
    pub value: f64,
    /// Bytes of blocks sent to the peer.
    pub sent: u64,
    /// Bytes of blocks received from the peer.
    pub recv: u64,
    /// Blocks sent and received.
    pub exchanged: u64,
}

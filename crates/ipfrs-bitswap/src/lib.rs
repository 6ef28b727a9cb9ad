//! Exchange of blocks with peers: Bitswap 1.2, 1.1 and 1.0 over libp2p, with TCP and QUIC.
//!
//! [`Bitswap::start`] starts a node, which connects to peers and serves the blocks of a [`BlockProvider`] to them. A
//! [`Session`] fetches the blocks of one DAG from the peers that it is given. Every received block is verified. The
//! crate neither finds providers nor stores blocks.
//!
//! # Tasks
//!
//! One task drives libp2p, which has a task of its own for each connection. Each peer has a task that sends the wants
//! of this node, one that prepares responses to the wants of the peer, and a few that send them. Each stream that a
//! peer opens has a task that reads messages. Hashes are computed in batches on blocking threads. Each session has a
//! task, which decides what to request from which peer.

mod address;
mod bitswap;
mod client;
mod config;
mod context;
mod engine;
mod frame;
mod metrics;
mod network;
mod outcome;
mod peer;
mod peers;
mod pinger;
mod provider;
mod reader;
mod report;
mod server;
mod steady;
mod verify;
mod wire;

pub use address::AddressFilter;
pub use bitswap::{Bitswap, WeakBitswap};
pub use client::received::{MessageMemory, Received};
pub use client::session::Session;
pub use config::{BitswapConfig, PrivateNetworkKey};
pub use libp2p::{Multiaddr, PeerId};
pub use outcome::{Attempt, Outcome, Request, Trace};
pub use peer::Direction;
pub use pinger::Pinger;
pub use provider::BlockProvider;
pub use report::{Ledger, PeerInfo, Stat};

/// The decoder of messages, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    use bytes::Bytes;
    use ipfrs_core::hash::sha2_256;

    use crate::wire::Message;

    /// Decodes a message; see `fuzz/fuzz_targets/bitswap_message.rs`.
    pub fn message(bytes: Bytes) {
        let Ok(message) = Message::decode(bytes) else { return };
        for payload in &message.blocks {
            let _ = payload.prefix.hash_function();
            let _ = payload.prefix.cid(sha2_256(&payload.data));
        }
    }
}

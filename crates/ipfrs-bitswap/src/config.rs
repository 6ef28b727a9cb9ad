//! Configuration: `[retrieval.bitswap]`.

use std::fmt;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use serde::{Deserialize, Serialize};

use crate::address;

/// Number of bytes of a private network key.
const KEY_BYTES: usize = 32;

/// `[retrieval.bitswap]`: exchange of blocks with peers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BitswapConfig {
    /// Whether the node connects to peers. If false, nothing listens and the other keys have no effect.
    pub enabled: bool,
    /// Addresses to listen on, such as `/ip4/0.0.0.0/tcp/4001` and `/ip4/0.0.0.0/udp/4001/quic-v1`. May be empty; then
    /// no peer can connect to this node.
    pub listen: Vec<Multiaddr>,
    /// Addresses that the node tells others, if those on which it listens are not reachable for them, as behind a
    /// router.
    pub announce: Vec<Multiaddr>,
    /// Peers to which the node always stays connected, each with its peer ID:
    /// `/dns4/peer.example.net/tcp/4001/p2p/12D3KooW...`. They may have private addresses.
    pub peers: Vec<Multiaddr>,
    /// Further peers to which the node stays connected. The commands `bootstrap/*` of Kubo's RPC change them.
    pub bootstrap: Vec<Multiaddr>,
    /// Key of a private network: 64 hexadecimal digits, the last line of Kubo's `swarm.key`. The node then connects
    /// only to peers with the same key, and only over TCP.
    pub private_network_key: Option<PrivateNetworkKey>,
    /// Whether peers may fetch blocks from this node. If false, every want is refused.
    pub serve: bool,
    /// Maximum number of connected peers. Further connections are refused.
    pub max_peers: usize,
    /// Maximum number of blocks that one peer may want at the same time. Further ones wait, and replace wants for
    /// missing blocks.
    pub max_wants_per_peer: usize,
    /// Maximum bytes of blocks that are read for one peer and not yet sent.
    pub max_outstanding_bytes_per_peer: usize,
    /// Maximum bytes of messages from all peers that are received and whose blocks are not yet stored, and again of
    /// blocks that are read and not yet sent.
    pub max_memory_bytes: usize,
    /// Seconds in which a peer must respond to a want before another peer is asked.
    pub response_timeout_seconds: u64,
    /// Seconds in which a connection to a peer must be established.
    pub dial_timeout_seconds: u64,
    /// Seconds after which an unused connection is closed.
    pub idle_timeout_seconds: u64,
    /// Name and version that the node tells peers, in place of those of this crate. The program sets them.
    #[serde(skip)]
    pub agent_version: Option<String>,
}

impl Default for BitswapConfig {
    fn default() -> Self {
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        let tcp = Multiaddr::empty().with(Protocol::Ip4(any)).with(Protocol::Tcp(4001));
        let quic = Multiaddr::empty().with(Protocol::Ip4(any)).with(Protocol::Udp(4001)).with(Protocol::QuicV1);
        Self {
            enabled: false,
            listen: vec![tcp, quic],
            announce: Vec::new(),
            peers: Vec::new(),
            bootstrap: Vec::new(),
            private_network_key: None,
            serve: true,
            max_peers: 256,
            max_wants_per_peer: 1024,
            max_outstanding_bytes_per_peer: 1 << 20,
            max_memory_bytes: 128 << 20,
            response_timeout_seconds: 10,
            dial_timeout_seconds: 10,
            idle_timeout_seconds: 120,
            agent_version: None,
        }
    }
}

impl BitswapConfig {
    /// Checks the ranges and the addresses.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted values.
    pub fn validate(&self) -> Result<()> {
        in_range("max_peers", self.max_peers as u64, 1, 10_000)?;
        in_range("max_wants_per_peer", self.max_wants_per_peer as u64, 16, 16_384)?;
        in_range("max_outstanding_bytes_per_peer", self.max_outstanding_bytes_per_peer as u64, 1 << 16, 1 << 28)?;
        in_range("max_memory_bytes", self.max_memory_bytes as u64, 16 << 20, 1 << 40)?;
        in_range("response_timeout_seconds", self.response_timeout_seconds, 1, 600)?;
        in_range("dial_timeout_seconds", self.dial_timeout_seconds, 1, 600)?;
        in_range("idle_timeout_seconds", self.idle_timeout_seconds, 1, 86_400)?;
        self.check_addresses()
    }

    /// Returns whether any peer that can connect may fetch blocks.
    #[must_use]
    pub fn serves_any_peer(&self) -> bool {
        self.enabled && self.serve && self.private_network_key.is_none()
    }

    /// Returns the addresses to listen on: the configured ones, or the default ones that the network permits.
    pub(crate) fn listen_addrs(&self) -> Vec<Multiaddr> {
        let mut addresses = self.listen.clone();
        if self.private_network_key.is_some() && addresses == Self::default().listen {
            addresses.retain(|address| address::transport(address) == Some(address::Transport::Tcp));
        }
        addresses
    }

    fn check_addresses(&self) -> Result<()> {
        for address in &self.listen_addrs() {
            let is_supported = match address::transport(address) {
                Some(address::Transport::Tcp) => true,
                Some(address::Transport::Quic) => self.private_network_key.is_none(),
                None => false,
            };
            if !is_supported {
                let quic = if self.private_network_key.is_none() { " or /ip4/0.0.0.0/udp/4001/quic-v1" } else { "" };
                return Err(Error::invalid(format!(
                    "retrieval.bitswap.listen: {address} is not an address to listen on: use one like \
                     /ip4/0.0.0.0/tcp/4001{quic}"
                )));
            }
        }
        for (key, peers) in [("peers", &self.peers), ("bootstrap", &self.bootstrap)] {
            for peer in peers {
                address::split_peer(peer)
                    .map_err(|e| Error::invalid(format!("retrieval.bitswap.{key}: {}", e.message())))?;
            }
        }
        Ok(())
    }

    /// Returns the addresses of all peers to which the node stays connected.
    pub(crate) fn chosen_addrs(&self) -> impl Iterator<Item = &Multiaddr> {
        self.peers.iter().chain(&self.bootstrap)
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        Duration::from_secs(self.response_timeout_seconds)
    }

    pub(crate) fn dial_timeout(&self) -> Duration {
        Duration::from_secs(self.dial_timeout_seconds)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds)
    }
}

fn in_range(key: &str, value: u64, min: u64, max: u64) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("retrieval.bitswap.{key} is {value}: it must be from {min} to {max}")))
}

/// Key of a private network. The `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrivateNetworkKey([u8; KEY_BYTES]);

impl PrivateNetworkKey {
    /// Returns the bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<[u8; KEY_BYTES]> for PrivateNetworkKey {
    fn from(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }
}

impl TryFrom<String> for PrivateNetworkKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        let invalid =
            || Error::invalid("retrieval.bitswap.private_network_key must have 64 hexadecimal digits, as in swarm.key");
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return Err(invalid());
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(invalid()) };
            *byte = high << 4 | low;
        }
        Ok(Self(key))
    }
}

impl From<PrivateNetworkKey> for String {
    fn from(key: PrivateNetworkKey) -> Self {
        key.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for PrivateNetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateNetworkKey(..)")
    }
}

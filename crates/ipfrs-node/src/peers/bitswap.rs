//! Exchange of blocks by Bitswap.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_bitswap::{AddressFilter, Bitswap, BlockProvider, Direction, Multiaddr, PeerId, PeerInfo, Pinger};
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec, parse_cid};
use ipfrs_retrieval::{RetrievalConfig, is_public};
use ipfrs_store::BlockStore;
use prometheus::Registry;

use super::{ConnectedPeer, ExchangeTotals, PeerLedger, offline};
use crate::Node;
use crate::keys::Identity;
use crate::node_store::{OnStored, StoredFn};

/// The blocks that peers may fetch: those in the store that no denylist blocks. Nothing is retrieved for peers.
struct StoredBlocks(Arc<dyn BlockStore>);

#[async_trait]
impl BlockProvider for StoredBlocks {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        if_allowed(self.0.get(cid).await)
    }

    async fn size(&self, cid: &Cid) -> Result<Option<u64>> {
        if_allowed(self.0.has_many(&[*cid]).await.map(|sizes| sizes.into_iter().next().flatten()))
    }
}

/// Peers learn nothing about denylists: blocked content is absent for them.
fn if_allowed<T>(found: Result<Option<T>>) -> Result<Option<T>> {
    match found {
        Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::LegalReasons) => Ok(None),
        found => found,
    }
}

/// Starts Bitswap if it is configured. Peers may fetch the blocks of `served`, and learn of new ones from `stored`.
pub(crate) async fn exchange(
    config: &RetrievalConfig,
    served: &Arc<dyn BlockStore>,
    identity: &Identity,
    stored: &OnStored,
    read_only: bool,
    registry: &Registry,
) -> Result<Option<Bitswap>> {
    if !config.enabled || !config.bitswap.enabled || read_only {
        return Ok(None);
    }
    let allows_private = config.allow_private_addresses;
    let filter: AddressFilter = Arc::new(move |ip: &IpAddr| allows_private || is_public(*ip));
    let key = identity.private_key().to_protobuf()?;
    let blocks = Arc::new(StoredBlocks(Arc::clone(served)));
    let bitswap = Bitswap::start(config.bitswap.clone(), &key, blocks, filter, registry).await?;
    // The store must not keep the network alive.
    let weak = bitswap.downgrade();
    let notify = move |cids: &[Cid]| weak.notify(cids);
    stored.set(StoredFn(Box::new(notify))).ok();
    for address in bitswap.listen_addrs() {
        tracing::info!("peers can connect to {address}/p2p/{}", bitswap.peer_id());
    }
    Ok(Some(bitswap))
}

fn multiaddrs(texts: &[String]) -> Result<Vec<Multiaddr>> {
    texts.iter().map(|text| multiaddr(text)).collect()
}

fn multiaddr(text: &str) -> Result<Multiaddr> {
    let failed = |why: String| Error::invalid(format!("failed to parse multiaddr {text:?}: {why}"));
    if !text.starts_with('/') {
        return Err(failed("must begin with /".to_owned()));
    }
    text.parse::<Multiaddr>().map_err(|e| failed(format!("{e}: use /ip4/.../tcp/.../p2p/ID")))
}

fn parse_peer(text: &str) -> Result<PeerId> {
    let id = text.rsplit('/').next().unwrap_or_default();
    if let Ok(peer) = id.parse::<PeerId>() {
        return Ok(peer);
    }
    let cid = parse_cid(id).ok();
    if let Some(cid) = cid.filter(|cid| cid.codec() != codec::LIBP2P_KEY) {
        let name = codec::name(cid.codec()).unwrap_or("unknown");
        return Err(Error::invalid(format!("can't convert CID of type {name:?} to a peer ID")));
    }
    cid.and_then(|cid| PeerId::from_bytes(&cid.hash().to_bytes()).ok()).ok_or_else(|| {
        let remedy = "use one like 12D3KooW..., or an address that ends in /p2p/ID";
        Error::invalid(match text.starts_with('/') {
            true => format!("found no ipfs peers at {text}: the address has no peer ID: {remedy}"),
            false => format!("failed to parse peer ID: {text:?} is none: {remedy}"),
        })
    })
}

/// Parses a multiaddr that ends in a peer ID.
fn peer_address(text: &str) -> Result<(PeerId, Multiaddr)> {
    let address = multiaddr(text)?;
    Ok((parse_peer(text)?, address))
}

fn connected(info: PeerInfo, listen: Vec<Multiaddr>) -> ConnectedPeer {
    let id = info.id.to_bytes();
    // An identity multihash contains the key.
    let public_key = if id.first() == Some(&0) { id.get(2..).unwrap_or_default().to_vec() } else { Vec::new() };
    ConnectedPeer {
        id: info.id.to_string(),
        public_key,
        address: without_id(info.addr).to_string(),
        is_outbound: info.direction == Direction::Outbound,
        since: info.since,
        latency: info.latency,
        agent_version: info.agent_version,
        protocols: info.protocols,
        listen_addresses: listen.iter().map(ToString::to_string).collect(),
    }
}

/// Removes the peer ID at the end of an address.
fn without_id(mut address: Multiaddr) -> Multiaddr {
    if address.iter().last().is_some_and(|last| last.tag() == "p2p") {
        address.pop();
    }
    address
}

/// A stream for round trips to a peer.
#[derive(Debug)]
pub struct PeerPinger(Pinger);

impl PeerPinger {
    /// Returns the time of one round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the peer does not respond in time.
    pub async fn ping(&mut self) -> Result<Duration> {
        self.0.ping().await
    }
}

impl Node {
    /// Whether the node exchanges blocks with peers.
    #[must_use]
    pub fn exchanges_blocks(&self) -> bool {
        self.inner.exchange.is_some()
    }

    fn exchange(&self) -> Result<&Bitswap> {
        self.inner.exchange.as_ref().ok_or_else(offline)
    }

    fn addresses(&self, of: impl Fn(&Bitswap) -> Vec<Multiaddr>) -> Vec<String> {
        let addresses = self.inner.exchange.as_ref().map(of).unwrap_or_default();
        let mut addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// Returns the multiaddrs on which the node listens for peers, without its ID. Empty if it has no peers.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<String> {
        self.addresses(Bitswap::listen_addrs)
    }

    /// Returns the multiaddrs at which peers can reach the node, without its ID. Empty if it has no peers.
    #[must_use]
    pub fn announced_addresses(&self) -> Vec<String> {
        self.addresses(Bitswap::announced_addrs)
    }

    /// Returns the libp2p protocols that the node supports. Empty if it has no peers.
    #[must_use]
    pub fn protocols(&self) -> Vec<String> {
        match self.exchanges_blocks() {
            true => Bitswap::PROTOCOLS.map(str::to_owned).to_vec(),
            false => Vec::new(),
        }
    }

    /// Returns the connected peers, in the order of their IDs.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the node has no peers.
    pub fn peers(&self) -> Result<Vec<ConnectedPeer>> {
        let exchange = self.exchange()?;
        let mut listen = exchange.known_addrs();
        let peers = exchange.peers().into_iter();
        Ok(peers
            .map(|info| (listen.remove(&info.id).unwrap_or_default(), info))
            .map(|(a, i)| connected(i, a))
            .collect())
    }

    /// Returns the addresses of the peers to which the node stays connected: the configured ones, and those of
    /// [`add_steady_peers`](Self::add_steady_peers).
    #[must_use]
    pub fn steady_peers(&self) -> Vec<String> {
        let peers = self.inner.exchange.as_ref().map(Bitswap::steady_peers).unwrap_or_default();
        peers.iter().map(ToString::to_string).collect()
    }

    /// Stays connected to the peers at multiaddrs that end in `/p2p/` and a peer ID until the node is closed. Returns
    /// the IDs of the peers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed address, [`ErrorKind::TooLarge`] for too many peers, and as
    /// [`peers`](Self::peers).
    pub fn add_steady_peers(&self, addresses: &[String]) -> Result<Vec<String>> {
        let exchange = self.exchange()?;
        Ok(exchange.add_steady(&multiaddrs(addresses)?)?.iter().map(ToString::to_string).collect())
    }

    /// Also stays connected to the peers at multiaddrs that end in `/p2p/` and a peer ID, in place of those of
    /// `retrieval.bitswap.bootstrap` and of earlier calls. Does nothing if the node has no peers.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed address.
    pub fn set_bootstrap_peers(&self, addresses: &[String]) -> Result<()> {
        let peers = multiaddrs(addresses)?;
        self.inner.exchange.as_ref().map_or(Ok(()), |exchange| exchange.set_bootstrap(&peers))
    }

    /// Ends the effect of [`add_steady_peers`](Self::add_steady_peers) and of the configuration. Returns the ID of the
    /// peer. The connection stays open while it is used.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed ID, and as [`peers`](Self::peers).
    pub fn remove_steady_peer(&self, peer: &str) -> Result<String> {
        let exchange = self.exchange()?;
        let peer = parse_peer(peer)?;
        exchange.remove_steady(peer);
        Ok(peer.to_string())
    }

    /// Connects to the peer at a multiaddr that ends in `/p2p/` and the peer ID, which is returned. The connection
    /// stays open, and the peer is asked for missing blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed address, [`ErrorKind::Unavailable`] if there is no connection, and
    /// as [`peers`](Self::peers).
    pub async fn connect_peer(&self, address: &str) -> Result<String> {
        let exchange = self.exchange()?;
        let (peer, address) = peer_address(address)?;
        exchange.connect(&address).await?;
        Ok(peer.to_string())
    }

    /// Checks addresses of peers before [`connect_peer`](Self::connect_peer) connects to the first of them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed address, also if the node has no peers.
    pub fn check_peer_addresses(&self, addresses: &[String]) -> Result<()> {
        addresses.iter().try_for_each(|address| peer_address(address).map(drop))
    }

    /// Prepares round trips to the connected peer with an ID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not connected, [`ErrorKind::Unavailable`] if it does not respond, and as
    /// [`peers`](Self::peers).
    pub async fn ping_peer(&self, peer: &str) -> Result<PeerPinger> {
        let exchange = self.exchange()?;
        exchange.pinger(parse_peer(peer)?).await.map(PeerPinger)
    }

    /// Closes the connection to a multiaddr that ends in `/p2p/` and a peer ID, or all connections to the peer if the
    /// address is only `/p2p/ID`. Returns the ID, and whether there were any. The node connects again to a configured
    /// peer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed address or one without a peer ID, and as [`peers`](Self::peers).
    pub async fn disconnect_peer(&self, address: &str) -> Result<(String, bool)> {
        let exchange = self.exchange()?;
        let (peer, address) = peer_address(address)?;
        let was_connected = match address.iter().count() {
            1 => exchange.disconnect(peer).await,
            _ => exchange.disconnect_address(&address).await?,
        };
        Ok((peer.to_string(), was_connected))
    }

    /// Asks connected peers whether they have a block. Returns the IDs of those that do, at most `most`, with their
    /// addresses. No peer is asked if the current request may not retrieve anything.
    pub async fn peers_with_block(&self, cid: &Cid, most: usize) -> Vec<(String, Vec<String>)> {
        let Some(exchange) = self.inner.exchange.as_ref().filter(|_| self.may_retrieve()) else { return Vec::new() };
        let holders = exchange.holders(cid, most).await;
        let peers = self.peers().unwrap_or_default();
        let with_addresses = |id: PeerId| {
            let id = id.to_string();
            let peer = peers.iter().find(|peer| peer.id == id);
            let addresses = peer.map(|peer| match peer.listen_addresses.is_empty() {
                true => vec![peer.address.clone()],
                false => peer.listen_addresses.clone(),
            });
            (id, addresses.unwrap_or_default())
        };
        holders.into_iter().map(with_addresses).collect()
    }

    /// Ends the waits of requests for peers that have a block, running and later ones, before the node is closed
    /// ([`RequestContext::waits_for_peers`](crate::RequestContext::waits_for_peers)).
    pub fn end_waits_for_peers(&self) {
        if let Some(exchange) = &self.inner.exchange {
            exchange.end_waits();
        }
    }

    /// Returns what was exchanged with all peers.
    ///
    /// # Errors
    /// As [`peers`](Self::peers).
    pub fn exchange_totals(&self) -> Result<ExchangeTotals> {
        let stat = self.exchange()?.stat();
        Ok(ExchangeTotals {
            wanted: stat.wantlist,
            peers: stat.peers.iter().map(ToString::to_string).collect(),
            received_blocks: stat.blocks_received,
            received_bytes: stat.data_received,
            unneeded_blocks: stat.dup_blks_received,
            unneeded_bytes: stat.dup_data_received,
            received_messages: stat.messages_received,
            sent_blocks: stat.blocks_sent,
            sent_bytes: stat.data_sent,
        })
    }

    /// Returns the blocks that a connected peer wants of this node, or those that this node wants for `None` and for
    /// its own ID.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed ID, and as [`peers`](Self::peers).
    pub fn wanted_blocks(&self, peer: Option<&str>) -> Result<Vec<Cid>> {
        let exchange = self.exchange()?;
        Ok(exchange.wantlist(peer.map(parse_peer).transpose()?))
    }

    /// Returns what was exchanged with a peer since it connected; zero for a peer that is not connected.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a malformed ID, and as [`peers`](Self::peers).
    pub fn peer_ledger(&self, peer: &str) -> Result<PeerLedger> {
        let exchange = self.exchange()?;
        let ledger = exchange.ledger(parse_peer(peer)?);
        Ok(PeerLedger {
            peer: ledger.peer.to_string(),
            debt_ratio: ledger.value,
            sent_bytes: ledger.sent,
            received_bytes: ledger.recv,
            blocks: ledger.exchanged,
        })
    }
}

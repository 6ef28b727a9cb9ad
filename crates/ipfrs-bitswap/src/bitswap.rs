//! The running node.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::ready;
use futures::stream::FuturesUnordered;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::address::{self, AddressFilter};
use crate::config::BitswapConfig;
use crate::context::Context;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::network::{Network, Origin, Running};
use crate::peer::Peer;
use crate::pinger::Pinger;
use crate::provider::{BlockProvider, NoBlocks};
use crate::report::{Ledger, PeerInfo, Stat};
use crate::steady::{Attempts, SteadyPeer};

/// Time in which connections end that the operator closes.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of peers to which the node stays connected.
const MAX_STEADY_PEERS: usize = 256;

/// A node that exchanges blocks with peers. Clones share the node.
#[derive(Clone)]
pub struct Bitswap(Arc<Inner>);

/// A handle that does not keep the node running.
#[derive(Clone)]
pub struct WeakBitswap(Weak<Inner>);

impl WeakBitswap {
    /// Does the same as [`Bitswap::notify`] if the node still runs.
    pub fn notify(&self, cids: &[Cid]) {
        if let Some(inner) = self.0.upgrade() {
            inner.network.context.notify(cids);
        }
    }
}

struct Inner {
    network: Network,
    peer_id: PeerId,
    task: Mutex<Option<JoinHandle<()>>>,
    steady: Mutex<BTreeMap<PeerId, SteadyPeer>>,
    /// Peers of [`Bitswap::set_bootstrap`].
    bootstrap: Mutex<BTreeMap<PeerId, SteadyPeer>>,
}

impl fmt::Debug for Bitswap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bitswap").field("peer_id", &self.0.peer_id).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.network.context.stop.cancel();
    }
}

impl Bitswap {
    /// The protocols of a node.
    pub const PROTOCOLS: [&str; 6] = [
        "/ipfs/bitswap/1.0.0",
        "/ipfs/bitswap/1.1.0",
        "/ipfs/bitswap/1.2.0",
        "/ipfs/id/1.0.0",
        "/ipfs/id/push/1.0.0",
        "/ipfs/ping/1.0.0",
    ];

    /// Starts a node and returns once it listens on every configured address.
    ///
    /// `private_key` is the key of the node, a `PrivateKey` message of libp2p, from which its peer ID follows. Peers
    /// fetch the blocks of `provider`. `filter` decides about each IP address that this node dials, except those of the
    /// operator: the peers in `config`, and the arguments of [`connect`](Self::connect).
    ///
    /// `config.enabled` is not checked. The node stops when the last clone and the last session are dropped, or with
    /// [`shutdown`](Self::shutdown).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid configuration or key, [`ErrorKind::Unavailable`] if an address cannot
    /// be listened on, and [`ErrorKind::Internal`] if metrics with the same names are registered already.
    pub async fn start(
        config: BitswapConfig,
        private_key: &[u8],
        provider: Arc<dyn BlockProvider>,
        filter: AddressFilter,
        registry: &Registry,
    ) -> Result<Self> {
        config.validate()?;
        let keypair = Keypair::from_protobuf_encoding(private_key)
            .map_err(|e| Error::invalid(format!("Bitswap needs an Ed25519 or RSA key: {e}")))?;
        let metrics = Metrics::register(registry)?;
        let provider = if config.serve { provider } else { Arc::new(NoBlocks) };
        let (peers, bootstrap) = (config.peers.clone(), config.bootstrap.clone());
        let (disconnects, disconnected) = mpsc::unbounded_channel();
        let context = Arc::new(Context::new(config, metrics, provider, disconnects));
        let engine = Engine::new(context);
        let Running { network, peer_id, task } = Network::start(engine, &keypair, filter, disconnected).await?;
        let (task, steady, others) = (Mutex::new(Some(task)), Mutex::default(), Mutex::default());
        let node = Self(Arc::new(Inner { network, peer_id, task, steady, bootstrap: others }));
        node.add_steady(&peers)?;
        node.set_bootstrap(&bootstrap)?;
        Ok(node)
    }

    /// Opens a stream for round trips to a connected peer.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it is not connected, [`ErrorKind::Unavailable`] if it accepts no stream.
    pub async fn pinger(&self, peer: PeerId) -> Result<Pinger> {
        let network = &self.0.network;
        if network.context.peers.get(&peer).is_none() {
            return Err(Error::not_found(format!("peer {peer} is not connected")));
        }
        Pinger::open(network.control.clone(), peer).await
    }

    /// Connects to peers, and again whenever the connection is lost, until [`remove_steady`](Self::remove_steady) or
    /// the shutdown. Each address must end in `/p2p/` and a peer ID. They replace earlier addresses of the same peers.
    /// This node is skipped. Returns the peer IDs in the order of their first addresses.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if an address has no peer ID, and [`ErrorKind::TooLarge`] for too many peers.
    pub fn add_steady(&self, peers: &[Multiaddr]) -> Result<Vec<PeerId>> {
        let grouped = by_peer(peers)?;
        let ids = grouped.iter().map(|(id, _)| *id).collect();
        let mut steady = self.0.steady.lock();
        let added = grouped.iter().filter(|(id, _)| !steady.contains_key(id)).count();
        if steady.len() + added > MAX_STEADY_PEERS.max(self.context().config.peers.len()) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the node stays connected to at most {MAX_STEADY_PEERS} peers: remove one (swarm/peering/rm)"),
            ));
        }
        for (id, addresses) in grouped {
            if id != self.peer_id() {
                steady.insert(id, SteadyPeer::start(self.0.network.clone(), id, addresses));
            }
        }
        Ok(ids)
    }

    /// Also stays connected to these peers, and to no others that were set by this function or by `bootstrap` of the
    /// configuration. Their connections stay open while they are used. This node is skipped.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if an address has no peer ID.
    pub fn set_bootstrap(&self, peers: &[Multiaddr]) -> Result<()> {
        let grouped = by_peer(peers)?;
        let mut bootstrap = self.0.bootstrap.lock();
        let steady = self.0.steady.lock();
        let mut ended = Vec::new();
        bootstrap.retain(|id, peer| {
            let is_kept = grouped.iter().any(|(kept, addresses)| kept == id && *addresses == peer.addresses);
            if !is_kept && !steady.contains_key(id) {
                ended.push(*id);
            }
            is_kept
        });
        // Now that nothing protects their connections any more.
        for connected in ended.iter().filter_map(|id| self.context().peers.get(id)) {
            connected.unprotect();
        }
        for (id, addresses) in grouped {
            if id != self.peer_id() && !bootstrap.contains_key(&id) {
                bootstrap.insert(id, SteadyPeer::start(self.0.network.clone(), id, addresses));
            }
        }
        Ok(())
    }

    /// Ends the effect of [`add_steady`](Self::add_steady) or of the configuration. An existing connection stays open
    /// while it is used. Returns whether the node stayed connected to the peer.
    pub fn remove_steady(&self, peer: PeerId) -> bool {
        let was_steady = self.0.steady.lock().remove(&peer).is_some();
        let is_chosen = self.0.bootstrap.lock().contains_key(&peer);
        if was_steady
            && !is_chosen
            && let Some(connected) = self.context().peers.get(&peer)
        {
            connected.unprotect();
        }
        was_steady
    }

    /// Returns the addresses of the peers to which the node stays connected, each with its peer ID at the end.
    #[must_use]
    pub fn steady_peers(&self) -> Vec<Multiaddr> {
        let steady = self.0.steady.lock();
        let addresses = steady.iter().flat_map(|(id, peer)| peer.addresses.iter().map(move |address| (id, address)));
        addresses.map(|(id, address)| address.clone().with(Protocol::P2p(*id))).collect()
    }

    /// Returns the peers to which the node should stay connected and is not, each with the reason why the last attempt
    /// failed, if one has.
    #[must_use]
    pub fn unconnected_peers(&self) -> Vec<(PeerId, Option<String>)> {
        self.unconnected_attempts().into_iter().map(|(id, attempts)| (id, attempts.failure())).collect()
    }

    /// Returns the attempts to connect to the [unconnected peers](Self::unconnected_peers).
    fn unconnected_attempts(&self) -> BTreeMap<PeerId, Arc<Attempts>> {
        let attempts_of = |peers: &Mutex<BTreeMap<PeerId, SteadyPeer>>| -> Vec<_> {
            let peers = peers.lock();
            let unconnected = peers.iter().filter(|(id, _)| self.context().peers.get(id).is_none());
            unconnected.map(|(id, peer)| (*id, Arc::clone(&peer.attempts))).collect()
        };
        attempts_of(&self.0.bootstrap).into_iter().chain(attempts_of(&self.0.steady)).collect()
    }

    /// Dials the [unconnected peers](Self::unconnected_peers) before their next attempts are due, unless that was done
    /// after `since`, and at most once in a second. Returns whether one of them is connected, as soon as one is.
    pub async fn redial(&self, since: Instant) -> bool {
        let redials = self.unconnected_attempts().into_iter().map(|(id, attempts)| async move {
            attempts.tried_since(since).await;
            self.context().peers.get(&id).is_some()
        });
        let connected = redials.collect::<FuturesUnordered<_>>().filter(|is_connected| ready(*is_connected));
        pin!(connected).next().await.is_some()
    }

    fn context(&self) -> &Context {
        &self.0.network.context
    }

    /// Returns a handle that does not keep the node running.
    #[must_use]
    pub fn downgrade(&self) -> WeakBitswap {
        WeakBitswap(Arc::downgrade(&self.0))
    }

    /// Returns the peer ID of this node.
    #[must_use]
    pub fn peer_id(&self) -> PeerId {
        self.0.peer_id
    }

    /// Returns the addresses on which this node listens, with the ports that the system chose.
    #[must_use]
    pub fn listen_addrs(&self) -> Vec<Multiaddr> {
        self.context().listen_addrs.read().clone()
    }

    /// Returns the addresses at which peers can reach this node: the configured ones, or those on which it listens.
    #[must_use]
    pub fn announced_addrs(&self) -> Vec<Multiaddr> {
        let configured = &self.context().config.announce;
        if configured.is_empty() { self.listen_addrs() } else { configured.clone() }
    }

    /// Ends the calls of [`Session::receive_when_available`](crate::Session::receive_when_available), running and later
    /// ones. The node still exchanges blocks, until [`shutdown`](Self::shutdown).
    pub fn end_waits(&self) {
        self.context().waits_ended.cancel();
    }

    /// Closes all connections and ends all sessions. Later calls and calls on clones return at once.
    pub async fn shutdown(&self) {
        self.context().stop.cancel();
        let task = self.0.task.lock().take();
        if let Some(task) = task {
            task.await.ok();
        }
    }

    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }

    /// Returns the connected peers that the operator has chosen: the configured ones, and those of
    /// [`connect`](Self::connect).
    #[must_use]
    pub fn chosen_peers(&self) -> Vec<PeerId> {
        self.context().peers.all().iter().filter(|peer| peer.is_protected()).map(|peer| peer.id).collect()
    }

    /// Tells the node that blocks have been stored. Peers that wait for them receive them. Cheap if no peer waits.
    pub fn notify(&self, cids: &[Cid]) {
        self.context().notify(cids);
    }

    /// Connects to a peer, by request of the operator. The connection stays open until the peer or
    /// [`disconnect`](Self::disconnect) closes it. `address` must end in `/p2p/` and the peer ID.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the address has no peer ID, and [`ErrorKind::Unavailable`] if no connection could
    /// be established.
    pub async fn connect(&self, address: &Multiaddr) -> Result<()> {
        let (peer, rest) = address::split_peer(address)?;
        let connected = self.0.network.connect(peer, &[rest], Origin::Operator).await;
        let failed = |e| Error::new(ErrorKind::Unavailable, format!("no connection to {address}: {e}"));
        connected.map(|peer| peer.protect()).map_err(failed)
    }

    /// Waits until a peer connects that was not connected before. A connection between the call and the first poll
    /// counts.
    pub fn next_connection(&self) -> impl Future<Output = ()> {
        self.context().peers.next_connection()
    }

    /// Closes all connections to a peer. Returns whether there were any. The node connects again to a configured peer.
    pub async fn disconnect(&self, peer: PeerId) -> bool {
        let connected = self.context().peers.get(&peer);
        let was_connected = self.0.network.disconnect(peer).await;
        if let Some(peer) = connected.filter(|_| was_connected) {
            tokio::time::timeout(DISCONNECT_TIMEOUT, peer.closed.cancelled()).await.ok();
        }
        was_connected
    }

    /// Closes the connection to a peer at an address, which must end in `/p2p/` and the peer ID, and keeps other
    /// connections to the peer. Returns whether there was one. The node connects again to a configured peer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the address has no peer ID, or nothing before it.
    pub async fn disconnect_address(&self, address: &Multiaddr) -> Result<bool> {
        let (peer, remote) = address::split_peer(address)?;
        let found = self.context().peers.get(&peer).and_then(|peer| peer.connection_to(&remote));
        let Some((connection, closed)) = found else { return Ok(false) };
        let was_connected = self.0.network.close(connection).await;
        if was_connected {
            tokio::time::timeout(DISCONNECT_TIMEOUT, closed.cancelled()).await.ok();
        }
        Ok(was_connected)
    }

    /// Returns the connected peers, in the order of their IDs.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerInfo> {
        let mut peers: Vec<PeerInfo> = self.context().peers.all().iter().filter_map(|peer| info(peer)).collect();
        peers.sort_by_key(|peer| peer.id);
        peers
    }

    /// Returns the addresses on which connected peers listen, as they report them.
    #[must_use]
    pub fn known_addrs(&self) -> HashMap<PeerId, Vec<Multiaddr>> {
        let addresses = |peer: &Arc<Peer>| (peer.id, peer.identity.lock().addresses.clone());
        self.context().peers.all().iter().map(addresses).collect()
    }

    /// Returns the totals since the start.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let metrics = &self.context().metrics;
        let mut peers: Vec<PeerId> = self.context().peers.all().iter().map(|peer| peer.id).collect();
        peers.sort();
        Stat {
            wantlist: self.own_wantlist(),
            peers,
            blocks_received: metrics.blocks.received.get(),
            data_received: metrics.block_bytes.received.get(),
            dup_blks_received: metrics.unneeded_blocks.get(),
            dup_data_received: metrics.unneeded_bytes.get(),
            messages_received: metrics.messages.received.get(),
            blocks_sent: metrics.blocks.sent.get(),
            data_sent: metrics.block_bytes.sent.get(),
        }
    }

    /// Returns the content IDs that a connected peer wants of this node, or those that this node wants for `None` and
    /// for its own ID.
    #[must_use]
    pub fn wantlist(&self, peer: Option<PeerId>) -> Vec<Cid> {
        match peer.filter(|peer| *peer != self.peer_id()) {
            None => self.own_wantlist(),
            Some(peer) => self.context().peers.get(&peer).map_or_else(Vec::new, |peer| peer.served.lock().cids()),
        }
    }

    fn own_wantlist(&self) -> Vec<Cid> {
        let peers = self.context().peers.all();
        let unique: HashSet<Cid> = peers.iter().flat_map(|peer| peer.wants.lock().cids()).collect();
        let mut cids: Vec<Cid> = unique.into_iter().collect();
        cids.sort();
        cids
    }

    /// Returns the exchange with a peer since it connected. It is zero for a peer that is not connected.
    #[must_use]
    pub fn ledger(&self, peer: PeerId) -> Ledger {
        let connected = self.context().peers.get(&peer);
        let (sent, recv, exchanged) = connected.map_or((0, 0, 0), |peer| {
            let exchange = &peer.exchange;
            let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            (load(&exchange.sent_bytes), load(&exchange.received_bytes), load(&exchange.blocks))
        });
        #[expect(clippy::cast_precision_loss, reason = "a ratio for display")]
        let value = sent as f64 / (recv as f64 + 1.0);
        Ledger { peer, value, sent, recv, exchanged }
    }
}

/// Groups addresses that end in `/p2p/` and a peer ID, in the order of the first address of each peer.
fn by_peer(peers: &[Multiaddr]) -> Result<Vec<(PeerId, Vec<Multiaddr>)>> {
    let mut grouped: Vec<(PeerId, Vec<Multiaddr>)> = Vec::new();
    for peer in peers {
        let (id, address) = address::split_peer(peer)?;
        match grouped.iter_mut().find(|(known, _)| *known == id) {
            Some((_, addresses)) => addresses.push(address),
            None => grouped.push((id, vec![address])),
        }
    }
    Ok(grouped)
}

fn info(peer: &Peer) -> Option<PeerInfo> {
    let identity = peer.identity.lock().clone();
    let latency = peer.latency();
    peer.first_connection(|connection| PeerInfo {
        id: peer.id,
        addr: connection.address.clone(),
        direction: connection.direction,
        since: connection.since,
        latency,
        agent_version: identity.agent_version,
        protocols: identity.protocols,
    })
}

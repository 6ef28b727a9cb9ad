//! The connected peers.

use std::collections::HashMap;
use std::sync::Arc;

use libp2p::PeerId;
use libp2p::swarm::ConnectionId;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::config::BitswapConfig;
use crate::peer::{Connection, Peer};

/// The connected peers by ID.
#[derive(Default)]
pub(crate) struct Peers {
    peers: RwLock<HashMap<PeerId, Arc<Peer>>>,
    /// Notified when a peer has connected.
    connected: Notify,
}

impl Peers {
    /// Returns a connected peer.
    pub(crate) fn get(&self, id: &PeerId) -> Option<Arc<Peer>> {
        self.peers.read().get(id).cloned()
    }

    /// Returns all connected peers.
    pub(crate) fn all(&self) -> Vec<Arc<Peer>> {
        self.peers.read().values().cloned().collect()
    }

    /// Returns the number of connected peers.
    pub(crate) fn len(&self) -> usize {
        self.peers.read().len()
    }

    /// Adds a connection of a peer. Returns the peer and whether this is its first connection.
    pub(crate) fn attach(&self, id: PeerId, connection: Connection, config: &BitswapConfig) -> (Arc<Peer>, bool) {
        let mut peers = self.peers.write();
        let is_new = !peers.contains_key(&id);
        let peer = Arc::clone(peers.entry(id).or_insert_with(|| Arc::new(Peer::new(id, config))));
        peer.add_connection(connection);
        drop(peers);
        if is_new {
            self.connected.notify_waiters();
        }
        (peer, is_new)
    }

    /// Waits until a peer connects that was not connected before. A connection between the call and the first poll
    /// counts.
    pub(crate) fn next_connection(&self) -> Notified<'_> {
        self.connected.notified()
    }

    /// Waits until a peer is connected.
    pub(crate) async fn until_connected(&self, id: &PeerId) {
        loop {
            let connected = self.connected.notified();
            if self.get(id).is_some() {
                return;
            }
            connected.await;
        }
    }

    /// Removes a connection of a peer. Returns the peer if this was its last connection.
    pub(crate) fn detach(&self, id: &PeerId, connection: ConnectionId) -> Option<Arc<Peer>> {
        let mut peers = self.peers.write();
        let is_last = peers.get(id)?.remove_connection(connection);
        if is_last { peers.remove(id) } else { None }
    }

    /// Removes all peers.
    pub(crate) fn drain(&self) -> Vec<Arc<Peer>> {
        self.peers.write().drain().map(|(_, peer)| peer).collect()
    }
}

//! Connections of peers.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::SystemTime;

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, FromSwarm};
use libp2p::swarm::{ConnectionDenied, ConnectionId, NetworkBehaviour, ToSwarm};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::mpsc;

use super::handler::Handler;
use crate::engine::Engine;
use crate::peer::{Connection, Direction};

/// Number of requests for streams that wait for one connection.
const OPEN_REQUESTS: usize = 8;

/// The limit of connected peers is reached.
#[derive(Debug, thiserror::Error)]
#[error("this node is connected to retrieval.bitswap.max_peers peers")]
struct TooManyPeers;

/// Registers the connections of peers.
pub(crate) struct Behaviour {
    engine: Engine,
}

impl Behaviour {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    fn connected(&self, id: ConnectionId, peer: PeerId, address: &Multiaddr, direction: Direction) -> Handler {
        let context = &self.engine.context;
        let (opener, requests) = mpsc::channel(OPEN_REQUESTS);
        let connection =
            Connection { id, opener, address: address.clone(), direction, since: SystemTime::now() };
        let (peer, is_new) = context.peers.attach(peer, connection, &context.config);
        if is_new {
            context.metrics.peers.inc();
            self.engine.start_peer(&peer);
        }
        Handler::new(self.engine.clone(), peer, requests)
    }

    /// Refuses new inbound peers at the limit. Dials may exceed it by the number of concurrent dials.
    fn check_limit(&self, peer: Option<PeerId>) -> Result<(), ConnectionDenied> {
        let context = &self.engine.context;
        let is_known = peer.is_some_and(|peer| context.peers.get(&peer).is_some());
        if is_known || context.peers.len() < context.config.max_peers {
            return Ok(());
        }
        context.metrics.refused_connections.inc();
        Err(ConnectionDenied::new(TooManyPeers))
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<Handler, ConnectionDenied> {
        self.check_limit(Some(peer))?;
        Ok(self.connected(id, peer, remote, Direction::Inbound))
    }

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        self.check_limit(peer)?;
        Ok(Vec::new())
    }

    fn handle_established_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<Handler, ConnectionDenied> {
        Ok(self.connected(id, peer, address, Direction::Outbound))
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        let context = &self.engine.context;
        if let FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, .. }) = event
            && let Some(peer) = context.peers.detach(&peer_id, connection_id)
        {
            context.metrics.peers.dec();
            context.forget(&peer);
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: Infallible) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, Infallible>> {
        Poll::Pending
    }
}

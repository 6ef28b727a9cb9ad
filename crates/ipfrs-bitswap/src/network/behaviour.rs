//! Connections of peers.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::{ConnectionClosed, FromSwarm};
use libp2p::swarm::{ConnectionDenied, ConnectionId, NetworkBehaviour, ToSwarm};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use crate::address;
use crate::engine::Engine;
use crate::peer::{Connection, Direction, Peer};

/// Number of requests for streams that wait for one connection.
const OPEN_REQUESTS: usize = 8;

/// The limit of connected peers is reached.
#[derive(Debug, thiserror::Error)]
#[error("this node is connected to retrieval.bitswap.max_peers peers")]
struct TooManyPeers;

/// Part of the idle timeout after which an unused inbound peer may be disconnected in favour of another one.
const UNUSED_PART: u32 = 8;

/// Registers the connections of peers.
pub(crate) struct Behaviour {
    engine: Engine,
    /// Configured peers, which the limit does not concern.
    chosen: HashSet<PeerId>,
    /// The dial that the operator requests, which the limit does not concern either.
    pub(super) operator_dial: Option<ConnectionId>,
}

impl Behaviour {
    pub(super) fn new(engine: Engine) -> Self {
        let configured = engine.context.config.chosen_addrs();
        let chosen = configured.filter_map(|address| address::split_peer(address).ok()).map(|(peer, _)| peer).collect();
        Self { engine, chosen, operator_dial: None }
    }

    fn connected(&self, id: ConnectionId, peer: PeerId, address: &Multiaddr, direction: Direction) -> Handler {
        let context = &self.engine.context;
        let (opener, requests) = mpsc::channel(OPEN_REQUESTS);
        let (address, since, closed) = (address.clone(), SystemTime::now(), CancellationToken::new());
        let connection = Connection { id, opener, address, direction, since, closed };
        let (peer, is_new) = context.peers.attach(peer, connection, &context.config);
        if is_new {
            context.metrics.peers.inc();
            self.engine.start_peer(&peer);
        }
        Handler::new(self.engine.clone(), peer, requests)
    }

    /// Makes room for a new peer, or refuses it if `limit` peers are connected. Dials may exceed the limit by the
    /// number of concurrent dials.
    fn check_limit(&self, peer: Option<PeerId>, limit: usize) -> Result<(), ConnectionDenied> {
        let context = &self.engine.context;
        let is_exempt = peer.is_some_and(|peer| self.chosen.contains(&peer) || context.peers.get(&peer).is_some());
        if is_exempt || context.peers.len() < limit {
            return Ok(());
        }
        let connected = context.peers.all();
        let staying: Vec<_> = connected.iter().filter(|peer| !peer.is_disconnecting()).collect();
        if staying.len() < limit {
            return Ok(());
        }
        let is_unneeded = |peer: &Arc<Peer>| {
            let is_inbound = peer.first_connection(|connection| connection.direction) == Some(Direction::Inbound);
            is_inbound && !peer.is_protected() && !self.chosen.contains(&peer.id) && !peer.has_requests()
        };
        let unneeded = staying.iter().copied().filter(|peer| is_unneeded(peer)).map(|peer| (peer.unused_for(), peer));
        let min = context.config.idle_timeout() / UNUSED_PART;
        match unneeded.filter(|(unused, _)| *unused >= min).max_by_key(|(unused, _)| *unused) {
            Some((_, peer)) => {
                context.disconnect(peer, "another peer takes its place");
                Ok(())
            }
            None => {
                context.metrics.refused_connections.inc();
                Err(ConnectionDenied::new(TooManyPeers))
            }
        }
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
        // The rest is for the dials of sessions.
        let limit = (self.engine.context.config.max_peers * 3).div_ceil(4);
        self.check_limit(Some(peer), limit)?;
        Ok(self.connected(id, peer, remote, Direction::Inbound))
    }

    fn handle_pending_outbound_connection(
        &mut self,
        id: ConnectionId,
        peer: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        if self.operator_dial != Some(id) {
            self.check_limit(peer, self.engine.context.config.max_peers)?;
        }
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

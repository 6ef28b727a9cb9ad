//! The task that drives all connections.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ipfrs_core::{Error, ErrorKind, Result};
use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::core::transport::{ListenerId, TransportError};
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, NetworkBehaviour, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, identify, ping, swarm};
use libp2p_stream::Control;
use socket2::{Domain, Socket, Type};
use tokio::sync::{mpsc, oneshot};

use super::Origin;
use super::behaviour::Behaviour;
use super::transport;
use crate::context::Context;
use crate::engine::Engine;
use crate::peer::{Identity, Peer};

/// Maximum number of inbound connections that are being established.
const MAX_PENDING_INBOUND: u32 = 64;
/// Maximum number of connections to one peer: one from each side, if both dial at the same time.
const MAX_CONNECTIONS_PER_PEER: u32 = 2;
/// Maximum number of inbound streams of one connection whose protocol is being negotiated.
const MAX_NEGOTIATING_STREAMS: usize = 256;
/// Number of failed pings after which a peer is disconnected.
const MAX_FAILED_PINGS: u32 = 3;
/// Time in which connections must end during the shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Receives the result of a dial.
type DialReply = oneshot::Sender<Result<Arc<Peer>, String>>;

/// A command for the task.
pub(super) enum Command {
    Dial { peer: PeerId, addresses: Vec<Multiaddr>, origin: Origin, reply: DialReply },
    Disconnect { peer: PeerId, reply: oneshot::Sender<bool> },
    Close { connection: ConnectionId, reply: oneshot::Sender<bool> },
}

/// The protocols of this node. Connections are registered last, after the others have accepted them.
#[derive(NetworkBehaviour)]
pub(super) struct Protocols {
    limits: connection_limits::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    /// Streams for round trips on demand.
    pingers: libp2p_stream::Behaviour,
    bitswap: Behaviour,
}

pub(super) fn create(engine: Engine, keypair: &Keypair) -> Result<Swarm<Protocols>> {
    let config = &engine.context.config;
    let announced = config.announce.clone();
    let transport = transport::create(config, keypair)?;
    let limits = ConnectionLimits::default()
        .with_max_pending_incoming(Some(MAX_PENDING_INBOUND))
        .with_max_established_per_peer(Some(MAX_CONNECTIONS_PER_PEER));
    // No addresses are cached: peers cannot make this node dial addresses that the filter has not seen.
    let own = || concat!("ipfrs/", env!("CARGO_PKG_VERSION")).to_owned();
    let agent_version = config.agent_version.clone().unwrap_or_else(own);
    let identify = identify::Config::new("ipfs/0.1.0".to_owned(), keypair.public())
        .with_agent_version(agent_version)
        .with_cache_size(0);
    let swarm_config = swarm::Config::with_tokio_executor()
        .with_idle_connection_timeout(config.idle_timeout())
        .with_max_negotiating_inbound_streams(MAX_NEGOTIATING_STREAMS);
    let protocols = Protocols {
        limits: connection_limits::Behaviour::new(limits),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::default(),
        pingers: libp2p_stream::Behaviour::new(),
        bitswap: Behaviour::new(engine),
    };
    let mut swarm = Swarm::new(transport, protocols, keypair.public().to_peer_id(), swarm_config);
    announced.into_iter().for_each(|address| swarm.add_external_address(address));
    Ok(swarm)
}

/// Returns the handle that opens streams.
pub(super) fn control(swarm: &Swarm<Protocols>) -> Control {
    swarm.behaviour().pingers.new_control()
}

/// Listens on all `addresses`.
pub(super) async fn listen(swarm: &mut Swarm<Protocols>, addresses: &[Multiaddr]) -> Result<()> {
    let failed = |address: &Multiaddr, why: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, format!("retrieval.bitswap.listen: cannot listen on {address}: {why}"))
    };
    let mut pending: HashMap<ListenerId, &Multiaddr> = HashMap::new();
    for address in addresses {
        check_free(address).map_err(|e| failed(address, &e))?;
        let id = swarm.listen_on(address.clone()).map_err(|e| match e {
            // libp2p displays it as an empty text.
            TransportError::Other(why) => failed(address, &why),
            unsupported => failed(address, &unsupported),
        })?;
        pending.insert(id, address);
    }
    while !pending.is_empty() {
        match swarm.select_next_some().await {
            SwarmEvent::NewListenAddr { listener_id, .. } => drop(pending.remove(&listener_id)),
            SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                if let Some(address) = pending.get(&listener_id) {
                    let why = reason.err().map_or_else(|| "it was closed".to_owned(), |e| e.to_string());
                    return Err(failed(address, &why));
                }
            }
            SwarmEvent::ListenerError { listener_id, error } => {
                if let Some(address) = pending.get(&listener_id) {
                    return Err(failed(address, &error));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that no other process listens on a TCP port. libp2p shares ports, so that its own listener would succeed and
/// each of the processes would receive some of the connections.
fn check_free(address: &Multiaddr) -> std::io::Result<()> {
    let mut parts = address.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => IpAddr::V4(ip),
        Some(Protocol::Ip6(ip)) => IpAddr::V6(ip),
        _ => return Ok(()),
    };
    match parts.next() {
        Some(Protocol::Tcp(port)) if port != 0 => {
            let address = SocketAddr::from((ip, port));
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // As libp2p listens: `::` is not 0.0.0.0 as well, which another of the addresses may be.
            if ip.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(1)
        }
        _ => Ok(()),
    }
}

/// A dial in progress.
struct Dial {
    peer: PeerId,
    addresses: Vec<Multiaddr>,
    replies: Vec<DialReply>,
}

struct Task {
    swarm: Swarm<Protocols>,
    context: Arc<Context>,
    dials: HashMap<ConnectionId, Dial>,
    failed_pings: HashMap<PeerId, u32>,
}

/// Drives the connections until the shutdown.
pub(super) async fn run(
    swarm: Swarm<Protocols>,
    context: Arc<Context>,
    mut commands: mpsc::Receiver<Command>,
    mut disconnects: mpsc::UnboundedReceiver<PeerId>,
) {
    let stop = context.stop.clone();
    let mut task = Task { swarm, context, dials: HashMap::new(), failed_pings: HashMap::new() };
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            event = task.swarm.select_next_some() => task.on_event(event),
            Some(command) = commands.recv() => task.on_command(command),
            Some(peer) = disconnects.recv() => {
                task.swarm.disconnect_peer_id(peer).ok();
            }
        }
    }
    task.shut_down().await;
}

impl Task {
    fn on_command(&mut self, command: Command) {
        match command {
            Command::Dial { peer, addresses, origin, reply } => self.dial(peer, addresses, origin, reply),
            Command::Disconnect { peer, reply } => drop(reply.send(self.swarm.disconnect_peer_id(peer).is_ok())),
            Command::Close { connection, reply } => drop(reply.send(self.swarm.close_connection(connection))),
        }
    }

    fn dial(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, origin: Origin, reply: DialReply) {
        if let Some(connected) = self.context.peers.get(&peer) {
            reply.send(Ok(connected)).ok();
            return;
        }
        let includes =
            |dial: &&mut Dial| dial.peer == peer && addresses.iter().all(|address| dial.addresses.contains(address));
        if let Some(dial) = self.dials.values_mut().find(includes) {
            dial.replies.push(reply);
            return;
        }
        // From its own listening port, a dial could meet one of the peer as one TCP connection with two initiators.
        let options = DialOpts::peer_id(peer)
            .addresses(addresses.clone())
            .condition(PeerCondition::Disconnected)
            .allocate_new_port()
            .build();
        let id = options.connection_id();
        self.swarm.behaviour_mut().bitswap.operator_dial = (origin == Origin::Operator).then_some(id);
        match self.swarm.dial(options) {
            Ok(()) => drop(self.dials.insert(id, Dial { peer, addresses, replies: vec![reply] })),
            Err(error) => drop(reply.send(Err(error.to_string()))),
        }
    }

    fn on_event(&mut self, event: SwarmEvent<ProtocolsEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, .. } => self.on_connected(peer_id),
            SwarmEvent::ConnectionClosed { peer_id, num_established: 0, .. } => {
                self.failed_pings.remove(&peer_id);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error, .. } => {
                for reply in self.dials.remove(&connection_id).into_iter().flat_map(|dial| dial.replies) {
                    // The peer may have connected to this node meanwhile.
                    let connected = peer_id.and_then(|peer| self.context.peers.get(&peer));
                    reply.send(connected.ok_or_else(|| error.to_string())).ok();
                }
            }
            SwarmEvent::Behaviour(ProtocolsEvent::Identify(identify::Event::Received { peer_id, info, .. })) => {
                if let Some(peer) = self.context.peers.get(&peer_id) {
                    peer.set_identity(Identity {
                        agent_version: info.agent_version,
                        protocols: info.protocols.iter().map(ToString::to_string).collect(),
                        addresses: info.listen_addrs,
                    });
                }
            }
            SwarmEvent::Behaviour(ProtocolsEvent::Ping(event)) => self.on_ping(event),
            SwarmEvent::NewListenAddr { .. } | SwarmEvent::ExpiredListenAddr { .. } => self.note_listen_addrs(),
            SwarmEvent::ListenerError { error, .. } => tracing::warn!("a Bitswap listener reports: {error}"),
            SwarmEvent::ListenerClosed { addresses, reason: Err(error), .. } => {
                tracing::error!(?addresses, "a Bitswap listener failed: {error}: restart the daemon");
            }
            _ => {}
        }
    }

    fn note_listen_addrs(&self) {
        *self.context.listen_addrs.write() = self.swarm.listeners().cloned().collect();
    }

    fn on_connected(&mut self, peer: PeerId) {
        let Some(connected) = self.context.peers.get(&peer) else { return };
        for (_, dial) in self.dials.extract_if(|_, dial| dial.peer == peer) {
            dial.replies.into_iter().for_each(|reply| drop(reply.send(Ok(Arc::clone(&connected)))));
        }
    }

    fn on_ping(&mut self, event: ping::Event) {
        match event.result {
            Ok(latency) => {
                self.failed_pings.remove(&event.peer);
                if let Some(peer) = self.context.peers.get(&event.peer) {
                    peer.set_latency(latency);
                }
            }
            Err(ping::Failure::Unsupported) => {}
            Err(failure) => {
                let failures = self.failed_pings.entry(event.peer).or_default();
                *failures += 1;
                if *failures >= MAX_FAILED_PINGS {
                    tracing::debug!(peer = %event.peer, "the peer is disconnected: no response to pings: {failure}");
                    self.swarm.disconnect_peer_id(event.peer).ok();
                }
            }
        }
    }

    /// Closes all connections.
    async fn shut_down(mut self) {
        let peers: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in peers {
            self.swarm.disconnect_peer_id(peer).ok();
        }
        let all_closed = async {
            while self.swarm.connected_peers().next().is_some() {
                self.swarm.select_next_some().await;
            }
        };
        tokio::time::timeout(SHUTDOWN_TIMEOUT, all_closed).await.ok();
        for peer in self.context.peers.drain() {
            self.context.metrics.peers.dec();
            self.context.forget(&peer);
        }
    }
}

//! The libp2p network: connections, streams, and the identity of peers.

mod behaviour;
mod handler;
mod swarm;
mod transport;

use std::net::IpAddr;
use std::sync::Arc;

use ipfrs_core::Result;
use libp2p::identity::Keypair;
use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId};
use libp2p_stream::Control;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::address::{AddressFilter, Resolver};
use crate::context::Context;
use crate::engine::Engine;
use crate::peer::Peer;
use swarm::Command;

/// Maximum number of dials of all sessions at the same time.
const MAX_DIALS: usize = 64;
/// Number of commands that wait for the task of the network.
const COMMANDS: usize = 64;

/// Failure to connect to a peer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("none of its addresses can be dialed: they have other transports, no IP address, or are private")]
    NoAddress,
    #[error("{0}")]
    Failed(String),
}

/// Origin of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The operator. Every address may be dialed.
    Operator,
    /// Anyone else. The filter decides.
    Network,
}

/// Handle of the network. Clones share it.
#[derive(Clone)]
pub(crate) struct Network {
    pub context: Arc<Context>,
    commands: mpsc::Sender<Command>,
    resolver: Resolver,
    filter: AddressFilter,
    dials: Arc<Semaphore>,
    pub control: Control,
}

/// A running network.
pub(crate) struct Running {
    pub network: Network,
    pub peer_id: PeerId,
    pub task: JoinHandle<()>,
}

impl Network {
    /// Starts the network and returns once it listens on every configured address.
    ///
    /// # Errors
    /// If it cannot listen on an address. The message names the address.
    pub(crate) async fn start(
        engine: Engine,
        keypair: &Keypair,
        filter: AddressFilter,
        disconnects: mpsc::UnboundedReceiver<PeerId>,
    ) -> Result<Running> {
        let context = Arc::clone(&engine.context);
        let mut swarm = swarm::create(engine, keypair)?;
        swarm::listen(&mut swarm, &context.config.listen_addrs()).await?;
        *context.listen_addrs.write() = swarm.listeners().cloned().collect();
        let peer_id = *swarm.local_peer_id();
        let control = swarm::control(&swarm);
        let (commands, received) = mpsc::channel(COMMANDS);
        let task = tokio::spawn(swarm::run(swarm, Arc::clone(&context), received, disconnects));
        let dials = Arc::new(Semaphore::new(MAX_DIALS));
        let network = Self { context, commands, resolver: Resolver::from_system(), filter, dials, control };
        Ok(Running { network, peer_id, task })
    }

    /// Returns the peer after connecting to it, unless it is connected already.
    ///
    /// # Errors
    /// If no connection could be established.
    pub(crate) async fn connect(
        &self,
        peer: PeerId,
        addresses: &[Multiaddr],
        origin: Origin,
    ) -> Result<Arc<Peer>, DialError> {
        if let Some(connected) = self.context.peers.get(&peer) {
            return Ok(connected);
        }
        let metrics = &self.context.metrics.dials;
        let result = self.dial(peer, addresses, origin).await;
        match &result {
            Ok(_) => metrics.connected.inc(),
            Err(DialError::NoAddress) => metrics.no_address.inc(),
            Err(DialError::Failed(_)) => metrics.failed.inc(),
        }
        result
    }

    async fn dial(&self, peer: PeerId, addresses: &[Multiaddr], origin: Origin) -> Result<Arc<Peer>, DialError> {
        let stopped = || DialError::Failed("the network is shut down".to_owned());
        let _permit = match origin {
            Origin::Operator => None,
            Origin::Network => Some(self.dials.acquire().await.map_err(|_| stopped())?),
        };
        let is_allowed = |ip: &IpAddr| origin == Origin::Operator || (self.filter)(ip);
        let resolving = self.resolver.resolve(peer, addresses, is_allowed);
        let resolved = tokio::time::timeout(self.context.config.dial_timeout(), resolving);
        let addresses =
            resolved.await.map_err(|_| DialError::Failed("its name was not resolved in time".to_owned()))?;
        if addresses.is_empty() {
            return Err(DialError::NoAddress);
        }
        let (reply, connected) = oneshot::channel();
        self.commands.send(Command::Dial { peer, addresses, origin, reply }).await.map_err(|_| stopped())?;
        connected.await.map_err(|_| stopped())?.map_err(DialError::Failed)
    }

    /// Closes all connections to a peer. Returns whether there were any.
    pub(crate) async fn disconnect(&self, peer: PeerId) -> bool {
        let (reply, disconnected) = oneshot::channel();
        if self.commands.send(Command::Disconnect { peer, reply }).await.is_err() {
            return false;
        }
        disconnected.await.unwrap_or(false)
    }

    /// Closes a connection. Returns whether it was established.
    pub(crate) async fn close(&self, connection: ConnectionId) -> bool {
        let (reply, closed) = oneshot::channel();
        if self.commands.send(Command::Close { connection, reply }).await.is_err() {
            return false;
        }
        closed.await.unwrap_or(false)
    }
}

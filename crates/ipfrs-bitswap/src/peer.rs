//! A connected peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use libp2p::swarm::ConnectionId;
use libp2p::{Multiaddr, PeerId, Stream};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::address;
use crate::client::want_book::WantBook;
use crate::config::BitswapConfig;
use crate::server::wantlist::Wantlist;
use crate::wire::{MAX_MESSAGE_BYTES, Version};

/// Maximum number of streams of a peer that are read at the same time. Further ones wait.
const MAX_INBOUND_STREAMS: usize = 64;
/// Maximum number of further streams of a peer that wait. All above are closed.
const MAX_WAITING_STREAMS: usize = 448;
/// Bytes of received messages that one peer may have unverified.
pub(crate) const RECEIVE_BYTES: usize = 2 * MAX_MESSAGE_BYTES;
/// Time in which a stream must be opened.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of listen addresses and protocols of a peer that are remembered.
const MAX_IDENTITY_ENTRIES: usize = 64;
/// Longest agent version that is remembered, in bytes.
const MAX_AGENT_BYTES: usize = 128;

/// Direction in which a connection was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The peer connected to this node.
    Inbound,
    /// This node connected to the peer.
    Outbound,
}

/// Failure to open a stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("the peer does not support Bitswap")]
    Unsupported,
    #[error("no stream could be opened: {0}")]
    Failed(String),
}

/// Request to a connection for a stream.
pub(crate) type OpenRequest = oneshot::Sender<Result<(Stream, Version), OpenError>>;

/// One connection to a peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: ConnectionId,
    pub opener: mpsc::Sender<OpenRequest>,
    pub address: Multiaddr,
    pub direction: Direction,
    pub since: SystemTime,
    /// Cancelled when the connection has ended.
    pub closed: CancellationToken,
}

/// Metadata of a peer, as the peer reports it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    pub agent_version: String,
    pub protocols: Vec<String>,
    pub addresses: Vec<Multiaddr>,
}

/// Exchanged blocks and bytes.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    pub blocks: AtomicU64,
}

/// A peer, from its first connection until its last one ends.
pub(crate) struct Peer {
    pub id: PeerId,
    connections: Mutex<Vec<Connection>>,
    pub identity: Mutex<Identity>,
    latency_micros: AtomicU64,
    /// Wants of this node's sessions towards the peer.
    pub wants: Mutex<WantBook>,
    pub wants_changed: Notify,
    /// Wants of the peer.
    pub served: Mutex<Wantlist>,
    pub served_changed: Notify,
    /// Notified when another want may be added.
    pub served_room: Notify,
    pub exchange: Exchange,
    /// Memory for messages that are received and not yet verified.
    pub receive_memory: Arc<Semaphore>,
    /// Memory for blocks that are read and not yet sent.
    pub send_memory: Arc<Semaphore>,
    inbound_streams: Semaphore,
    waiting_streams: Semaphore,
    pub unrequested_blocks: AtomicUsize,
    is_protected: AtomicBool,
    is_disconnecting: AtomicBool,
    last_message: Mutex<Instant>,
    idle_timeout: Duration,
    /// Cancelled when the last connection ends.
    pub closed: CancellationToken,
}

impl Peer {
    pub(crate) fn new(id: PeerId, config: &BitswapConfig) -> Self {
        Self {
            id,
            connections: Mutex::new(Vec::new()),
            identity: Mutex::new(Identity::default()),
            latency_micros: AtomicU64::new(0),
            wants: Mutex::new(WantBook::new(id)),
            wants_changed: Notify::new(),
            served: Mutex::new(Wantlist::new(config.max_wants_per_peer)),
            served_changed: Notify::new(),
            served_room: Notify::new(),
            exchange: Exchange::default(),
            receive_memory: Arc::new(Semaphore::new(RECEIVE_BYTES)),
            send_memory: Arc::new(Semaphore::new(config.max_outstanding_bytes_per_peer)),
            inbound_streams: Semaphore::new(MAX_INBOUND_STREAMS),
            waiting_streams: Semaphore::new(MAX_WAITING_STREAMS),
            unrequested_blocks: AtomicUsize::new(0),
            is_protected: AtomicBool::new(false),
            is_disconnecting: AtomicBool::new(false),
            last_message: Mutex::new(Instant::now()),
            idle_timeout: config.idle_timeout(),
            closed: CancellationToken::new(),
        }
    }

    pub(crate) fn add_connection(&self, connection: Connection) {
        self.is_disconnecting.store(false, Ordering::Relaxed);
        self.connections.lock().push(connection);
    }

    /// Marks the peer as one that is being disconnected. Returns whether it was not marked.
    pub(crate) fn start_disconnecting(&self) -> bool {
        !self.is_disconnecting.swap(true, Ordering::Relaxed)
    }

    /// Returns whether this node is closing the connections to the peer.
    pub(crate) fn is_disconnecting(&self) -> bool {
        self.is_disconnecting.load(Ordering::Relaxed)
    }

    /// Removes a connection and returns whether it was the last one.
    pub(crate) fn remove_connection(&self, id: ConnectionId) -> bool {
        let mut connections = self.connections.lock();
        connections.extract_if(.., |connection| connection.id == id).for_each(|removed| removed.closed.cancel());
        connections.is_empty()
    }

    /// Calls `read` with the oldest connection.
    pub(crate) fn first_connection<T>(&self, read: impl FnOnce(&Connection) -> T) -> Option<T> {
        self.connections.lock().first().map(read)
    }

    /// Returns the connection to `address`, which has no peer ID, and the token that is cancelled when it has ended.
    pub(crate) fn connection_to(&self, address: &Multiaddr) -> Option<(ConnectionId, CancellationToken)> {
        let leads_to = |connection: &&Connection| {
            address::without_peer(&connection.address, self.id).is_some_and(|remote| remote == *address)
        };
        self.connections.lock().iter().find(leads_to).map(|found| (found.id, found.closed.clone()))
    }

    /// Opens a stream on the oldest connection that still accepts one.
    pub(crate) async fn open_stream(&self) -> Result<(Stream, Version), OpenError> {
        let openers: Vec<_> = self.connections.lock().iter().map(|connection| connection.opener.clone()).collect();
        let mut last = OpenError::Failed("the connection is closed".to_owned());
        for opener in openers {
            let (reply, opened) = oneshot::channel();
            let open = async {
                opener.send(reply).await.ok()?;
                opened.await.ok()
            };
            match tokio::time::timeout(OPEN_TIMEOUT, open).await {
                Ok(Some(Ok(stream))) => return Ok(stream),
                Ok(Some(Err(error))) => last = error,
                Ok(None) => {}
                Err(_) => last = OpenError::Failed("the peer did not respond in time".to_owned()),
            }
        }
        Err(last)
    }

    /// Waits until an inbound stream may be read. Calls `on_delay` if it has to wait. The permit ends with the stream.
    /// Returns `None` if too many streams wait.
    pub(crate) async fn accept_stream(&self, on_delay: impl FnOnce()) -> Option<SemaphorePermit<'_>> {
        if let Ok(permit) = self.inbound_streams.try_acquire() {
            return Some(permit);
        }
        on_delay();
        let _waiting = self.waiting_streams.try_acquire().ok()?;
        // The semaphore is never closed.
        self.inbound_streams.acquire().await.ok()
    }

    /// Allows that the connections are closed when they are not used.
    pub(crate) fn unprotect(&self) {
        self.is_protected.store(false, Ordering::Relaxed);
    }

    /// Keeps the connection open although it is unused.
    pub(crate) fn protect(&self) {
        self.is_protected.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection stays open although it is unused.
    pub(crate) fn is_protected(&self) -> bool {
        self.is_protected.load(Ordering::Relaxed)
    }

    /// Returns whether the connection must stay open.
    pub(crate) fn is_used(&self) -> bool {
        self.is_protected() || self.unused_for() < self.idle_timeout || self.has_requests()
    }

    /// Returns whether a session uses the peer or a response to it is due.
    pub(crate) fn has_requests(&self) -> bool {
        self.wants.lock().is_used() || self.served.lock().is_busy()
    }

    /// Returns the time since the last message.
    pub(crate) fn unused_for(&self) -> Duration {
        self.last_message.lock().elapsed()
    }

    /// Records that a message was exchanged.
    pub(crate) fn touch(&self) {
        *self.last_message.lock() = Instant::now();
    }

    pub(crate) fn set_identity(&self, mut identity: Identity) {
        identity.protocols.truncate(MAX_IDENTITY_ENTRIES);
        identity.addresses.truncate(MAX_IDENTITY_ENTRIES);
        identity.agent_version = identity.agent_version.chars().take(MAX_AGENT_BYTES).collect();
        *self.identity.lock() = identity;
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency_micros.store(micros.max(1), Ordering::Relaxed);
    }

    /// Returns the last measured round-trip time.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let micros = self.latency_micros.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Ends the tasks of the peer and tells its sessions.
    pub(crate) fn close(&self) {
        self.closed.cancel();
        self.wants.lock().disconnected();
    }
}

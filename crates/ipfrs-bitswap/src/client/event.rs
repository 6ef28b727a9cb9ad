//! Events that a session receives.

use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_core::{Cid, Result};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::{mpsc, oneshot};

use super::received::Received;

/// Identifies a session within the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SessionId(u64);

impl SessionId {
    /// Returns an ID that no other session has.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event for a session, from its callers and from the peers that it uses.
pub(crate) enum SessionEvent {
    /// A caller waits for a block. If it is patient, it waits until a peer has the block.
    Get { cid: Cid, waiter: u64, is_patient: bool, reply: oneshot::Sender<Result<Received>> },
    /// A caller no longer waits.
    Abandon { cid: Cid, waiter: u64 },
    /// A caller knows peers that may have the blocks.
    Providers(Vec<(PeerId, Vec<Multiaddr>)>),
    /// A peer sent a wanted block.
    Block { peer: PeerId, received: Received },
    /// A peer says whether it has a wanted block.
    Presence { peer: PeerId, cid: Cid, has_block: bool },
    /// A peer sent a block that was never requested.
    Invalid { peer: PeerId, bytes: usize },
    /// A peer does not support Bitswap.
    Unsupported { peer: PeerId },
    /// The last connection to a peer ended.
    Disconnected { peer: PeerId },
    /// The last handle of the session was dropped.
    Close,
}

/// Sends events to a session. The channel has no bound of its own: callers and the wants that a session has sent limit
/// the number of events.
pub(crate) type SessionSender = mpsc::UnboundedSender<SessionEvent>;

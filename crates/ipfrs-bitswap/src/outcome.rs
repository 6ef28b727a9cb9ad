//! Attempts of a session: each says which peer was asked for what, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::Cid;
use libp2p::PeerId;

/// Subject of an [`Attempt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Request {
    /// The session connected to the peer.
    Connect,
    /// The session asked whether the peer has the block (`WANT-HAVE`).
    Have,
    /// The session asked for the block (`WANT-BLOCK`).
    Block,
}

/// Outcome of an [`Attempt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The peer is connected.
    Connected,
    /// No connection to the peer could be established.
    NotConnected,
    /// The peer has no address that this node can and may dial.
    NoAddress,
    /// The peer sent the block, which matches its content ID.
    Received,
    /// The peer has the block.
    Have,
    /// The peer does not have the block.
    DontHave,
    /// The peer did not respond in time.
    TimedOut,
    /// The connection ended before the response.
    Disconnected,
    /// The peer does not support Bitswap.
    Unsupported,
    /// The peer sent bytes that match no requested block. The session no longer uses it.
    Invalid,
    /// The peer responded with `DONT_HAVE` too often. The session no longer uses it.
    Dropped,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 11] = [
        Self::Connected,
        Self::NotConnected,
        Self::NoAddress,
        Self::Received,
        Self::Have,
        Self::DontHave,
        Self::TimedOut,
        Self::Disconnected,
        Self::Unsupported,
        Self::Invalid,
        Self::Dropped,
    ];

    /// Returns the stable, lower-case name for metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::NotConnected => "not_connected",
            Self::NoAddress => "no_address",
            Self::Received => "received",
            Self::Have => "have",
            Self::DontHave => "dont_have",
            Self::TimedOut => "timed_out",
            Self::Disconnected => "disconnected",
            Self::Unsupported => "unsupported",
            Self::Invalid => "invalid",
            Self::Dropped => "dropped",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One request of a session to a peer, with its outcome.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The peer.
    pub peer: PeerId,
    /// The request of the session.
    pub request: Request,
    /// The block, unless `request` is [`Request::Connect`] or the outcome concerns the peer as a whole.
    pub cid: Option<Cid>,
    /// The outcome.
    pub outcome: Outcome,
    /// Bytes of the block, if the peer sent one.
    pub bytes: usize,
    /// Time from the request to the outcome.
    pub duration: Duration,
    /// Details of a failed connection.
    pub detail: Option<String>,
}

/// Receives the attempts of a session, on the task of the session. It must not block.
pub type Trace = Arc<dyn Fn(&Attempt) + Send + Sync>;

//! A flag that the producer of a connection's responses shares with its socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State shared between the socket of a connection and the producer of its responses. Both run in the same task, so
/// the flag needs no memory ordering. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<State>);

#[derive(Debug, Default)]
struct State {
    more_follows: AtomicBool,
}

impl Traffic {
    /// Sets whether more of the current response is available without waiting. A caller that sets the flag must clear
    /// it at the end of the response, including on failure, and whenever the rest of the response is not yet
    /// available.
    pub fn set_more_follows(&self, more_follows: bool) {
        self.0.more_follows.store(more_follows, Ordering::Relaxed);
    }

    /// Returns the value that was set last.
    #[must_use]
    pub fn more_follows(&self) -> bool {
        self.0.more_follows.load(Ordering::Relaxed)
    }
}

//! What a connection's socket and whoever makes its answers tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Said by the one and asked by the other, within one connection's task: nothing is ordered by it. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<State>);

#[derive(Debug, Default)]
struct State {
    more_follows: AtomicBool,
}

impl Traffic {
    /// Says whether more of the answer that is being sent is there at once. Whoever has said so must say when it is not any more:
    /// at the end of the answer, however it ends, and when the rest has to be waited for.
    pub fn set_more_follows(&self, more_follows: bool) {
        self.0.more_follows.store(more_follows, Ordering::Relaxed);
    }

    /// What was said last.
    #[must_use]
    pub fn more_follows(&self) -> bool {
        self.0.more_follows.load(Ordering::Relaxed)
    }
}

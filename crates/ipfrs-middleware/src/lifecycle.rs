//! Lifecycle of the daemon between start and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Readiness and shutdown state. Clones share it: the composition root sets it, front-ends read it.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    ready: Arc<AtomicBool>,
    draining: CancellationToken,
    end: CancellationToken,
}

impl Lifecycle {
    /// Creates a state that is neither ready nor shutting down.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the daemon as ready for requests.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Begins draining: readiness probes fail, so that load balancers send new requests elsewhere.
    pub fn drain(&self) {
        self.ready.store(false, Ordering::Release);
        self.draining.cancel();
    }

    /// Returns whether the daemon is draining, so that new requests should be sent elsewhere.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Completes once the daemon drains. Work without an end of its own must stop then.
    pub async fn drain_begun(&self) {
        self.draining.cancelled().await;
    }

    /// Returns whether the daemon is ready for requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Requests a shutdown of the daemon, as SIGTERM does.
    pub fn request_shutdown(&self) {
        self.end.cancel();
    }

    /// Completes once a shutdown has been requested.
    pub async fn shutdown_requested(&self) {
        self.end.cancelled().await;
    }
}

//! Where the daemon is between start and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Readiness, and the wish to end. Clones share it: the composition root drives it, front-ends read it.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    ready: Arc<AtomicBool>,
    draining: CancellationToken,
    end: CancellationToken,
}

impl Lifecycle {
    /// Not ready, not ending.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on requests are welcome.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// From now on new work should go elsewhere: readiness probes fail.
    pub fn drain(&self) {
        self.ready.store(false, Ordering::Release);
        self.draining.cancel();
    }

    /// Whether new work should go elsewhere, because the daemon ends.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Completes once the daemon drains: what has no end of its own is to end then.
    pub async fn drain_begun(&self) {
        self.draining.cancelled().await;
    }

    /// Whether requests are welcome.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Asks the daemon to end, as SIGTERM does.
    pub fn request_shutdown(&self) {
        self.end.cancel();
    }

    /// Completes once somebody has asked the daemon to end.
    pub async fn shutdown_requested(&self) {
        self.end.cancelled().await;
    }
}

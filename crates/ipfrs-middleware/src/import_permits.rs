//! Shares of the imports that run at the same time.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::fair_pool::{FairPool, Share};
use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;

/// Number of imports that a client may run while any are free.
const CLIENT_MINIMUM: usize = 1;
/// Maximum wait for a permit.
const PATIENCE: Duration = Duration::from_secs(30);

/// Permits of imports, so that a client which keeps many uploads open does not use up those of all others. Clones share
/// them.
#[derive(Debug, Clone)]
pub struct ImportPermits {
    pool: FairPool<Client>,
    released: Arc<Notify>,
}

/// Permit of one import, held until this value is dropped.
#[derive(Debug)]
pub struct ImportPermit {
    /// Returned to the pool before the others are told.
    share: Option<Share<Client>>,
    released: Arc<Notify>,
}

impl ImportPermits {
    /// Creates permits for `most` imports, of which one client holds at most as many as are free for all others.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { pool: FairPool::new(most, CLIENT_MINIMUM, usize::MAX), released: Arc::default() }
    }

    /// Waits for a permit for one more import of a client.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if the client gets none within 30 seconds.
    pub async fn take(&self, client: Client) -> Result<ImportPermit> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let released = self.released.notified();
            if let Ok(share) = self.pool.take(client, 1) {
                return Ok(ImportPermit { share: Some(share), released: Arc::clone(&self.released) });
            }
            timeout_at(deadline, released).await.map_err(|_| self.refusal())?;
        }
    }

    fn refusal(&self) -> Error {
        let (most, waited) = (self.pool.capacity(), PATIENCE.as_secs());
        let text = format!(
            "as many imports of this client are in progress as are left for all others, of {most} \
             (concurrency.max_concurrent_tasks), and none ended in {waited} s: try again when some have ended"
        );
        Error::new(ErrorKind::RateLimited, text)
    }
}

impl Drop for ImportPermit {
    fn drop(&mut self) {
        self.share = None;
        self.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn client_waits_for_its_own_imports_and_leaves_others_theirs() {
        let permits = ImportPermits::new(4);
        let client = |number: u8| Client::of(IpAddr::from([10, 0, 0, number]));
        let held = [permits.take(client(1)).await.unwrap(), permits.take(client(1)).await.unwrap()];
        let mut third = Box::pin(permits.take(client(1)));
        assert!((&mut third).now_or_never().is_none());
        let other = permits.take(client(2)).await.unwrap();
        drop(held);
        let _third = third.await.unwrap();
        drop(other);
        let _fourth = permits.take(client(1)).await.unwrap();
        let error = permits.take(client(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.to_string().contains("concurrency.max_concurrent_tasks"), "{error}");
    }
}

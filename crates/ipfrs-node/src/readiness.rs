//! Health check of the store's disk: whether it accepts writes.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Time for which the result of a disk check is reused.
const MAX_AGE: Duration = Duration::from_millis(20);

/// Maximum time that a health check waits for the disk.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Free space that the disk must have, in bytes: one batch of blocks, as imports write them, with framing.
const REQUIRED_FREE_BYTES: u64 = 5 * 1024 * 1024;

/// Result of the last disk check. Only one task checks the disk at a time, however many health checks wait for it, so
/// that a disk that does not respond blocks only one thread.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    is_checking: bool,
    last: Option<(Instant, Option<(ErrorKind, String)>)>,
}

impl State {
    /// Returns whether the caller must start a disk check.
    fn begin(&mut self) -> bool {
        let is_fresh = self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < MAX_AGE);
        let begins = !self.is_checking && !is_fresh;
        self.is_checking |= begins;
        begins
    }
}

impl Readiness {
    /// Checks that the disk has space for a batch of blocks.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] for a full disk, [`ErrorKind::Timeout`] for a disk that does not respond; otherwise the
    /// error of the disk.
    pub(crate) async fn check(&self, store: &Arc<dyn BlockStore>) -> Result<()> {
        let mut begins = false;
        self.state.send_if_modified(|state| {
            begins = state.begin();
            false
        });
        if begins {
            let (state, store) = (self.state.clone(), Arc::clone(store));
            tokio::spawn(async move {
                let checked = tokio::spawn(async move { check_disk(&*store).await }).await;
                let checked = checked.unwrap_or_else(|e| Err(Error::internal(format!("a disk check failed: {e}"))));
                let failure = checked.err().map(|error| (error.kind(), error.to_string()));
                state.send_modify(|state| *state = State { is_checking: false, last: Some((Instant::now(), failure)) });
            });
        }
        let mut state = self.state.subscribe();
        let checked = in_time(state.wait_for(|state| !state.is_checking)).await?;
        let checked = checked.map_err(|e| Error::internal("the disk check has stopped").with_source(e))?;
        match &checked.last {
            Some((_, Some((kind, why)))) => Err(Error::new(*kind, why.clone())),
            _ => Ok(()),
        }
    }
}

/// Waits for a check, but only as long as a health check may take.
///
/// # Errors
/// [`ErrorKind::Timeout`].
pub(crate) async fn in_time<T>(check: impl Future<Output = T>) -> Result<T> {
    let seconds = CHECK_TIMEOUT.as_secs();
    let late = |_| Error::new(ErrorKind::Timeout, format!("the disk has not responded for {seconds} s"));
    timeout(CHECK_TIMEOUT, check).await.map_err(late)
}

async fn check_disk(store: &dyn BlockStore) -> Result<()> {
    store.disk().await?.map_or(Ok(()), |disk| disk.check(REQUIRED_FREE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_checks_are_shared_and_reused_briefly() {
        let mut state = State::default();
        assert!(state.begin());
        assert!(!state.begin(), "another task is checking");
        state = State { is_checking: false, last: Some((Instant::now(), None)) };
        assert!(!state.begin(), "the last result is still valid");
        state.last = Some((Instant::now() - MAX_AGE, None));
        assert!(state.begin());
    }
}

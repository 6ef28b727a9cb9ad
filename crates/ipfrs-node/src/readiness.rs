//! Whether the disk of the store takes writes, for health checks.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Time for which the outcome of a look at the disk holds.
const MAX_AGE: Duration = Duration::from_millis(20);

/// Longest time that a health check waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes that the disk must have room for: a batch of blocks, as imports write them, with its framing.
const ROOM_BYTES: u64 = 5 * 1024 * 1024;

/// The outcome of the last look at the disk. At most one task looks at a time, however many health checks wait for it,
/// so that a disk which hangs holds one thread.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    is_looking: bool,
    last: Option<(Instant, Option<(ErrorKind, String)>)>,
}

impl State {
    /// Returns whether the caller is to begin a look at the disk.
    fn begin(&mut self) -> bool {
        let is_fresh = self.last.as_ref().is_some_and(|(at, _)| at.elapsed() < MAX_AGE);
        let begins = !self.is_looking && !is_fresh;
        self.is_looking |= begins;
        begins
    }
}

impl Readiness {
    /// Checks that a batch of blocks can be put.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`], [`ErrorKind::Timeout`] for a disk that does not respond; else what it fails with.
    pub(crate) async fn check(&self, store: &Arc<dyn BlockStore>) -> Result<()> {
        let mut begins = false;
        self.state.send_if_modified(|state| {
            begins = state.begin();
            false
        });
        if begins {
            let (state, store) = (self.state.clone(), Arc::clone(store));
            tokio::spawn(async move {
                let looked = tokio::spawn(async move { look(&*store).await }).await;
                let looked = looked.unwrap_or_else(|e| Err(Error::internal(format!("a look at the disk failed: {e}"))));
                let failure = looked.err().map(|error| (error.kind(), error.to_string()));
                state.send_modify(|state| *state = State { is_looking: false, last: Some((Instant::now(), failure)) });
            });
        }
        let mut state = self.state.subscribe();
        let Ok(looked) = timeout(PATIENCE, state.wait_for(|state| !state.is_looking)).await else {
            let seconds = PATIENCE.as_secs();
            return Err(Error::new(ErrorKind::Timeout, format!("the disk has not responded for {seconds} s")));
        };
        let looked = looked.map_err(|e| Error::internal("nothing looks at the disk").with_source(e))?;
        match &looked.last {
            Some((_, Some((kind, why)))) => Err(Error::new(*kind, why.clone())),
            _ => Ok(()),
        }
    }
}

async fn look(store: &dyn BlockStore) -> Result<()> {
    store.disk().await?.map_or(Ok(()), |disk| disk.check(ROOM_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_joined_and_hold_for_a_moment() {
        let mut state = State::default();
        assert!(state.begin());
        assert!(!state.begin(), "another task is looking");
        state = State { is_looking: false, last: Some((Instant::now(), None)) };
        assert!(!state.begin(), "the last look holds");
        state.last = Some((Instant::now() - MAX_AGE, None));
        assert!(state.begin());
    }
}

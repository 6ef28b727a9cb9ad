//! Puts into a store that also has fetched blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use ipfrs_core::{Block, Cid, Error, Multihash, Result};
use ipfrs_store::{BlockStore, PutMode, Stored};

use super::Fetched;
use crate::gc::Protection;

/// Number of times that a put repeats blocks that eviction removed while it ran.
const MAX_REPEATS: usize = 8;

/// Blocks that become content of users. Nothing may be acknowledged before [`Self::finish`] returns.
#[derive(Debug)]
pub(crate) struct Claims {
    fetched: Option<Arc<Fetched>>,
    must_write: bool,
}

impl Claims {
    pub(crate) fn new(fetched: Option<&Arc<Fetched>>) -> Self {
        Self { fetched: fetched.cloned(), must_write: false }
    }

    /// Makes eviction spare these blocks.
    pub(crate) fn add<'a>(&mut self, hashes: impl Iterator<Item = &'a Multihash>) {
        if let Some(fetched) = &self.fetched {
            let (claimed, must_write) = fetched.ledger.claim(hashes);
            fetched.metrics.claimed.inc_by(claimed);
            self.must_write |= must_write;
        }
    }

    /// Makes the claims durable.
    ///
    /// # Errors
    /// If the ledger's log cannot be written.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.fetched {
            Some(fetched) if self.must_write => fetched.write(true).await,
            _ => Ok(()),
        }
    }
}

impl Fetched {
    /// Stores content of users by `put`, durably: if some of the blocks were fetched before, they become permanent.
    pub(crate) async fn put_user_content<'a>(
        self: &'a Arc<Self>,
        store: &dyn BlockStore,
        protection: &Protection,
        blocks: Vec<Block>,
        mode: PutMode,
        put: impl Fn(Vec<Block>) -> BoxFuture<'a, Vec<Result<Stored>>>,
    ) -> Vec<Result<Stored>> {
        if !self.is_used() {
            let _until_used = self.unaware.read().await;
            if !self.is_used() {
                return put(blocks).await;
            }
        }
        let mut before = self.batches_ended.load(Ordering::SeqCst);
        let mut outcomes = put(blocks.clone()).await;
        for _ in 0..MAX_REPEATS {
            let stored: Vec<usize> = (0..outcomes.len()).filter(|index| outcomes[*index].is_ok()).collect();
            let mut claims = Claims::new(Some(self));
            claims.add(stored.iter().map(|index| blocks[*index].cid().hash()));
            if let Err(error) = claims.finish().await {
                fail(&mut outcomes, mode, &stored, &error);
                return outcomes;
            }
            if self.batches_begun.load(Ordering::SeqCst) == before {
                return outcomes;
            }
            // Eviction may have decided about a block between the put, which found it, and the claim.
            protection.settled().await;
            before = self.batches_ended.load(Ordering::SeqCst);
            let cids: Vec<Cid> = stored.iter().map(|index| *blocks[*index].cid()).collect();
            let found = match store.has_many(&cids).await {
                Ok(found) => found,
                Err(error) => {
                    fail(&mut outcomes, mode, &stored, &error);
                    return outcomes;
                }
            };
            let missing: Vec<_> =
                stored.iter().zip(found).filter(|(_, size)| size.is_none()).map(|(at, _)| *at).collect();
            if missing.is_empty() {
                return outcomes;
            }
            let repeated = put(missing.iter().map(|index| blocks[*index].clone()).collect()).await;
            let mut failed = None;
            for (index, outcome) in missing.iter().zip(repeated) {
                failed = outcome.as_ref().err().map(again).or(failed);
                outcomes[*index] = outcome;
            }
            if let Some(error) = failed.filter(|_| mode.is_atomic()) {
                fail(&mut outcomes, mode, &stored, &error);
                return outcomes;
            }
        }
        let stored: Vec<usize> = (0..outcomes.len()).collect();
        fail(&mut outcomes, mode, &stored, &Error::internal("eviction removed a block again and again: try again"));
        outcomes
    }

    /// Ends the time in which puts of users need not look at the ledger.
    pub(super) async fn begin_use(&self) {
        if !self.is_used() {
            let _no_put_is_unaware = self.unaware.write().await;
            self.is_used.store(true, Ordering::SeqCst);
        }
    }
}

fn again(error: &Error) -> Error {
    Error::new(error.kind(), error.message().to_owned())
}

/// Fails these blocks, or all of an atomic put.
fn fail(outcomes: &mut [Result<Stored>], mode: PutMode, indices: &[usize], error: &Error) {
    let all: Vec<usize> = (0..outcomes.len()).collect();
    for index in if mode.is_atomic() { &all } else { indices } {
        if let Some(outcome) = outcomes.get_mut(*index).filter(|outcome| outcome.is_ok()) {
            *outcome = Err(again(error));
        }
    }
}

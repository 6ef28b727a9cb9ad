//! Sources of one session: the configured gateways, then what routers and clients name.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::attempt::FAILURE_AGE;
use crate::source::Source;

/// Maximum number of sources of one session.
const MAX_CANDIDATES: usize = 64;
/// Maximum wait for a source that asked to be left alone for a while.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Progress of the search for providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    NotBegun,
    Running,
    /// It ended at this time.
    Done(Instant),
}

/// Sources of one session, in no order.
#[derive(Debug)]
pub(crate) struct Candidates {
    sources: Mutex<Vec<Arc<Source>>>,
    search: watch::Sender<Search>,
}

impl Candidates {
    pub(crate) fn new(sources: Vec<Arc<Source>>) -> Self {
        Self { sources: Mutex::new(sources), search: watch::Sender::new(Search::NotBegun) }
    }

    /// Adds a source, unless it is known or there are too many.
    pub(crate) fn add(&self, source: Arc<Source>) {
        self.add_within(source, MAX_CANDIDATES);
    }

    /// Adds a source that a client named. Half of the places are left to those of routers.
    pub(crate) fn add_hint(&self, source: Arc<Source>) {
        self.add_within(source, MAX_CANDIDATES / 2);
    }

    fn add_within(&self, source: Arc<Source>, most: usize) {
        let mut sources = self.sources.lock();
        if sources.len() < most && !sources.iter().any(|known| Arc::ptr_eq(known, &source)) {
            sources.push(source);
            drop(sources);
            self.search.send_modify(|_| {});
        }
    }

    /// Whether there is a source that may be tried.
    pub(crate) fn has_any(&self) -> bool {
        !self.sources.lock().is_empty()
    }

    /// Returns the number of sources that may not be tried now, and the time until the first of them may.
    pub(crate) fn paused(&self) -> Option<(usize, Duration)> {
        let pauses: Vec<_> = self.sources.lock().iter().filter_map(|source| source.paused_until()).collect();
        let first = pauses.iter().min()?.saturating_duration_since(Instant::now());
        Some((pauses.len(), first))
    }

    /// Tells those who wait for the search that it has found a peer.
    pub(crate) fn note_peer(&self) {
        self.search.send_modify(|_| {});
    }

    /// Returns a receiver of the progress of the search, which also changes with every source that is found.
    pub(crate) fn progress(&self) -> watch::Receiver<Search> {
        self.search.subscribe()
    }

    /// Records that providers are being searched. Returns false if that was recorded before.
    pub(crate) fn begin_search(&self) -> bool {
        self.search.send_if_modified(|search| {
            let is_first = *search == Search::NotBegun;
            *search = if is_first { Search::Running } else { *search };
            is_first
        })
    }

    pub(crate) fn end_search(&self) {
        self.search.send_replace(Search::Done(Instant::now()));
    }

    /// Forgets a search that ended a while ago, for a request that begins now. Requests that come one after the other
    /// cause one search in this time.
    pub(crate) fn forget_old_search(&self) {
        self.search.send_if_modified(|search| {
            let is_old = matches!(search, Search::Done(at) if at.elapsed() >= FAILURE_AGE);
            *search = if is_old { Search::NotBegun } else { *search };
            is_old
        });
    }

    /// Returns the best source that was not `tried` and is `usable`. If there is none, it calls `search` once and waits
    /// for what the search finds, and for sources that pause. Returns `None` if nothing is left to try.
    pub(crate) async fn next(
        &self,
        tried: &[Arc<Source>],
        usable: impl Fn(&Source) -> bool,
        search: impl Fn(),
    ) -> Option<Arc<Source>> {
        let mut searched = self.search.subscribe();
        loop {
            let progress = *searched.borrow_and_update();
            let (best, resumed) = self.best(tried, &usable);
            if best.is_some() {
                return best;
            }
            match (progress, resumed) {
                (Search::NotBegun, _) => search(),
                (Search::Running, None) => _ = searched.changed().await,
                (Search::Running, Some(resumed)) => tokio::select! {
                    _ = searched.changed() => {}
                    () = sleep_until(resumed) => {}
                },
                (Search::Done(_), Some(resumed)) if resumed <= Instant::now() + MAX_PAUSE => sleep_until(resumed).await,
                (Search::Done(_), _) => return None,
            }
        }
    }

    /// Returns the best source that can be used now, or the time at which the first of them can be used.
    fn best(&self, tried: &[Arc<Source>], usable: impl Fn(&Source) -> bool) -> (Option<Arc<Source>>, Option<Instant>) {
        let sources = self.sources.lock();
        let mut resumed: Option<Instant> = None;
        let mut best: Option<(f64, &Arc<Source>)> = None;
        for source in sources.iter() {
            if tried.iter().any(|tried| Arc::ptr_eq(tried, source)) || !usable(source) {
                continue;
            }
            if let Some(until) = source.paused_until() {
                resumed = Some(resumed.map_or(until, |earliest| earliest.min(until)));
                continue;
            }
            let cost = source.cost();
            if best.is_none_or(|(lowest, _)| cost < lowest) {
                best = Some((cost, source));
            }
        }
        (best.map(|(_, source)| Arc::clone(source)), resumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn search_may_begin_again_some_seconds_after_its_end() {
        let candidates = Candidates::new(Vec::new());
        assert!(candidates.begin_search() && !candidates.begin_search());
        tokio::time::advance(2 * FAILURE_AGE).await;
        candidates.forget_old_search();
        assert!(!candidates.begin_search(), "it still runs");
        candidates.end_search();
        tokio::time::advance(FAILURE_AGE - Duration::from_millis(1)).await;
        candidates.forget_old_search();
        assert!(!candidates.begin_search(), "it has just ended");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!candidates.begin_search(), "requests that have begun before rely on it");
        candidates.forget_old_search();
        assert!(candidates.begin_search() && !candidates.begin_search());
    }
}

//! One root that is being fetched, for all requests that need it.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use ipfrs_core::{Block, Cid, Error, ErrorKind, Multihash, Result};
use ipfrs_store::BlockStoreExt;
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::address::http_url;
use crate::attempt::{Attempt, FAILURE_AGE, Trace, Unretrieved, most_useful};
use crate::candidates::Candidates;
use crate::car_stream::CarStream;
use crate::config::base_url;
use crate::peers::PeerSession;
use crate::readers::Readers;
use crate::shared::{Ended, Shared as Retrieval};
use crate::want::Want;

/// Bytes that streams of a session deliver ahead of its readers.
const MAX_UNREAD_BYTES: u64 = 32 << 20;
/// Maximum number of sources that one request may name.
const MAX_HINTS: usize = 16;
/// Number of remembered fetches and streams above which those that have ended are forgotten.
const MAX_REMEMBERED: usize = 256;
/// Number of blocks whose failure to be stored is remembered, some 200 bytes each.
pub(crate) const MAX_UNSTORED: usize = 4_096;

/// Result of a fetch: the block, and a stream that delivers blocks below it.
pub(crate) type Fetched = Result<(Bytes, Option<Arc<CarStream>>), Arc<FetchError>>;

/// An error that several requests share. Each reports the attempts that concern it.
#[derive(Debug)]
pub(crate) struct FetchError {
    /// Time at which the fetch began.
    pub(crate) began: Instant,
    /// Seconds of the time limit, if it ended the fetch.
    pub(crate) timed_out: Option<u64>,
}

/// One root that is being fetched: its sources, the streams that deliver it, and the requests that wait for blocks. It
/// ends with the last request that needs it.
pub(crate) struct Session {
    pub(crate) retrieval: Arc<Retrieval>,
    pub(crate) root: Cid,
    pub(crate) trace: Arc<Trace>,
    pub(crate) candidates: Arc<Candidates>,
    peers: OnceLock<PeerSession>,
    state: Mutex<State>,
    /// Bytes that streams have delivered and no request has read, as in the state.
    unread_bytes: AtomicU64,
    /// Notified when a request reads or waits.
    read: Notify,
    /// Notified when blocks have been stored.
    stored: Notify,
    search: Mutex<Option<AbortHandle>>,
    /// Number of pins of the whole DAG that read from the session. While there are any, what arrives is content of
    /// users.
    pub(crate) pins: AtomicUsize,
    _count: Count,
    pub(crate) readers: Mutex<Readers>,
}

#[derive(Default)]
struct State {
    streams: HashMap<Want, Weak<CarStream>>,
    /// Wants that streams have tried to deliver, and when they ended. A request does not try again.
    streamed: HashMap<Want, Instant>,
    /// Running fetches, of patient requests and of others.
    fetches: HashMap<(Multihash, bool), WeakShared<BoxFuture<'static, Fetched>>>,
    waiting: HashMap<Multihash, Vec<oneshot::Sender<Bytes>>>,
    /// Blocks that are being stored.
    recent: HashMap<Multihash, Bytes>,
    /// Blocks that could not be stored.
    unstored: HashMap<Multihash, Error>,
    /// Error of the first block that did not fit into `unstored`. It then applies, until the session ends, to all
    /// blocks that the store does not have.
    more_unstored: Option<Error>,
    /// Sizes of blocks that streams have delivered and no request has read.
    unread: HashMap<Multihash, u64>,
}

/// Counts the session while it exists.
struct Count(IntGauge);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl State {
    /// Notes the outcome for a block that was being stored.
    fn end_storing(&mut self, hash: &Multihash, stored: &Result<()>) {
        self.recent.remove(hash);
        let Err(error) = stored else {
            self.unstored.remove(hash);
            return;
        };
        let error = Error::new(error.kind(), error.message());
        if self.unstored.len() < MAX_UNSTORED || self.unstored.contains_key(hash) {
            self.unstored.insert(*hash, error);
        } else {
            self.more_unstored.get_or_insert(error);
        }
    }

    /// Returns whether a block has been stored, or `None` while it is being stored.
    fn stored(&self, hash: &Multihash) -> Option<Result<()>> {
        if self.recent.contains_key(hash) {
            return None;
        }
        let error = self.unstored.get(hash).or(self.more_unstored.as_ref());
        Some(error.map_or(Ok(()), |error| Err(Error::new(error.kind(), error.message()))))
    }
}

impl Session {
    pub(crate) fn new(retrieval: Arc<Retrieval>, root: Cid) -> Self {
        let sessions = retrieval.metrics.sessions.clone();
        sessions.inc();
        Self {
            root,
            trace: Arc::new(Trace::begin()),
            candidates: Arc::new(Candidates::new(retrieval.sources.gateways().to_vec())),
            peers: OnceLock::new(),
            state: Mutex::default(),
            unread_bytes: AtomicU64::new(0),
            read: Notify::new(),
            stored: Notify::new(),
            search: Mutex::default(),
            pins: AtomicUsize::new(0),
            _count: Count(sessions),
            readers: Mutex::default(),
            retrieval,
        }
    }

    /// Returns the stream that delivers `want` to a request that began at `since`. If there was none yet and `begins`
    /// is set, it begins one. Returns `None` if one has ended, unless that was long before the request.
    pub(crate) fn stream(self: &Arc<Self>, want: &Want, begins: bool, since: Instant) -> Option<Arc<CarStream>> {
        let mut state = self.state.lock();
        let covering = state.streams.iter().filter(|(wider, _)| wider.covers(want));
        let mut running = covering.filter_map(|(_, stream)| stream.upgrade()).filter(|stream| !stream.has_ended());
        if let Some(running) = running.next() {
            return Some(running);
        }
        drop(running);
        if state.streams.len() >= MAX_REMEMBERED {
            state.streams.retain(|_, stream| stream.strong_count() > 0);
        }
        // A stream whose readers have left before its end may begin again.
        let has_ended = state.streamed.get(want).is_some_and(|ended| since < *ended + FAILURE_AGE);
        if !begins || want.is_one_block() || has_ended {
            return None;
        }
        let stream = CarStream::begin(Arc::clone(self), want.clone());
        state.streams.insert(want.clone(), Arc::downgrade(&stream));
        Some(stream)
    }

    /// Records that no source is left to deliver `want` as a stream.
    pub(crate) fn end_stream(&self, want: &Want) {
        let mut state = self.state.lock();
        if state.streamed.len() >= MAX_REMEMBERED {
            state.streamed.clear();
        }
        state.streamed.insert(want.clone(), Instant::now());
    }

    /// Returns the running fetch of a block, or begins one with `fetch`. The fetch ends when no request waits for it.
    /// Requests that wait for peers (`is_patient`) share another one than those that do not.
    pub(crate) fn fetch(
        &self,
        cid: &Cid,
        is_patient: bool,
        fetch: impl FnOnce() -> BoxFuture<'static, Fetched>,
    ) -> Shared<BoxFuture<'static, Fetched>> {
        let mut state = self.state.lock();
        let key = (*cid.hash(), is_patient);
        let running = state.fetches.get(&key).and_then(WeakShared::upgrade);
        // A fetch that has failed exists until the requests that waited for it have noticed.
        if let Some(running) = running.filter(|running| !matches!(running.peek(), Some(Err(_)))) {
            return running;
        }
        // A fetch takes the same lock when it ends. Those that end here, because no other request waits for them any
        // more, are dropped after the lock is released.
        let mut running = Vec::new();
        if state.fetches.len() >= MAX_REMEMBERED {
            state.fetches.retain(|_, fetch| fetch.upgrade().map(|fetch| running.push(fetch)).is_some());
        }
        let fetch = fetch().shared();
        if let Some(weak) = fetch.downgrade() {
            state.fetches.insert(key, weak);
        }
        drop(state);
        drop(running);
        fetch
    }

    /// Returns a receiver for a block, which has it already if it is being stored.
    pub(crate) fn wait_for(&self, cid: &Cid) -> oneshot::Receiver<Bytes> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(bytes) = state.recent.get(cid.hash()) {
            let _received = sender.send(bytes.clone());
        } else {
            let waiting = state.waiting.entry(*cid.hash()).or_default();
            waiting.retain(|sender| !sender.is_closed());
            waiting.push(sender);
        }
        drop(state);
        self.read.notify_waiters();
        receiver
    }

    /// Forgets the receivers of a block that are gone.
    pub(crate) fn stop_waiting(&self, cid: &Cid) {
        let mut state = self.state.lock();
        if let Some(waiting) = state.waiting.get_mut(cid.hash()) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                state.waiting.remove(cid.hash());
            }
        }
    }

    /// Passes verified blocks to the requests that wait for them, and stores all of them. Blocked blocks are dropped.
    /// `memory` is dropped when they are stored. Returns the number of blocks.
    pub(crate) fn deliver(self: &Arc<Self>, blocks: Vec<Block>, streamed: bool, memory: impl Send + 'static) -> usize {
        let blocks: Vec<_> = blocks.into_iter().filter(|block| self.retrieval.admits(block.cid())).collect();
        let delivery = self.retrieval.deliveries.begin();
        let mut state = self.state.lock();
        for block in &blocks {
            let (hash, data) = (block.cid().hash(), block.data());
            let waiting = state.waiting.remove(hash).unwrap_or_default();
            let sent = waiting.into_iter().filter_map(|sender| sender.send(data.clone()).ok()).count();
            if sent == 0 && streamed && state.unread.insert(*hash, data.len() as u64).is_none() {
                self.unread_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            state.recent.insert(*hash, data.clone());
            // An earlier failure does not concern those who wait for this delivery.
            state.unstored.remove(hash);
        }
        drop(state);
        let is_pinned = self.pins.load(Ordering::Relaxed) > 0;
        let (session, count) = (Arc::downgrade(self), blocks.len());
        let retrieval = Arc::clone(&self.retrieval);
        tokio::spawn(async move {
            let (_memory, delivery) = (memory, delivery);
            let hashes: Vec<_> = blocks.iter().map(|block| *block.cid().hash()).collect();
            let stored = retrieval.store(blocks, is_pinned).await;
            drop(delivery);
            if let Some(session) = session.upgrade() {
                let mut state = session.state.lock();
                hashes.iter().for_each(|hash| state.end_storing(hash, &stored));
                drop(state);
                session.stored.notify_waiters();
            }
        });
        count
    }

    /// Returns a block that has been delivered, unless it was not stored or is removed already.
    pub(crate) async fn delivered(&self, cid: &Cid) -> Option<Bytes> {
        let recent = self.state.lock().recent.get(cid.hash()).cloned();
        match recent {
            Some(bytes) => Some(bytes),
            None => self.retrieval.store.get(cid).await.ok().flatten(),
        }
    }

    /// Waits until a fetched block is durable.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn until_stored(&self, cid: &Cid) -> Result<()> {
        loop {
            let changed = self.stored.notified();
            let stored = self.state.lock().stored(cid.hash());
            match stored {
                Some(Err(error)) if error.kind() == ErrorKind::NoSpace => {
                    // The error may be that of another block, or of an earlier attempt.
                    let is_stored = self.retrieval.store.size(cid).await?.is_some();
                    return if is_stored { Ok(()) } else { Err(error) };
                }
                Some(stored) => return stored,
                None => changed.await,
            }
        }
    }

    /// Records that a request has read a block.
    pub(crate) fn note_read(&self, cid: &Cid) {
        if self.unread_bytes.load(Ordering::Relaxed) == 0 {
            return;
        }
        let removed = self.state.lock().unread.remove(cid.hash());
        if let Some(bytes) = removed {
            self.unread_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.read.notify_waiters();
        }
    }

    /// Waits while streams are far ahead of the requests, and no request waits for a block.
    pub(crate) async fn wait_for_readers(&self) {
        loop {
            let read = self.read.notified();
            if self.unread_bytes.load(Ordering::Relaxed) <= MAX_UNREAD_BYTES || !self.state.lock().waiting.is_empty() {
                return;
            }
            read.await;
        }
    }

    /// Begins to search providers, once.
    pub(crate) fn search(&self) {
        if !self.candidates.begin_search() {
            return;
        }
        let (retrieval, candidates) = (Arc::clone(&self.retrieval), Arc::clone(&self.candidates));
        let (trace, peers, root, client) = (Arc::clone(&self.trace), self.peers().cloned(), self.root, self.client());
        let task = tokio::spawn(async move {
            retrieval.search(&root, &candidates, peers.as_ref(), client, &trace).await;
            candidates.end_search();
        });
        *self.search.lock() = Some(task.abort_handle());
    }

    fn report_end(&self) {
        let mut totals = self.trace.totals();
        self.peers.get().iter().flat_map(|peers| peers.attempts()).for_each(|attempt| totals.add(&attempt));
        (self.retrieval.on_end)(&Ended {
            root: self.root,
            blocks: totals.blocks,
            bytes: totals.bytes,
            attempts: totals.attempts,
            failures: totals.failures,
            duration: self.trace.began().elapsed(),
        });
    }

    /// Adds the sources that a client names.
    pub(crate) fn add_hints(&self, hints: &[String]) {
        for hint in hints.iter().take(MAX_HINTS) {
            let url = if hint.starts_with('/') { http_url(hint) } else { base_url(hint).ok() };
            if let Some(url) = url {
                self.candidates.add_hint(self.retrieval.sources.provider(url));
            } else if let (Some((_, id)), Some(peers)) = (hint.rsplit_once("/p2p/"), self.peers()) {
                peers.add(id, std::slice::from_ref(hint));
                self.candidates.note_peer();
            }
        }
    }

    /// Returns the client that began the session, or continued it after all others had left.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.readers.lock().client
    }

    /// Returns the peers that may have the content; `None` if this node exchanges no blocks with peers.
    pub(crate) fn peers(&self) -> Option<&PeerSession> {
        let exchange = self.retrieval.exchange.as_ref()?;
        let begin = || exchange.session(self.trace.began(), self.retrieval.metrics.clone());
        Some(self.peers.get_or_init(begin))
    }

    /// Returns the attempts that have ended, the sums of the requests to peers, and the peers that are not connected.
    fn attempts(&self) -> Vec<Attempt> {
        let mut attempts = self.trace.attempts();
        attempts.extend(self.peers.get().iter().flat_map(|peers| [peers.attempts(), peers.unconnected()]).flatten());
        attempts
    }

    /// Returns the attempts that concern a request which began at `since`, as many as a report may have.
    pub(crate) fn attempts_since(&self, since: Instant) -> Vec<Attempt> {
        most_useful(self.attempts().into_iter().filter(|attempt| self.trace.concerns(attempt, since)).collect())
    }

    /// Returns the error for a request that began at `since`. `timed_out` is as in [`FetchError`].
    pub(crate) fn unretrieved(&self, cid: &Cid, since: Instant, timed_out: Option<u64>) -> Error {
        let (attempts, under_way) = (self.attempts_since(since).into(), self.trace.under_way());
        Unretrieved { cid: *cid, attempts, under_way, paused: self.candidates.paused() }.into_error(timed_out)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(search) = self.search.get_mut() {
            search.abort();
        }
        self.report_end();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("root", &self.root).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::sha2_256;

    use super::*;

    fn no_space() -> Result<()> {
        Err(Error::new(ErrorKind::NoSpace, "full"))
    }

    #[test]
    fn block_is_stored_once_an_attempt_succeeds() {
        let (mut state, hash) = (State::default(), sha2_256(b"a"));
        state.end_storing(&hash, &no_space());
        assert_eq!(state.stored(&hash).unwrap().unwrap_err().kind(), ErrorKind::NoSpace);
        state.recent.insert(hash, Bytes::new());
        assert!(state.stored(&hash).is_none(), "it is being stored again");
        state.end_storing(&hash, &Ok(()));
        state.stored(&hash).unwrap().unwrap();
        assert!(state.unstored.is_empty());
    }

    #[test]
    fn unstored_blocks_beyond_the_limit_are_no_stored_ones() {
        let mut state = State::default();
        let hashes: Vec<_> = (0..=MAX_UNSTORED).map(|number| sha2_256(&number.to_be_bytes())).collect();
        hashes.iter().for_each(|hash| state.end_storing(hash, &no_space()));
        assert_eq!(state.unstored.len(), MAX_UNSTORED);
        assert!(hashes.iter().all(|hash| state.stored(hash).is_some_and(|stored| stored.is_err())));
    }
}

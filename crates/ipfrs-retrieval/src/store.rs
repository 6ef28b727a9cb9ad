//! A view of a store that fetches missing blocks.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesOrdered};
use futures::{FutureExt, Stream, StreamExt, stream};
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result};
use ipfrs_store::{BlockBatch, BlockStore, forward_to_store};
use ipfrs_stream::Part;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::car_stream::CarStream;
use crate::fetch::{Needed, fetch};
use crate::readers::Reading;
use crate::retriever::{Requester, Retriever};
use crate::session::Session;
use crate::want::{Want, WantedPart};

/// Maximum number of blocks that one reader fetches at the same time.
const MAX_FETCHES: usize = 16;
/// Maximum number of streams of one reader.
const MAX_STREAMS: usize = 4;
/// Number of missing blocks above which a whole part may be fetched.
const MIN_MISSES: u64 = 8;

/// A view of a store for one request. Blocks that the store does not have are fetched, verified and stored. When the
/// view and its streams are dropped, everything that only this request needs ends.
pub struct RetrievingStore {
    local: Arc<dyn BlockStore>,
    scope: Arc<Scope>,
}

/// Content that one request needs, and the session that delivers it.
struct Scope {
    retriever: Retriever,
    wanted: Wanted,
    requester: Requester,
    /// Time at which the request began.
    since: Instant,
    session: OnceLock<Reading>,
    streams: Mutex<Vec<Arc<CarStream>>>,
    /// Number of blocks that were in the store, and that were missing.
    hits: AtomicU64,
    misses: AtomicU64,
    /// Bytes of blocks that were missing.
    fetched_bytes: AtomicU64,
}

/// Purpose of a view.
#[derive(Debug, Clone)]
pub enum Wanted {
    /// To find the target of the path: the first missing block begins a stream of the whole part.
    Path(Want),
    /// To read the part. It uses the stream that finding the target has begun. If the root is missing, it begins one.
    Part(Want),
    /// Like [`Self::Part`], but each block is returned after it was stored.
    Stored(Want),
    /// Like [`Self::Stored`], for pins. While all of a DAG is pinned, blocks that arrive are content of users at once
    /// and never evicted, because the content may be larger than the space for fetched blocks.
    Pinned(Want),
    /// To read single blocks that do not belong together. `via` is as in [`Want::via`].
    Blocks {
        /// Value of the `Via` header of the request.
        via: Arc<str>,
    },
}

impl Retriever {
    /// Returns a store that fetches what `local` does not have. Hints are ignored unless `retrieval.provider_hints` is
    /// set.
    #[must_use]
    pub fn store(&self, local: Arc<dyn BlockStore>, wanted: Wanted, mut requester: Requester) -> RetrievingStore {
        if !self.shared.takes_hints {
            requester.hints = Vec::new();
        }
        RetrievingStore::new(local, self.clone(), wanted, requester)
    }
}

impl RetrievingStore {
    fn new(local: Arc<dyn BlockStore>, retriever: Retriever, wanted: Wanted, requester: Requester) -> Self {
        let (session, streams) = (OnceLock::new(), Mutex::default());
        let (hits, misses, fetched_bytes) = Default::default();
        let since = requester.began.unwrap_or_else(Instant::now);
        let scope = Scope { retriever, wanted, requester, since, session, streams, hits, misses, fetched_bytes };
        Self { local, scope: Arc::new(scope) }
    }
}

impl Scope {
    fn session(&self, want: &Want) -> Result<&Arc<Session>> {
        if let Some(session) = self.session.get() {
            return Ok(session);
        }
        let session = self.retriever.session(want, &self.requester)?;
        Ok(self.session.get_or_init(|| {
            if self.keeps_all() {
                session.pins.fetch_add(1, Ordering::Relaxed);
            }
            session
        }))
    }

    fn is_pin(&self) -> bool {
        matches!(self.wanted, Wanted::Pinned(_))
    }

    /// Whether everything that arrives in the session is kept. Other requests may stream more than a pin of a part.
    fn keeps_all(&self) -> bool {
        matches!(&self.wanted, Wanted::Pinned(want) if want.part == WantedPart::All)
    }

    fn note_read(&self, cid: &Cid) {
        self.hits.fetch_add(1, Ordering::Relaxed);
        if let Some(session) = self.session.get() {
            session.note_read(cid);
        }
    }

    /// Fetches a missing block. Returns `None` for a block that may not be fetched.
    async fn fetch(&self, cid: Cid) -> Result<Option<Bytes>> {
        if !self.retriever.shared.admits(&cid) {
            return Ok(None);
        }
        let (want, begins) = match &self.wanted {
            Wanted::Path(want) => (want, true),
            Wanted::Part(want) | Wanted::Stored(want) | Wanted::Pinned(want) => {
                (want, cid == want.root || self.lacks_most())
            }
            Wanted::Blocks { via } => return self.fetch_single(cid, via).await.map(Some),
        };
        let session = self.session(want)?;
        let (bytes, below) = self.fetch_shared(session, want, cid, || self.streams(session, want, begins)).await?;
        if let Some(below) = below {
            let mut streams = self.streams.lock();
            if streams.len() < MAX_STREAMS && !contains(&streams, &below) {
                streams.push(below);
            }
        }
        self.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if self.is_pin() || matches!(self.wanted, Wanted::Stored(_)) {
            match session.until_stored(&cid).await {
                // The block has arrived for another request, and there was no space for fetched blocks.
                Err(error) if self.is_pin() && error.kind() == ErrorKind::NoSpace => {
                    session.retrieval.store(vec![Block::trusted(cid, bytes.clone())], true).await?;
                }
                stored => stored?,
            }
        }
        Ok(Some(bytes))
    }

    /// Returns the streams that may deliver a block. If `begins` is set and none delivers the want, it begins one.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the request has received too much.
    fn streams(&self, session: &Arc<Session>, want: &Want, begins: bool) -> Result<Vec<Arc<CarStream>>> {
        let mut streams = self.streams.lock();
        let limit = self.retriever.shared.max_bytes;
        let is_over = self.fetched_bytes.load(Ordering::Relaxed) > limit;
        if is_over || streams.iter().any(|stream| stream.is_over_budget()) {
            let what = format!("the request needs more than {limit} bytes from other servers");
            return Err(Error::too_large(format!("{what} (retrieval.max_bytes_per_request): request a part")));
        }
        streams.retain(|stream| !stream.has_ended());
        if let Some(stream) = session.stream(want, begins, self.since).filter(|stream| !contains(&streams, stream)) {
            streams.push(stream);
        }
        Ok(streams.clone())
    }

    /// Fetches a block, with other requests that need it at the same time. A fetch ends with the time of the request
    /// that began it. If this one may wait longer, it begins another.
    async fn fetch_shared(
        &self,
        session: &Arc<Session>,
        want: &Want,
        cid: Cid,
        streams: impl Fn() -> Result<Vec<Arc<CarStream>>>,
    ) -> Result<(Bytes, Option<Arc<CarStream>>)> {
        let (timeout, called) = (self.retriever.shared.timeout, Instant::now());
        let deadline = called + timeout;
        loop {
            let (mut is_own, streams) = (false, streams()?);
            let is_patient = self.requester.waits_for_peers;
            let fetch = session.fetch(&cid, is_patient, || {
                is_own = true;
                let (want, since) = (want.clone(), self.since);
                fetch(Arc::clone(session), Needed { cid, want, streams, since, deadline, is_patient })
            });
            // An own fetch ends at the deadline, and then knows all attempts.
            let fetched = if is_own { Ok(fetch.await) } else { timeout_at(deadline, fetch).await };
            match fetched {
                Ok(Ok(fetched)) => return Ok(fetched),
                Ok(Err(error)) if error.timed_out.is_some() && Instant::now() < deadline => {}
                Ok(Err(error)) => return Err(session.unretrieved(&cid, self.since.min(error.began), error.timed_out)),
                Err(_) => return Err(session.unretrieved(&cid, self.since.min(called), Some(timeout.as_secs()))),
            }
        }
    }

    /// Counts a missing block. Returns whether so many are missing that the whole part should be fetched, although its
    /// root is in the store. If only a few are missing, as after an interrupted download, they are fetched by
    /// themselves.
    fn lacks_most(&self) -> bool {
        let misses = self.misses.fetch_add(1, Ordering::Relaxed) + 1;
        misses >= MIN_MISSES && misses > self.hits.load(Ordering::Relaxed)
    }

    /// Fetches a block in a session of its own.
    async fn fetch_single(&self, cid: Cid, via: &Arc<str>) -> Result<Bytes> {
        let want = Want::new(cid, [], Part::Block).via(Arc::clone(via));
        let session = self.retriever.session(&want, &self.requester)?;
        self.fetch_shared(&session, &want, cid, || Ok(Vec::new())).await.map(|(bytes, _)| bytes)
    }

    async fn complete(self: Arc<Self>, cid: Cid, found: Result<Option<Bytes>>) -> Result<Option<Bytes>> {
        match found {
            Ok(Some(bytes)) => {
                self.note_read(&cid);
                Ok(Some(bytes))
            }
            Ok(None) => self.fetch(cid).await,
            Err(error) => Err(error),
        }
    }
}

fn contains(streams: &[Arc<CarStream>], stream: &Arc<CarStream>) -> bool {
    streams.iter().any(|known| Arc::ptr_eq(known, stream))
}

impl Drop for Scope {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if self.keeps_all() {
            session.pins.fetch_sub(1, Ordering::Relaxed);
        }
        let streams = std::mem::take(self.streams.get_mut());
        self.retriever.lingering.keep(Arc::clone(&session), streams);
    }
}

impl fmt::Debug for RetrievingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetrievingStore").field("wanted", &self.scope.wanted).finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a default would bypass the inner store")]
#[async_trait]
impl BlockStore for RetrievingStore {
    async fn get(&self, cid: &Cid) -> Result<Option<Bytes>> {
        let found = self.local.get(cid).await;
        Arc::clone(&self.scope).complete(*cid, found).await
    }

    fn get_many(&self, cids: Vec<Cid>) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let mut order: VecDeque<_> = cids.iter().copied().collect();
        let scope = Arc::clone(&self.scope);
        let found = self.local.get_many(cids).map(move |item| (order.pop_front(), item));
        let complete = move |(cid, item): (Option<Cid>, Result<(Cid, Option<Bytes>)>)| match (cid, item) {
            (Some(cid), Ok((_, None))) => {
                let scope = Arc::clone(&scope);
                Later::Fetch(async move { scope.fetch(cid).await.map(|found| (cid, found)) }.boxed())
            }
            (_, item) => {
                if let Ok((cid, _)) = &item {
                    scope.note_read(cid);
                }
                Later::Now(item)
            }
        };
        Ordered { items: Some(found.map(complete).boxed()), waiting: FuturesOrdered::new() }.boxed()
    }

    /// Batches of blocks in the local store are passed on. Of other batches, each block is a batch, so that none waits
    /// for a later block.
    fn get_batches(&self, cids: Arc<[Cid]>) -> BoxStream<'static, BlockBatch> {
        let (scope, requested) = (Arc::clone(&self.scope), Arc::clone(&cids));
        let mut passed = 0;
        let mut complete = move |batch: BlockBatch| {
            let start = passed;
            passed += batch.len();
            let wanted = cids.get(start..passed).unwrap_or_default();
            let is_missing = |index| matches!(batch.section(index), Ok(None));
            if !(0..batch.len()).any(is_missing) {
                wanted.iter().for_each(|cid| scope.note_read(cid));
                return vec![Later::Now(batch)];
            }
            let alone = |found| {
                let mut batch = BlockBatch::default();
                batch.push(found);
                batch
            };
            let one = |(cid, found): (&Cid, Result<Option<Bytes>>)| {
                let (scope, cid) = (Arc::clone(&scope), *cid);
                if matches!(found, Ok(None)) {
                    return Later::Fetch(async move { alone(scope.fetch(cid).await) }.boxed());
                }
                scope.note_read(&cid);
                Later::Now(alone(found))
            };
            wanted.iter().zip(batch.into_answers()).map(one).collect()
        };
        let batches = self.local.get_batches(requested).flat_map(move |batch| stream::iter(complete(batch)));
        Ordered { items: Some(batches.boxed()), waiting: FuturesOrdered::new() }.boxed()
    }

    forward_to_store!(
        local: put_many, has_many, delete_many, delete_unless, iterate, iterate_after, scrub, compact, flush, stats,
        epoch, epoch_of, note_use, watch, check, disk, mappings
    );
}

/// An item that is available, or must be fetched.
enum Later<T> {
    Now(T),
    Fetch(BoxFuture<'static, T>),
}

/// Stream that keeps the order of its items and fetches a bounded number of them at the same time. Items that are
/// available cost nothing while none before them is being fetched.
struct Ordered<T> {
    items: Option<BoxStream<'static, Later<T>>>,
    waiting: FuturesOrdered<BoxFuture<'static, T>>,
}

impl<T: Send + 'static> Stream for Ordered<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        while this.waiting.len() < MAX_FETCHES
            && let Some(items) = &mut this.items
        {
            match items.poll_next_unpin(cx) {
                Poll::Ready(Some(Later::Now(item))) if this.waiting.is_empty() => return Poll::Ready(Some(item)),
                Poll::Ready(Some(Later::Now(item))) => this.waiting.push_back(futures::future::ready(item).boxed()),
                Poll::Ready(Some(Later::Fetch(fetch))) => this.waiting.push_back(fetch),
                Poll::Ready(None) => this.items = None,
                Poll::Pending => break,
            }
        }
        if this.waiting.is_empty() {
            return if this.items.is_none() { Poll::Ready(None) } else { Poll::Pending };
        }
        this.waiting.poll_next_unpin(cx)
    }
}

//! One missing block: it arrives with a stream, or is fetched by itself.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Either, join_all, select};
use ipfrs_core::{Cid, codec};
use tokio::sync::{Notify, oneshot};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::candidates::Search;
use crate::car_stream::CarStream;
use crate::http;
use crate::peers::PeerSession;
use crate::race::race;
use crate::running_attempt::RunningAttempt;
use crate::session::{FetchError, Fetched, Session};
use crate::source::Source;
use crate::want::{Want, WantedPart};

/// Time in which a server, and then a chosen peer, may deliver a block before others are asked.
const HEAD_START: Duration = Duration::from_millis(500);

/// A block that a request needs.
pub(crate) struct Needed {
    pub(crate) cid: Cid,
    pub(crate) want: Want,
    /// Streams that may deliver it.
    pub(crate) streams: Vec<Arc<CarStream>>,
    /// Time at which the request began.
    pub(crate) since: Instant,
    /// Time until which the request waits.
    pub(crate) deadline: Instant,
    /// Whether it waits until then for a peer that has the block, if no known source has it.
    pub(crate) is_patient: bool,
}

/// Fetches a block. A task does the work, so that memory which all requests share does not wait for a client that reads
/// slowly.
pub(crate) fn fetch(session: Arc<Session>, needed: Needed) -> BoxFuture<'static, Fetched> {
    let began = Instant::now();
    let task = AbortOnDropHandle::new(tokio::spawn(run(session, needed, began).in_current_span()));
    let failed = move |_| Err(Arc::new(FetchError { began, timed_out: None }));
    task.map(move |result| result.unwrap_or_else(failed)).boxed()
}

async fn run(session: Arc<Session>, needed: Needed, began: Instant) -> Fetched {
    let Needed { cid, want, streams, since, deadline, is_patient } = needed;
    let seconds = session.retrieval.timeout.as_secs();
    let mut deadline = pin!(sleep_until(deadline));
    let mut arrival = Arrival::of(&session, cid);
    // The block may have been stored between the lookup that missed it and the beginning of the wait.
    if let Ok(Some(bytes)) = session.retrieval.store.get(&cid).await {
        return Ok((bytes, None));
    }
    let (mut below, stalled, failed) = (None, Notify::new(), Notify::new());
    let from_servers = async {
        join_all(streams.iter().map(|stream| stream.until_stalled())).await;
        below = stream_below(&session, &want, &cid, since);
        if let Some(stream) = &below {
            stream.until_stalled().await;
        }
        stalled.notify_one();
        if alone(&session, &want, &cid).await {
            return true;
        }
        failed.notify_one();
        // No server is left, but a stream that is slow may still deliver the block.
        join_all(streams.iter().chain(&below).map(|stream| stream.until_end())).await;
        false
    };
    let from_peers = async {
        let Some(peers) = session.peers() else { return false };
        // Servers come first, unless peers have delivered what no stream of a server does.
        if session.candidates.has_any() && !(streams.is_empty() && peers.have_delivered()) {
            stalled.notified().await;
            _ = timeout(HEAD_START, failed.notified()).await;
        }
        if from_peers(&session, peers, &cid, since).await {
            return true;
        }
        if !is_patient {
            return false;
        }
        let available = peers.get_when_available(&cid, session.client());
        let Some((block, memory)) = available.await else { return false };
        session.deliver(vec![block], false, memory);
        true
    };
    let fetched = either(from_servers, from_peers);
    let arrived = {
        let mut fetched = pin!(fetched);
        tokio::select! {
            biased;
            bytes = &mut arrival => bytes.ok_or(None),
            // Without `unconstrained`, tokio reports no arrival to a task that has used up its budget.
            () = &mut fetched => unconstrained(&mut arrival).now_or_never().flatten().ok_or(None),
            () = &mut deadline => Err(Some(seconds)),
        }
    };
    match arrived {
        Ok(bytes) => Ok((bytes, below)),
        Err(timed_out) => Err(Arc::new(FetchError { began, timed_out })),
    }
}

/// Begins a stream of the DAG below a block that no stream of its want has delivered, as for a file of which only the
/// root is in the store.
fn stream_below(session: &Arc<Session>, want: &Want, cid: &Cid, since: Instant) -> Option<Arc<CarStream>> {
    let below = want.below(*cid);
    let is_inner = cid.codec() != codec::RAW && below.part != WantedPart::Block;
    is_inner.then(|| session.stream(&below, true, since)).flatten()
}

/// Waits for the first success, or for both to fail.
async fn either(first: impl Future<Output = bool>, second: impl Future<Output = bool>) {
    let (first, second) = (pin!(first), pin!(second));
    match select(first, second).await {
        Either::Left((false, other)) => _ = other.await,
        Either::Right((false, other)) => _ = other.await,
        Either::Left((true, _)) | Either::Right((true, _)) => {}
    }
}

/// Fetches a block from peers and delivers it, for a request that began at `since`. Returns whether a peer had the
/// block.
async fn from_peers(session: &Arc<Session>, peers: &PeerSession, cid: &Cid, since: Instant) -> bool {
    let mut progress = session.candidates.progress();
    let mut may_reconnect = true;
    loop {
        let search = *progress.borrow_and_update();
        let mut get = pin!(peers.get(cid));
        let found = tokio::select! {
            found = &mut get => found,
            () = sleep(HEAD_START), if search == Search::NotBegun => {
                session.search();
                get.await
            }
        };
        if let Some((block, memory)) = found {
            session.deliver(vec![block], false, memory);
            return true;
        }
        session.search();
        let is_last = matches!(search, Search::Done(_)) || progress.changed().await.is_err();
        // A chosen peer may be back before its next connection is due.
        if is_last && !(std::mem::take(&mut may_reconnect) && peers.reconnect(since).await) {
            return false;
        }
    }
}

/// Fetches a block by itself from a server and delivers it. Returns whether a source had it.
async fn alone(session: &Arc<Session>, want: &Want, cid: &Cid) -> bool {
    let mut tried = Vec::new();
    let attempt = |source: Arc<Source>| async move {
        let mut running = RunningAttempt::begin(&session.retrieval, &session.trace, &source, format!("block {cid}"));
        let _permit = source.requests.take(session.client()).await;
        let via = session.retrieval.via(&want.via);
        let restricted = session.retrieval.is_restricted;
        let fetched = async {
            let response = http::request_block(&source, cid, &via, restricted).await?;
            running.first_byte = Some(Instant::now());
            let memory = session.retrieval.buffer(http::block_bytes(&response)?).await;
            http::receive_block(response, cid, &running.bytes, source.kind).await.map(|block| (block, memory))
        };
        match fetched.await {
            Ok(fetched) => {
                running.blocks = 1;
                running.end(Ok(()));
                Some(fetched)
            }
            Err(failure) => {
                running.end(Err(&failure));
                None
            }
        }
    };
    let fetched = race(session, &mut tried, |_| true, attempt).await;
    let Some((block, permit)) = fetched else { return false };
    session.deliver(vec![block], false, permit);
    true
}

/// Wait for a block. Resolves to `None` if the block cannot arrive any more.
struct Arrival<'a> {
    session: &'a Session,
    cid: Cid,
    receiver: Option<oneshot::Receiver<Bytes>>,
}

impl<'a> Arrival<'a> {
    fn of(session: &'a Session, cid: Cid) -> Self {
        Self { session, cid, receiver: Some(session.wait_for(&cid)) }
    }
}

impl Future for Arrival<'_> {
    type Output = Option<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.receiver {
            Some(receiver) => receiver.poll_unpin(cx).map(Result::ok),
            None => Poll::Ready(None),
        }
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.receiver = None;
        self.session.stop_waiting(&self.cid);
    }
}

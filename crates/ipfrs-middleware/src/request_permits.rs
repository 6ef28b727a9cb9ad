//! Permits for concurrent requests. Each front-end has its own pool, which its clients share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use ipfrs_core::fair_pool::{FairPool, Share, Shortage};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_node::{Limit, Node};
use parking_lot::Mutex;
use prometheus::IntGauge;
use tokio::time::Instant;

use crate::client::Client;

/// Number of permits that a client may hold while any are free.
const CLIENT_MINIMUM: usize = 2;

/// Time without progress after which a response counts as stalled. When permits are short, stalled responses are
/// aborted.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Shortest time between two searches for stalled responses.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// Inverse of the part of all permits that one search may free: an eighth.
const RECLAIMED_PART: usize = 8;

/// Front-end whose requests are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// HTTP, including gRPC-Web and all other requests on the same listener.
    Http,
    /// gRPC, on its listener.
    Grpc,
    /// WebSocket connections.
    WebSocket,
}

impl Requests {
    /// Returns the word for requests, the key of the total limit, and the key of the limit per client.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Http => ("requests", "gateway.max_concurrent_requests", "gateway.max_requests_per_client"),
            Self::Grpc => ("calls", "grpc.max_concurrent_calls", "grpc.max_calls_per_client"),
            Self::WebSocket => {
                ("WebSocket connections", "websocket.max_connections", "websocket.max_connections_per_client")
            }
        }
    }

    fn limit(self, shortage: Shortage) -> Limit {
        match (self, shortage) {
            (Self::Http, Shortage::Total) => Limit::ConcurrentRequests,
            (Self::Http, Shortage::Share | Shortage::Client) => Limit::RequestsPerClient,
            (Self::Grpc, Shortage::Total) => Limit::ConcurrentCalls,
            (Self::Grpc, Shortage::Share | Shortage::Client) => Limit::CallsPerClient,
            (Self::WebSocket, Shortage::Total) => Limit::WebSockets,
            (Self::WebSocket, Shortage::Share | Shortage::Client) => Limit::WebSocketsPerClient,
        }
    }
}

/// Permits of a front-end. Clones share them.
#[derive(Debug, Clone)]
pub struct RequestPermits(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    node: Node,
    requests: Requests,
    active: IntGauge,
    pool: FairPool<Client>,
    /// Responses that are being sent, by number.
    sending: Mutex<HashMap<u64, Weak<dyn Sending>>>,
    next: AtomicU64,
    stalled: Mutex<StalledResponses>,
}

/// Result of the last search for stalled responses. All clients share it, so that the work does not grow with the
/// number of clients that are refused.
#[derive(Debug, Default)]
struct StalledResponses {
    searched_at: Option<Instant>,
    /// Stalled responses that were not taken yet. A client takes its own, so one that is refused all the time takes
    /// none from others.
    by_client: HashMap<Client, Vec<StalledResponse>>,
    /// Whether the longest stalled ones of all clients were taken.
    is_taken_for_all: bool,
}

#[derive(Debug)]
struct StalledResponse {
    client: Client,
    since: Instant,
    response: Weak<dyn Sending>,
}

impl StalledResponses {
    /// Returns whether the caller should search. Others do not search meanwhile.
    fn begin_search(&mut self, now: Instant) -> bool {
        let is_due = self.searched_at.is_none_or(|at| now.duration_since(at) >= SEARCH_EVERY);
        if is_due {
            self.searched_at = Some(now);
        }
        is_due
    }

    /// Replaces the result of the last search.
    fn end_search(&mut self, found: HashMap<Client, Vec<StalledResponse>>) {
        (self.by_client, self.is_taken_for_all) = (found, false);
    }

    /// Takes the `most` longest stalled responses of one client or of all, once per search.
    fn take(&mut self, client: Option<Client>, most: usize) -> Vec<StalledResponse> {
        let mut taken = match client {
            Some(client) => self.by_client.remove(&client).unwrap_or_default(),
            None if self.is_taken_for_all => Vec::new(),
            None => std::mem::take(&mut self.by_client).into_values().flatten().collect(),
        };
        taken.sort_by_key(|stalled| stalled.since);
        let others = taken.split_off(most.min(taken.len()));
        if client.is_none() {
            self.is_taken_for_all = true;
            for other in others {
                self.by_client.entry(other.client).or_default().push(other);
            }
        }
        taken
    }
}

/// Refusal of a permit.
#[derive(Debug, Clone, Copy)]
pub struct NoPermit(Shortage);

impl RequestPermits {
    /// Creates a pool of `most` permits, of which one client may hold at most `most_per_client` (0 for no limit).
    /// `active` shows the number of permits in use.
    #[must_use]
    pub fn new(node: &Node, requests: Requests, active: IntGauge, most: usize, most_per_client: usize) -> Self {
        Self(Arc::new(Pool {
            node: node.clone(),
            requests,
            active,
            pool: FairPool::new(most, CLIENT_MINIMUM, bound(most_per_client)),
            sending: Mutex::default(),
            next: AtomicU64::default(),
            stalled: Mutex::default(),
        }))
    }

    /// Changes the limits, with the same meaning as for [`new`](Self::new). Running requests keep their permits.
    pub fn resize(&self, most: usize, most_per_client: usize) {
        self.0.pool.resize(most, bound(most_per_client));
    }

    /// Takes a permit for one more request of a client. If permits are short, stalled responses are aborted to free
    /// theirs.
    ///
    /// # Errors
    /// [`NoPermit`] if no permit is free or the client has used its share. The refusal is not counted yet: see
    /// [`Self::refusal`].
    pub fn take(&self, client: Client) -> Result<RequestPermit, NoPermit> {
        let taken = self.0.pool.take(client, 1).or_else(|shortage| {
            let has_freed = match shortage {
                Shortage::Total => self.reclaim(None),
                // A share is what others leave: their stalled responses count as well.
                Shortage::Share => self.reclaim(Some(client)) || self.reclaim(None),
                Shortage::Client => self.reclaim(Some(client)),
            };
            if has_freed { self.0.pool.take(client, 1) } else { Err(shortage) }
        });
        let share = taken.map_err(NoPermit)?;
        Ok(RequestPermit { share, counted: Counted::new(self) })
    }

    /// Returns the error for a request without a permit, of kind [`ErrorKind::RateLimited`], and counts the refusal.
    #[must_use]
    pub fn refusal(&self, NoPermit(shortage): NoPermit) -> Error {
        self.0.node.count_refusal(self.0.requests.limit(shortage));
        let most = self.0.pool.capacity();
        let (words, key, client_key) = self.0.requests.names();
        let text = match shortage {
            Shortage::Total => {
                format!("{most} {words} are in progress, the limit for all clients ({key}): try again in a second")
            }
            Shortage::Share => format!(
                "as many {words} of this client are in progress as there are permits left for all others, of {most} \
                 ({key}): try again when some have ended; a proxy that serves many clients belongs in \
                 gateway.trusted_proxies"
            ),
            Shortage::Client => format!(
                "{most} {words} of this client are in progress, the limit for one client \
                 ({client_key} = {most}): try again when some have ended",
                most = self.0.pool.most_per_client()
            ),
        };
        Error::new(ErrorKind::RateLimited, text)
    }

    /// Aborts the responses that have stalled for the longest time, of one client or of all. Returns whether there
    /// were any.
    fn reclaim(&self, client: Option<Client>) -> bool {
        let now = Instant::now();
        let is_due = self.0.stalled.lock().begin_search(now);
        let found = is_due.then(|| self.find_stalled(now));
        let most = self.0.pool.capacity().div_ceil(RECLAIMED_PART);
        let taken = {
            let mut stalled = self.0.stalled.lock();
            if let Some(found) = found {
                stalled.end_search(found);
            }
            stalled.take(client, most)
        };
        let mut has_freed = false;
        for response in taken.iter().filter_map(|stalled| stalled.response.upgrade()) {
            // The client may have read something since the search.
            if response.stalled().is_some_and(|(_, since)| now.duration_since(since) >= STALLED_AFTER) {
                response.give_up();
                self.0.node.count_refusal(Limit::StalledResponse);
                has_freed = true;
            }
        }
        has_freed
    }

    /// Searches all responses that are being sent for stalled ones.
    fn find_stalled(&self, now: Instant) -> HashMap<Client, Vec<StalledResponse>> {
        let sending: Vec<_> = self.0.sending.lock().values().filter_map(Weak::upgrade).collect();
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        for response in sending {
            let Some((client, since)) = response.stalled() else { continue };
            if now.duration_since(since) >= STALLED_AFTER {
                let response = Arc::downgrade(&response);
                found.entry(client).or_default().push(StalledResponse { client, since, response });
            }
        }
        found
    }
}

/// Returns the maximum number of permits of a client; 0 stands for no limit.
fn bound(most_per_client: usize) -> usize {
    if most_per_client == 0 { usize::MAX } else { most_per_client }
}

/// Permit of a request, held until this value is dropped.
#[derive(Debug)]
pub struct RequestPermit {
    share: Share<Client>,
    /// Dropped after `share`: a request that the metric does not count any more takes no permit from others.
    counted: Counted,
}

/// Counts a permit in the metric while it is in use.
#[derive(Debug)]
struct Counted(RequestPermits);

impl Counted {
    fn new(permits: &RequestPermits) -> Self {
        permits.0.active.inc();
        Self(permits.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.active.dec();
    }
}

impl RequestPermit {
    /// Holds the permit for as long as `response` is being sent. If permits are short and the client does not read
    /// the response, both are dropped.
    #[must_use]
    pub fn hold<T: Send + 'static>(self, response: T) -> Held<T> {
        let (permits, client) = (self.counted.0.clone(), self.share.client());
        let content = Mutex::new(Content { response: Some((response, self)), since: Some(Instant::now()) });
        let cell = Arc::new(Cell { client, content });
        let number = permits.0.next.fetch_add(1, Ordering::Relaxed);
        let weak = Arc::downgrade(&cell);
        permits.0.sending.lock().insert(number, weak);
        Held { cell, permits, number }
    }
}

/// Response that is being sent.
trait Sending: fmt::Debug + Send + Sync {
    /// Returns the client, and since when it has not read the data that is available to it.
    fn stalled(&self) -> Option<(Client, Instant)>;

    /// Drops the response and its permit.
    fn give_up(&self);
}

struct Cell<T> {
    client: Client,
    content: Mutex<Content<T>>,
}

struct Content<T> {
    /// `None` once the response was aborted.
    response: Option<(T, RequestPermit)>,
    /// Last time that data became available to the client; `None` while the response waits for the daemon.
    since: Option<Instant>,
}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").field("client", &self.client).finish_non_exhaustive()
    }
}

impl<T: Send> Sending for Cell<T> {
    fn stalled(&self) -> Option<(Client, Instant)> {
        // A response that is being polled makes progress.
        let content = self.content.try_lock()?;
        content.response.as_ref()?;
        Some((self.client, content.since?))
    }

    fn give_up(&self) {
        let given_up = self.content.try_lock().and_then(|mut content| content.response.take());
        // Dropped outside the lock, because dropping a response may do much work.
        drop(given_up);
    }
}

/// Response that holds a permit while it is being sent.
#[derive(Debug)]
pub struct Held<T: Send + 'static> {
    cell: Arc<Cell<T>>,
    permits: RequestPermits,
    number: u64,
}

impl<T: Send + 'static> Held<T> {
    /// Polls the response for its next piece; returns `None` if it was aborted.
    pub fn poll<R>(&self, poll: impl FnOnce(&mut T) -> Poll<R>) -> Option<Poll<R>> {
        let mut content = self.cell.content.lock();
        let (response, _) = content.response.as_mut()?;
        let polled = poll(response);
        content.since = polled.is_ready().then(Instant::now);
        Some(polled)
    }

    /// Calls `look` with the response; returns `None` if it was aborted.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.cell.content.lock().response.as_ref().map(|(response, _)| look(response))
    }

    /// Returns the error for a response that was aborted.
    #[must_use]
    pub fn given_up(&self) -> Error {
        let (words, key, _) = self.permits.0.requests.names();
        let seconds = STALLED_AFTER.as_secs();
        let text = format!(
            "the client read nothing of the response for {seconds} s or more while too many {words} were in progress \
             ({key}): try again, and read the response"
        );
        Error::new(ErrorKind::RateLimited, text)
    }
}

impl<T: Send + 'static> Drop for Held<T> {
    fn drop(&mut self) {
        self.permits.0.sending.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::time::advance;

    use super::*;
    use ipfrs_node::{MemoryStore, NodeConfig};

    async fn permits(most: usize, per_client: usize) -> (tempfile::TempDir, RequestPermits) {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node =
            Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await.unwrap();
        let active = IntGauge::new("active", "help").unwrap();
        (repo, RequestPermits::new(&node, Requests::Http, active, most, per_client))
    }

    fn client(number: u8) -> Client {
        Client::of(IpAddr::from([10, 0, 0, number]))
    }

    #[tokio::test]
    async fn refusal_names_the_limit_that_struck() {
        let (_repo, shared) = permits(4, 0).await;
        let _held = [shared.take(client(1)).unwrap(), shared.take(client(1)).unwrap()];
        let text = shared.refusal(shared.take(client(1)).unwrap_err()).to_string();
        assert!(text.contains("of this client") && text.contains("gateway.max_concurrent_requests"), "{text}");
        let _others = [shared.take(client(2)).unwrap(), shared.take(client(3)).unwrap()];
        let text = shared.refusal(shared.take(client(4)).unwrap_err()).to_string();
        assert!(text.contains("4 requests are in progress"), "{text}");
        let (_repo, bounded) = permits(100, 1).await;
        let _held = bounded.take(client(1)).unwrap();
        let text = bounded.refusal(bounded.take(client(1)).unwrap_err()).to_string();
        assert!(text.contains("gateway.max_requests_per_client = 1"), "{text}");
        bounded.take(client(2)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_responses_release_permits_under_shortage() {
        let (_repo, permits) = permits(3, 0).await;
        let hold = |number| permits.take(client(number)).unwrap().hold(number);
        let waits_for_us = hold(1);
        assert!(waits_for_us.poll(|_| Poll::<()>::Pending).unwrap().is_pending());
        let stalled_first = hold(2);
        advance(Duration::from_secs(3)).await;
        let stalled_next = hold(3);
        advance(STALLED_AFTER.saturating_sub(Duration::from_secs(3))).await;
        let another = permits.take(client(4)).unwrap();
        assert!(stalled_first.look(|_| ()).is_none() && stalled_first.poll(|_| Poll::Ready(())).is_none());
        // A response that its client has just read is not stalled.
        assert!(stalled_next.poll(|_| Poll::Ready(())).is_some());
        advance(STALLED_AFTER.saturating_sub(Duration::from_secs(1))).await;
        assert!(permits.take(client(5)).is_err());
        advance(Duration::from_secs(1)).await;
        assert_eq!(permits.0.active.get(), 3);
        drop(permits.take(client(5)).unwrap());
        assert!(stalled_next.look(|_| ()).is_none() && waits_for_us.look(|_| ()).is_some());
        drop((waits_for_us, stalled_first, stalled_next, another));
        assert_eq!((permits.0.active.get(), permits.0.sending.lock().len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn clients_share_one_search_for_stalled_responses() {
        let (_repo, permits) = permits(8, 1).await;
        let hold = |number| permits.take(client(number)).unwrap().hold(());
        let (first, second) = (hold(1), hold(2));
        advance(SEARCH_EVERY / 2).await;
        let later = hold(3);
        advance(STALLED_AFTER.saturating_sub(SEARCH_EVERY / 2)).await;
        drop(permits.take(client(1)).unwrap());
        drop(permits.take(client(2)).unwrap());
        assert!(first.look(|()| ()).is_none() && second.look(|()| ()).is_none());
        advance(SEARCH_EVERY / 2).await;
        assert!(permits.take(client(3)).is_err(), "it is stalled, but the next search is not due");
        advance(SEARCH_EVERY / 2).await;
        drop(permits.take(client(3)).unwrap());
        assert!(later.look(|()| ()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn taking_during_a_search_leaves_its_result() {
        let (mut stalled, now, client) = (StalledResponses::default(), Instant::now(), client(1));
        assert!(stalled.begin_search(now) && !stalled.begin_search(now));
        assert!(stalled.take(None, 1).is_empty());
        let response = Weak::<Cell<()>>::new();
        stalled.end_search(HashMap::from([(client, vec![StalledResponse { client, since: now, response }])]));
        assert_eq!(stalled.take(None, 1).len(), 1);
        assert!(stalled.take(None, 1).is_empty(), "once per search");
    }

    #[tokio::test(start_paused = true)]
    async fn reclaiming_for_all_leaves_the_others_to_their_clients() {
        let (_repo, permits) = permits(3, 1).await;
        let hold = |number| permits.take(client(number)).unwrap().hold(());
        let first = hold(1);
        advance(Duration::from_secs(1)).await;
        let second = hold(2);
        let third = hold(3);
        advance(STALLED_AFTER).await;
        let for_others = permits.take(client(4)).unwrap();
        assert!(first.look(|()| ()).is_none(), "the longest stalled response");
        assert!(permits.take(client(5)).is_err());
        assert!(second.look(|()| ()).is_some() && third.look(|()| ()).is_some());
        drop(permits.take(client(3)).unwrap());
        assert!(second.look(|()| ()).is_some() && third.look(|()| ()).is_none());
        drop(for_others);
    }

    #[tokio::test(start_paused = true)]
    async fn client_over_share_reclaims_only_its_own_responses() {
        let (_repo, permits) = permits(8, 0).await;
        let hold = |number| permits.take(client(number)).unwrap().hold(());
        let (other, own) = (hold(1), [hold(2), hold(2), hold(2)]);
        assert!(permits.take(client(2)).is_err());
        advance(STALLED_AFTER).await;
        drop(permits.take(client(2)).unwrap());
        assert!(other.look(|()| ()).is_some());
        assert_eq!(own.iter().filter(|own| own.look(|()| ()).is_some()).count(), 2);
    }
}

//! The [`Retriever`]: all sessions, and the state that they share.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ipfrs_core::fair_pool::{FairPool, Shortage};
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::BlockSink;
use parking_lot::Mutex;
use prometheus::Registry;
use reqwest::Url;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::attempt::{Attempt, Trace};
use crate::candidates::Candidates;
use crate::config::{RetrievalConfig, parse_urls};
use crate::http::client;
use crate::metrics::RetrievalMetrics;
use crate::peers::{Exchange, PeerSession};
use crate::routing::{Provider, Routers};
use crate::session::{Running, Session};
use crate::source::Sources;
use crate::store::{RetrievingStore, Wanted};
use crate::want::Want;

/// Payload that is stored together, in bytes.
pub(crate) const BATCH_BYTES: usize = 4 << 20;
/// Memory for blocks between a source and the store, for all sessions, in KiB.
const BUFFER_KIB: u32 = 256 * 1024;
/// Number of sessions that a client may have while any are free.
const CLIENT_MINIMUM: usize = 2;
/// Most gateways in a row between the client and the source.
const MAX_HOPS: usize = 8;

/// Decides whether a block may be fetched and stored.
pub type Admits = Arc<dyn Fn(&Cid) -> bool + Send + Sync>;

/// Receives the sum of each session that has ended.
pub type OnEnd = Arc<dyn Fn(&Ended) + Send + Sync>;

/// Sum of a session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The root that was fetched, in whole or in part.
    pub root: Cid,
    /// Number of fetched blocks, and their bytes with the overhead of the transfer.
    pub blocks: u64,
    /// See `blocks`.
    pub bytes: u64,
    /// Number of attempts, of which the first 200 count, and of those that did not deliver.
    pub attempts: u64,
    /// See `attempts`.
    pub failures: u64,
    /// Time from the begin to the end.
    pub duration: Duration,
}

/// Requester of missing blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// Address of the client, which stands for its share of the sessions; `None` for requests that arrive over no
    /// network.
    pub client: Option<IpAddr>,
    /// Sources that the client names: URLs of gateways, and multiaddrs of HTTP servers and peers (IPIP-504). Others are
    /// ignored.
    pub hints: Vec<String>,
}

/// Running sessions, by root and `Via` header.
type Sessions = HashMap<(Cid, Arc<str>), Weak<Session>>;

/// Retrieves missing blocks from the network. Clones share everything.
#[derive(Debug, Clone)]
pub struct Retriever {
    pub(crate) shared: Arc<Shared>,
}

/// State that all sessions share.
pub(crate) struct Shared {
    pub(crate) sources: Sources,
    pub(crate) routers: Routers,
    /// Exchange of blocks with peers; `None` if it is not enabled.
    pub(crate) exchange: Option<Exchange>,
    pub(crate) metrics: RetrievalMetrics,
    pub(crate) store: Arc<dyn BlockStore>,
    sink: Arc<dyn BlockSink>,
    admits: Admits,
    pub(crate) on_end: OnEnd,
    pub(crate) timeout: Duration,
    pub(crate) max_bytes: u64,
    /// Whether sources that routers and clients name must have public addresses.
    pub(crate) is_restricted: bool,
    /// Whether clients may name sources.
    takes_hints: bool,
    /// Name of this gateway in `Via` headers.
    name: String,
    sessions: Mutex<Sessions>,
    permits: FairPool<Option<IpAddr>>,
    buffer: Arc<Semaphore>,
}

impl Retriever {
    /// Creates a retriever. It looks for blocks in `store`, and passes those that it has fetched and verified to
    /// `sink`. It neither fetches nor stores blocks that `admits` rejects. `name` identifies this gateway in `Via`
    /// headers, which prevents loops between gateways. With an `exchange`, it also asks peers. `on_end`
    /// must not block.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] names a key of the configuration with an invalid value; also if the metrics are
    /// registered already, and if the system has no CA certificates.
    #[expect(clippy::too_many_arguments, reason = "the parts of a node, each of another type")]
    pub fn new(
        config: &RetrievalConfig,
        store: Arc<dyn BlockStore>,
        sink: Arc<dyn BlockSink>,
        admits: Admits,
        name: String,
        exchange: Option<Exchange>,
        on_end: OnEnd,
        registry: &Registry,
    ) -> Result<Self> {
        config.validate()?;
        let trusted = client(true)?;
        let others = if config.allow_private_addresses { trusted.clone() } else { client(false)? };
        let gateways = parse_urls("retrieval.gateways", &config.gateways)?;
        let shared = Shared {
            routers: Routers::new(parse_urls("retrieval.routers", &config.routers)?, trusted.clone()),
            sources: Sources::new(gateways, &trusted, others),
            exchange,
            metrics: RetrievalMetrics::register(registry)?,
            store,
            sink,
            admits,
            on_end,
            timeout: Duration::from_secs(config.timeout_seconds),
            max_bytes: config.max_bytes_per_request,
            is_restricted: !config.allow_private_addresses,
            takes_hints: config.provider_hints,
            name,
            sessions: Mutex::default(),
            permits: FairPool::new(config.max_sessions, CLIENT_MINIMUM, usize::MAX),
            buffer: Arc::new(Semaphore::new(BUFFER_KIB as usize)),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns a store that fetches what `local` does not have. Hints are ignored unless `retrieval.provider_hints` is
    /// set.
    #[must_use]
    pub fn store(&self, local: Arc<dyn BlockStore>, wanted: Wanted, mut requester: Requester) -> RetrievingStore {
        if !self.shared.takes_hints {
            requester.hints = Vec::new();
        }
        RetrievingStore::new(local, self.clone(), wanted, requester)
    }

    /// Returns the attempts of the session that fetches content below `root` or did so less than a second ago, except
    /// those that had ended before `since`.
    #[must_use]
    pub fn attempts(&self, root: &Cid, since: Instant) -> Vec<Attempt> {
        // The end of a session takes the same lock, so it is released first.
        let session = self.shared.sessions.lock().get(&(*root, Arc::from(""))).and_then(Weak::upgrade);
        let Some(session) = session else { return Vec::new() };
        let since = session.trace.at(since);
        session.attempts().into_iter().filter(|attempt| attempt.start_ms + attempt.duration_ms >= since).collect()
    }

    /// Whether a request with this `Via` header may cause requests to other gateways: not if it comes from this
    /// gateway, or has passed too many.
    #[must_use]
    pub fn may_forward(&self, via: &str) -> bool {
        let hops: Vec<_> = via.split(',').collect();
        let is_own = |hop: &&str| hop.split_whitespace().nth(1) == Some(self.shared.name.as_str());
        hops.len() < MAX_HOPS && !hops.iter().any(is_own)
    }

    /// Returns the session for a want, with the sources that the requester names, and begins one if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if there are too many, or too many of this client.
    pub(crate) fn session(&self, want: &Want, requester: &Requester) -> Result<Arc<Session>> {
        let session = self.session_for(want, requester.client)?;
        session.add_hints(&requester.hints);
        Ok(session)
    }

    fn session_for(&self, want: &Want, client: Option<IpAddr>) -> Result<Arc<Session>> {
        let mut sessions = self.shared.sessions.lock();
        let key = (want.root, Arc::clone(&want.via));
        if let Some(session) = sessions.get(&key).and_then(Weak::upgrade) {
            return Ok(session);
        }
        let permit = self.shared.permits.take(client, 1).map_err(|shortage| {
            let most = self.shared.permits.capacity();
            let what = match shortage {
                Shortage::Total => format!("{most} roots are being fetched, the limit"),
                Shortage::Share | Shortage::Client => {
                    format!("as many roots are being fetched for this client as are left for all others, of {most}")
                }
            };
            let remedy = "(retrieval.max_sessions): try again when some have ended";
            Error::new(ErrorKind::RateLimited, format!("{what} {remedy}"))
        })?;
        let session = Arc::new(Session::new(Arc::clone(&self.shared), want.root, Arc::clone(&want.via), permit));
        sessions.insert(key, Arc::downgrade(&session));
        Ok(session)
    }
}

impl Shared {
    pub(crate) fn admits(&self, cid: &Cid) -> bool {
        (self.admits)(cid)
    }

    /// Removes a session that has ended, unless another one has begun.
    pub(crate) fn forget(&self, root: &Cid, via: &Arc<str>) {
        let mut sessions = self.sessions.lock();
        let key = (*root, Arc::clone(via));
        if sessions.get(&key).is_some_and(|session| session.strong_count() == 0) {
            sessions.remove(&key);
        }
    }

    /// Waits for memory for blocks that are received. The permit is returned when they are stored, which no client can
    /// delay.
    pub(crate) async fn buffer(&self, bytes: usize) -> OwnedSemaphorePermit {
        let kibibytes = u32::try_from(bytes / 1024).unwrap_or(BUFFER_KIB).min(BUFFER_KIB);
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = Arc::clone(&self.buffer).acquire_many_owned(kibibytes).await {
                return permit;
            }
        }
    }

    /// Stores verified blocks. For most requests a failure only costs another retrieval later.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn store(&self, blocks: Vec<Block>) -> Result<()> {
        if blocks.is_empty() {
            return Ok(());
        }
        let count = blocks.len();
        let stored = self.sink.put(blocks).await;
        stored.inspect_err(|error| tracing::warn!("{count} fetched blocks could not be stored: {error}"))
    }

    /// Returns the value of the `Via` header of a request for content that was requested with `via`.
    pub(crate) fn via(&self, via: &str) -> String {
        let before = if via.is_empty() { String::new() } else { format!("{via}, ") };
        format!("{before}1.1 {}", self.name)
    }

    /// Queries all routers for providers of `root`: HTTP servers for `candidates`, and `peers`.
    pub(crate) async fn search(
        self: &Arc<Self>,
        root: &Cid,
        candidates: &Candidates,
        peers: Option<&PeerSession>,
        trace: &Arc<Trace>,
    ) {
        let lookup = async |url: &Url| {
            let request = format!("providers of {root}");
            let mut running = Running::begin_lookup(self, trace, url, request);
            let found = |provider: Provider| {
                let is_server = !provider.urls.is_empty();
                provider.urls.into_iter().for_each(|url| candidates.add(self.sources.provider(url)));
                let (Some(peers), Some((id, addresses))) = (peers, provider.peer) else { return is_server };
                let is_peer = peers.add(&id, &addresses);
                candidates.note_peer();
                is_server || is_peer
            };
            let received = self.routers.providers(url, root, found).await;
            if let Ok(bytes) = &received {
                running.bytes.add(*bytes);
                running.first_byte = Some(Instant::now());
            }
            running.end(received.as_ref().map(|_| ()));
        };
        futures::future::join_all(self.routers.urls().iter().map(lookup)).await;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("sources", &self.sources).finish_non_exhaustive()
    }
}

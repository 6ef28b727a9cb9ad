//! The [`Retriever`]: begins sessions, and finds those that run.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ipfrs_core::fair_pool::{FairPool, Share, Shortage};
use ipfrs_core::turns::Turns;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::BlockSink;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::config::{RetrievalConfig, parse_urls};
use crate::http::client;
use crate::metrics::RetrievalMetrics;
use crate::peers::Exchange;
use crate::readers::{Lingering, MAX_LINGERING, Reading};
use crate::routing::Routers;
use crate::session::Session;
use crate::shared::{Admits, BUFFER_KIB, FIRST_BLOCKS, OnEnd, Shared};
use crate::source::Sources;
use crate::store::{RetrievingStore, Wanted};
use crate::want::Want;

/// Number of sessions that a client may have while any are free.
const CLIENT_MINIMUM: usize = 2;
/// Most gateways in a row between the client and the source.
const MAX_HOPS: usize = 8;

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

/// Sessions by root and `Via` header: those that run, and some that have ended.
type Sessions = HashMap<(Cid, Arc<str>), Weak<Session>>;

/// Retrieves missing blocks from the network. Clones share everything.
#[derive(Debug, Clone)]
pub struct Retriever {
    pub(crate) shared: Arc<Shared>,
    sessions: Arc<Mutex<Sessions>>,
    /// One permit for each session that has readers.
    permits: FairPool<Option<IpAddr>>,
    pub(crate) lingering: Lingering,
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
            first_blocks: Turns::new(FIRST_BLOCKS, 1),
            buffer: Arc::new(Semaphore::new(BUFFER_KIB as usize)),
        };
        let permits = FairPool::new(config.max_sessions, CLIENT_MINIMUM, usize::MAX);
        let lingering = Lingering::new(config.max_sessions);
        Ok(Self { shared: Arc::new(shared), sessions: Arc::default(), permits, lingering })
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
        let session = self.sessions.lock().get(&(*root, Arc::from(""))).and_then(Weak::upgrade);
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
    pub(crate) fn session(&self, want: &Want, requester: &Requester) -> Result<Reading> {
        let session = self.session_for(want, requester.client)?;
        session.add_hints(&requester.hints);
        Ok(session)
    }

    fn session_for(&self, want: &Want, client: Option<IpAddr>) -> Result<Reading> {
        let mut sessions = self.sessions.lock();
        let key = (want.root, Arc::clone(&want.via));
        if let Some(session) = sessions.get(&key).and_then(Weak::upgrade) {
            return Reading::of(session, || self.permit(client));
        }
        let permit = self.permit(client)?;
        let session = Arc::new(Session::new(Arc::clone(&self.shared), want.root));
        let reading = Reading::of(Arc::clone(&session), || Ok(permit))?;
        if sessions.len() >= 2 * self.permits.capacity() + MAX_LINGERING {
            sessions.retain(|_, session| session.strong_count() > 0);
        }
        sessions.insert(key, Arc::downgrade(&session));
        Ok(reading)
    }

    fn permit(&self, client: Option<IpAddr>) -> Result<Share<Option<IpAddr>>> {
        self.permits.take(client, 1).map_err(|shortage| {
            let most = self.permits.capacity();
            let what = match shortage {
                Shortage::Total => format!("{most} roots are being fetched, the limit"),
                Shortage::Share | Shortage::Client => {
                    format!("as many roots are being fetched for this client as are left for all others, of {most}")
                }
            };
            let remedy = "(retrieval.max_sessions): try again when some have ended";
            Error::new(ErrorKind::RateLimited, format!("{what} {remedy}"))
        })
    }
}

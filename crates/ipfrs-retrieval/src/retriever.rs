//! The [`Retriever`]: begins sessions, and finds those that run.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use ipfrs_core::fair_pool::{FairPool, Share, Shortage};
use ipfrs_core::turns::Turns;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::BlockSink;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::config::{RetrievalConfig, parse_urls};
use crate::http::client;
use crate::metrics::RetrievalMetrics;
use crate::peers::Exchange;
use crate::readers::{Lingering, MAX_LINGERING, Reading};
use crate::routing::{Provider, Router, Routers};
use crate::session::Session;
use crate::shared::{Admits, BUFFER_KIB, FIRST_BLOCKS, OnEnd, Shared};
use crate::source::Sources;
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
    /// Time at which the request began. By default, that is when its view of the store is created.
    pub began: Option<Instant>,
    /// Whether it waits for peers, until `retrieval.timeout_seconds`, if no known source has a block: for those that
    /// connect, and for those that store the block later.
    pub waits_for_peers: bool,
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
    /// `sink`, or to `store` if they are going to be pinned. It neither fetches nor stores blocks that `admits`
    /// rejects. `name` identifies this gateway in `Via` headers, which prevents loops between gateways. With an
    /// `exchange`, it also asks peers. `on_end` must not block.
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
            deliveries: Arc::default(),
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

    /// Waits until all blocks that readers have received so far are stored, or could not be stored.
    pub async fn until_stored(&self) {
        self.shared.deliveries.ended().await;
    }

    /// Returns the attempts of the session that fetches content below `root` or did so less than a second ago, for
    /// a request that began at `since`: those that ended later, and lookups whose results it uses.
    #[must_use]
    pub fn attempts(&self, root: &Cid, since: Instant) -> Vec<Attempt> {
        let session = self.sessions.lock().get(&(*root, Arc::from(""))).and_then(Weak::upgrade);
        let Some(session) = session else { return Vec::new() };
        session.attempts_since(since)
    }

    /// Whether routers are configured.
    #[must_use]
    pub fn has_routers(&self) -> bool {
        !self.shared.routers.all().is_empty()
    }

    /// Returns the providers of `cid` that routers name: at most `most` peer IDs, each once, with their addresses.
    /// `to_id` normalizes an ID, or rejects it. Waits for no router once `most` are found. Routers that fail are left
    /// out. `client` is the one that waits.
    pub async fn providers(
        &self,
        cid: &Cid,
        most: usize,
        client: Option<IpAddr>,
        to_id: impl Fn(&str) -> Option<String> + Send + Sync,
    ) -> Vec<(String, Vec<String>)> {
        let found = Mutex::new(Vec::<(String, Vec<String>)>::new());
        let are_enough = Notify::new();
        let add = |provider: Provider| {
            let Some((id, addresses)) = provider.peer else { return false };
            let Some(id) = to_id(&id) else { return false };
            let mut found = found.lock();
            if found.len() < most && !found.iter().any(|(known, _)| *known == id) {
                found.push((id, addresses));
            }
            if found.len() >= most {
                are_enough.notify_one();
            }
            true
        };
        let lookup = async |router: &Router| {
            let _named_none_or_failed = self.shared.routers.providers(router, cid, client, &add).await;
        };
        tokio::select! {
            _ = join_all(self.shared.routers.all().iter().map(lookup)) => {}
            () = are_enough.notified() => {}
        }
        found.into_inner()
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
            session.candidates.forget_old_search();
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::{FutureExt, poll};
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Block, codec};
    use ipfrs_store::{MemoryStore, PutMode};
    use ipfrs_stream::{Part, StoreSink};
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::attempt::FAILURE_AGE;
    use crate::session::MAX_UNSTORED;
    use crate::store::Wanted;

    fn retriever(gateways: Vec<String>, timeout_seconds: u64) -> Retriever {
        let store: Arc<dyn BlockStore> = Arc::new(MemoryStore::default());
        retriever_with(gateways, timeout_seconds, Arc::clone(&store), Arc::new(StoreSink(store)))
    }

    fn retriever_with(
        gateways: Vec<String>,
        timeout_seconds: u64,
        store: Arc<dyn BlockStore>,
        sink: Arc<dyn BlockSink>,
    ) -> Retriever {
        configured(&RetrievalConfig { gateways, timeout_seconds, ..RetrievalConfig::default() }, store, sink)
    }

    fn configured(config: &RetrievalConfig, store: Arc<dyn BlockStore>, sink: Arc<dyn BlockSink>) -> Retriever {
        let (admits, on_end): (Admits, OnEnd) = (Arc::new(|_| true), Arc::new(|_| {}));
        Retriever::new(config, store, sink, admits, "test".to_owned(), None, on_end, &Registry::new()).unwrap()
    }

    fn block() -> Block {
        Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(b"late")).unwrap()
    }

    /// A sink that may have no space, and knows it after a while.
    struct Limited {
        sink: StoreSink,
        is_full: AtomicBool,
    }

    #[async_trait]
    impl BlockSink for Limited {
        async fn put(&self, blocks: Vec<Block>) -> Result<()> {
            match self.is_full.load(Ordering::Relaxed) {
                true => {
                    sleep(Duration::from_secs(1)).await;
                    Err(Error::new(ErrorKind::NoSpace, "full"))
                }
                false => self.sink.put(blocks).await,
            }
        }
    }

    fn full() -> (Retriever, Arc<Limited>) {
        let store: Arc<dyn BlockStore> = Arc::new(MemoryStore::default());
        let sink = Arc::new(Limited { sink: StoreSink(Arc::clone(&store)), is_full: AtomicBool::new(true) });
        (retriever_with(Vec::new(), 8, store, sink.clone()), sink)
    }

    #[tokio::test]
    async fn providers_wait_for_no_router_once_enough_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let record = |id| json!({ "Schema": "peer", "ID": id, "Addrs": [] });
            let records = ["rejected", "a", "a", "b"].map(record);
            let body = json!({ "Providers": records }).to_string();
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(connection.read_u8().await.unwrap());
            }
            let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
            connection.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        });
        let store: Arc<dyn BlockStore> = Arc::new(MemoryStore::default());
        let routers = vec!["http://127.0.0.1:1".to_owned(), url];
        let config = RetrievalConfig { routers, ..RetrievalConfig::default() };
        let retriever = configured(&config, Arc::clone(&store), Arc::new(StoreSink(store)));
        // The first router gets no request, because its permits are held.
        let first = &retriever.shared.routers.all()[0];
        let _held: Vec<_> = std::iter::from_fn(|| first.lookups.take(None).now_or_never()).collect();
        let to_id = |id: &str| (id != "rejected").then(|| id.to_uppercase());
        let found = retriever.providers(block().cid(), 2, None, to_id).await;
        assert_eq!(found, [("A".to_owned(), Vec::new()), ("B".to_owned(), Vec::new())]);
        server.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn later_request_does_not_get_the_failure_of_an_earlier_one() {
        let ((retriever, sink), block) = (full(), block());
        let want = Want::new(*block.cid(), [], Part::All);
        let session = retriever.session(&want, &Requester::default()).unwrap();
        for is_full in [true, false] {
            sink.is_full.store(is_full, Ordering::Relaxed);
            session.deliver(vec![block.clone()], false, ());
            let stored = session.until_stored(block.cid()).await;
            assert_eq!(stored.map_err(|error| error.kind()), if is_full { Err(ErrorKind::NoSpace) } else { Ok(()) });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_failures_do_not_concern_blocks_that_are_stored_later() {
        let (retriever, sink) = full();
        let number = |number: usize| {
            Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::copy_from_slice(&number.to_be_bytes())).unwrap()
        };
        let (unstored, later): (Vec<_>, _) = ((0..=MAX_UNSTORED).map(number).collect(), block());
        let session = retriever.session(&Want::new(*later.cid(), [], Part::All), &Requester::default()).unwrap();
        session.deliver(unstored.clone(), false, ());
        for cid in [unstored[0].cid(), unstored[MAX_UNSTORED].cid()] {
            assert_eq!(session.until_stored(cid).await.unwrap_err().kind(), ErrorKind::NoSpace);
        }
        sink.is_full.store(false, Ordering::Relaxed);
        session.deliver(vec![later.clone()], false, ());
        session.until_stored(later.cid()).await.unwrap();
        assert!(session.until_stored(unstored[MAX_UNSTORED].cid()).await.is_err(), "it is not in the store");
    }

    #[tokio::test(start_paused = true)]
    async fn pin_of_one_block_keeps_nothing_else() {
        for (part, keeps_all) in [(Part::Block, false), (Part::All, true)] {
            let ((retriever, _), block) = (full(), block());
            let root = Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(b"root")).unwrap();
            let want = Want::new(*root.cid(), [], part);
            let session = retriever.session(&want, &Requester::default()).unwrap();
            let store = Arc::clone(&retriever.shared.store);
            let view = retriever.store(Arc::clone(&store), Wanted::Pinned(want), Requester::default());
            let mut found = view.get(root.cid());
            assert!(poll!(&mut found).is_pending());
            session.deliver(vec![root.clone(), block.clone()], true, ());
            assert_eq!(found.await.unwrap().unwrap(), *root.data());
            assert_eq!(session.until_stored(block.cid()).await.is_ok(), keeps_all, "{part:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pin_needs_no_space_for_fetched_blocks() {
        for arrives_before in [true, false] {
            let ((retriever, _), block) = (full(), block());
            let want = Want::new(*block.cid(), [], Part::All);
            let session = retriever.session(&want, &Requester::default()).unwrap();
            if arrives_before {
                session.deliver(vec![block.clone()], false, ());
            }
            let store = Arc::clone(&retriever.shared.store);
            let view = retriever.store(Arc::clone(&store), Wanted::Pinned(want), Requester::default());
            let mut found = view.get(block.cid());
            if !arrives_before {
                assert!(poll!(&mut found).is_pending());
                session.deliver(vec![block.clone()], false, ());
            }
            assert_eq!(found.await.unwrap().unwrap(), *block.data());
            assert!(store.get(block.cid()).await.unwrap().is_some(), "{arrives_before}");
            drop(view);
            assert_eq!(session.pins.load(Ordering::Relaxed), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn later_request_of_a_session_searches_and_streams_again() {
        let retriever = retriever(Vec::new(), 8);
        let want = Want::new(*block().cid(), [], Part::All);
        let first = retriever.session(&want, &Requester::default()).unwrap();
        let began = Instant::now();
        assert!(first.candidates.begin_search());
        first.candidates.end_search();
        first.end_stream(&want);
        for (after, is_repeated) in [(FAILURE_AGE / 2, false), (FAILURE_AGE, true)] {
            advance(after).await;
            let next = retriever.session(&want, &Requester::default()).unwrap();
            assert!(Arc::ptr_eq(&first, &next));
            assert_eq!(next.candidates.begin_search(), is_repeated);
            assert!(next.stream(&want, true, began).is_none(), "a request tries a stream once");
            assert_eq!(next.stream(&want, true, Instant::now()).is_some(), is_repeated);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_joins_a_fetch_keeps_its_own_time_limit() {
        let retriever = retriever(vec!["http://127.0.0.1:1".to_owned()], 8);
        // The gateway gets no request, because its permits are held.
        let gateway = &retriever.shared.sources.gateways()[0];
        let _held: Vec<_> = std::iter::from_fn(|| gateway.requests.take(None).now_or_never()).collect();
        let view = || {
            let wanted = Wanted::Blocks { via: "".into() };
            retriever.store(Arc::new(MemoryStore::default()), wanted, Requester::default())
        };
        let (first, second, block) = (view(), view(), block());
        let mut first = pin!(first.get(block.cid()));
        assert!(poll!(&mut first).is_pending());
        advance(Duration::from_secs(7)).await;
        let mut second = pin!(second.get(block.cid()));
        assert!(poll!(&mut second).is_pending());
        // The fetch that both wait for has looked into the store before. Only another one finds the block there.
        retriever.shared.store.put_many(vec![block.clone()], PutMode::Atomic).await.remove(0).unwrap();
        let error = first.await.unwrap_err();
        assert!(error.message().contains("no source delivered it in 8 s"), "{error}");
        assert!(poll!(&mut second).is_pending(), "another fetch begins");
        assert_eq!(second.await.unwrap().unwrap(), *block.data());
    }
}

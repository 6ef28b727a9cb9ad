//! Blocks from peers, by Bitswap.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipfrs_bitswap::{Bitswap, Direction, MessageMemory, Multiaddr, PeerId, Request, Session};
use ipfrs_core::{Block, Cid, ErrorKind, codec, parse_cid};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::attempt::{Attempt, MAX_ATTEMPTS, Outcome, SourceKind};
use crate::metrics::RetrievalMetrics;

pub use ipfrs_bitswap::BitswapConfig;

/// Maximum number of peers of a session that are neither configured nor named by a router.
const MAX_OTHER_PEERS: usize = 32;

/// Time in which the chosen peers may deliver a block before those that have connected to this node are asked, too.
const CHOSEN_ALONE: Duration = Duration::from_secs(2);

/// Time between two looks for peers whose connections have ended.
const RECONNECT: Duration = Duration::from_millis(500);

/// Longest wait for a connection to a chosen peer that is not connected, when no other source is left.
const REDIAL: Duration = Duration::from_secs(2);

const NO_CONNECTION: &str = "no connection";

/// The running Bitswap node.
#[derive(Debug, Clone)]
pub struct Exchange(pub Bitswap);

impl Exchange {
    /// Begins a session, which first asks the peers that the operator has chosen. `began` is the time from which its
    /// attempts are counted.
    pub(crate) fn session(&self, began: Instant, metrics: RetrievalMetrics) -> PeerSession {
        let requests = Arc::new(Requests { began, metrics, by_outcome: Mutex::default() });
        let trace = Arc::clone(&requests);
        let session = self.0.session(Some(Arc::new(move |attempt| trace.record(attempt))));
        let chosen = self.0.chosen_peers();
        session.add_providers(without_addresses(chosen.iter().copied()));
        PeerSession(Arc::new(Inner {
            bitswap: self.0.clone(),
            session,
            chosen: Mutex::new(chosen.into_iter().collect()),
            requests,
            asks_others: AtomicBool::new(false),
            is_needed: AtomicBool::new(false),
            last_delivery: Mutex::default(),
        }))
    }
}

fn without_addresses(peers: impl IntoIterator<Item = PeerId>) -> Vec<(PeerId, Vec<Multiaddr>)> {
    peers.into_iter().map(|peer| (peer, Vec::new())).collect()
}

/// The peers of one session. Clones share them.
#[derive(Clone)]
pub(crate) struct PeerSession(Arc<Inner>);

struct Inner {
    bitswap: Bitswap,
    session: Session,
    /// The peers that the operator has chosen and that the session has used.
    chosen: Mutex<HashSet<PeerId>>,
    requests: Arc<Requests>,
    /// Whether the session also asks peers that have connected to this node.
    asks_others: AtomicBool,
    /// Whether a request needed a block from peers.
    is_needed: AtomicBool,
    /// Time at which a peer last delivered a block of the session.
    last_delivery: Mutex<Option<Instant>>,
}

impl PeerSession {
    /// Adds a peer that a router named. Returns whether its ID is valid.
    pub(crate) fn add(&self, id: &str, addresses: &[String]) -> bool {
        // An ID has two forms of text (libp2p, Peer IDs).
        let from_cid = || {
            let cid = parse_cid(id).ok().filter(|cid| cid.codec() == codec::LIBP2P_KEY)?;
            PeerId::from_bytes(&cid.hash().to_bytes()).ok()
        };
        let Some(id) = id.parse::<PeerId>().ok().or_else(from_cid) else { return false };
        let addresses = addresses.iter().filter_map(|address| address.parse().ok()).collect();
        self.0.session.add_providers(vec![(id, addresses)]);
        true
    }

    /// Fetches a block, with memory to hold until it is stored. Returns `None` if none of the known peers delivers it.
    /// If the connections to them have ended after they have delivered something, it waits for them.
    pub(crate) async fn get(&self, cid: &Cid) -> Option<(Block, MessageMemory)> {
        let Inner { bitswap, session, is_needed, last_delivery, .. } = &*self.0;
        is_needed.store(true, Ordering::Relaxed);
        loop {
            let mut received = pin!(session.receive(cid));
            let received = loop {
                match timeout(CHOSEN_ALONE, &mut received).await {
                    Ok(received) => break received,
                    // A slow peer delivers other blocks meanwhile.
                    Err(_) if last_delivery.lock().is_some_and(|last| last.elapsed() < CHOSEN_ALONE) => {}
                    // A chosen peer that is silent must not keep others from delivering the block.
                    Err(_) => {
                        self.ask_others();
                        break received.await;
                    }
                }
            };
            let error = match received {
                Ok(received) => {
                    *last_delivery.lock() = Some(Instant::now());
                    return Some((received.block, received.memory));
                }
                Err(error) => error,
            };
            tracing::debug!("no peer delivers a block: {error}");
            if self.ask_others() {
                continue;
            }
            if error.kind() != ErrorKind::Unavailable || !self.have_delivered() {
                return None;
            }
            let redial = timeout(RECONNECT, bitswap.redial(Instant::now()));
            _ = tokio::join!(sleep(RECONNECT), redial);
            session.add_providers(without_addresses(bitswap.chosen_peers()));
        }
    }

    /// Fetches a block as [`Self::get`] does, but waits until a connected peer has it, also one that connects later.
    /// Returns `None` if Bitswap cannot fetch such a block, if too many callers wait, in all or of this `client`, and when the node stops.
    pub(crate) async fn get_when_available(&self, cid: &Cid, client: Option<IpAddr>) -> Option<(Block, MessageMemory)> {
        let Inner { bitswap, session, last_delivery, .. } = &*self.0;
        let mut received = pin!(session.receive_when_available(cid, client));
        loop {
            let another = bitswap.next_connection();
            let mut connected = bitswap.peers();
            // A peer that connects is asked, however many are connected already.
            connected.sort_by_key(|peer| Reverse(peer.since));
            let latest = connected.into_iter().map(|peer| peer.id).take(MAX_OTHER_PEERS);
            session.add_providers(without_addresses(latest));
            tokio::select! {
                received = &mut received => {
                    let received = received.ok()?;
                    *last_delivery.lock() = Some(Instant::now());
                    return Some((received.block, received.memory));
                }
                () = another => {}
            }
        }
    }

    /// Connects to the peers that the operator has chosen and that are not connected, unless that was tried after
    /// `since`. Returns whether the session has another peer.
    pub(crate) async fn reconnect(&self, since: Instant) -> bool {
        let Inner { bitswap, session, chosen, .. } = &*self.0;
        let has_redialed = timeout(REDIAL, bitswap.redial(since)).await.unwrap_or(false);
        let peers = bitswap.chosen_peers();
        let mut used = chosen.lock();
        let count = used.len();
        used.extend(&peers);
        let has_others = used.len() > count;
        drop(used);
        if has_redialed || has_others {
            session.add_providers(without_addresses(peers));
        }
        has_redialed || has_others
    }

    /// Adds the peers that have connected to this node, unless that was done before. Returns whether there are any.
    fn ask_others(&self) -> bool {
        let Inner { bitswap, session, asks_others, .. } = &*self.0;
        if asks_others.swap(true, Ordering::Relaxed) {
            return false;
        }
        let peers = bitswap.peers().into_iter().filter(|peer| peer.direction == Direction::Inbound);
        let inbound: Vec<_> = peers.map(|peer| peer.id).take(MAX_OTHER_PEERS).collect();
        let has_others = !inbound.is_empty();
        asks_others.store(has_others, Ordering::Relaxed);
        if has_others {
            session.add_providers(without_addresses(inbound));
        }
        has_others
    }

    /// Returns the configured peers that are not connected, as failed sources, if a block was needed from peers. They
    /// count as attempts in reports only.
    pub(crate) fn unconnected(&self) -> Vec<Attempt> {
        let Inner { bitswap, requests, is_needed, .. } = &*self.0;
        if !is_needed.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let failed = |(peer, detail): (PeerId, Option<String>)| Attempt {
            detail: detail.unwrap_or_else(|| NO_CONNECTION.to_owned()),
            ..new_attempt(peer, "blocks".to_owned(), Outcome::Failed, requests.began.elapsed())
        };
        let attempts = requests.by_outcome.lock();
        let is_reported = |peer: PeerId| attempts.contains_key(&(peer, Outcome::Failed));
        bitswap.unconnected_peers().into_iter().filter(|(peer, _)| !is_reported(*peer)).map(failed).collect()
    }

    /// Whether a peer has delivered a block of the session.
    pub(crate) fn have_delivered(&self) -> bool {
        self.0.requests.by_outcome.lock().keys().any(|(_, outcome)| *outcome == Outcome::Delivered)
    }

    /// Returns the requests to peers, one entry for each peer and outcome.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        let mut attempts: Vec<_> = self.0.requests.by_outcome.lock().values().cloned().collect();
        attempts.sort_by_key(|attempt| attempt.start);
        attempts
    }
}

impl fmt::Debug for PeerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSession").finish_non_exhaustive()
    }
}

/// The requests of a session to peers, summed up by peer and outcome, because a file may need thousands of them.
struct Requests {
    began: Instant,
    metrics: RetrievalMetrics,
    by_outcome: Mutex<HashMap<(PeerId, Outcome), Attempt>>,
}

impl Requests {
    fn record(&self, attempt: &ipfrs_bitswap::Attempt) {
        let Some(outcome) = outcome(attempt) else { return };
        let blocks = u64::from(outcome == Outcome::Delivered);
        let first_byte = (outcome == Outcome::Delivered).then_some(attempt.duration);
        self.metrics.count_peer(outcome, blocks, attempt.bytes as u64, first_byte);
        let now = self.began.elapsed();
        let mut attempts = self.by_outcome.lock();
        let key = (attempt.peer, outcome);
        // Clients may name any number of peers that do not exist.
        if attempts.len() >= MAX_ATTEMPTS && !attempts.contains_key(&key) {
            return;
        }
        let sum = attempts.entry(key).or_insert_with(|| {
            let request = attempt.cid.map_or_else(|| "blocks".to_owned(), |cid| format!("block {cid}"));
            let start = now.saturating_sub(attempt.duration);
            Attempt { first_byte, ..new_attempt(attempt.peer, request, outcome, start) }
        });
        sum.blocks += blocks;
        sum.bytes += attempt.bytes as u64;
        sum.duration = now.saturating_sub(sum.start);
        if sum.blocks == 2 {
            "blocks".clone_into(&mut sum.request);
        }
        sum.detail = detail(attempt);
    }
}

fn new_attempt(peer: PeerId, request: String, outcome: Outcome, start: Duration) -> Attempt {
    Attempt {
        source: SourceKind::Peer,
        address: format!("/p2p/{peer}"),
        url: None,
        request,
        outcome,
        detail: String::new(),
        status: None,
        start,
        first_byte: None,
        duration: Duration::ZERO,
        bytes: 0,
        blocks: 0,
    }
}

/// Returns the outcome in a report, or `None` for a step that is none.
fn outcome(attempt: &ipfrs_bitswap::Attempt) -> Option<Outcome> {
    use ipfrs_bitswap::Outcome as Step;
    Some(match attempt.outcome {
        Step::Connected | Step::Have => return None,
        // A peer that lacks a block has not failed, unless the block was requested from it.
        Step::DontHave if attempt.request == Request::Have => return None,
        Step::Received => Outcome::Delivered,
        Step::DontHave | Step::Dropped => Outcome::Absent,
        Step::TimedOut => Outcome::Slow,
        Step::NotConnected | Step::NoAddress | Step::Disconnected | Step::Unsupported => Outcome::Failed,
        Step::Invalid => Outcome::Invalid,
    })
}

fn detail(attempt: &ipfrs_bitswap::Attempt) -> String {
    use ipfrs_bitswap::Outcome as Step;
    let detail = match attempt.outcome {
        Step::DontHave => "it does not have the block",
        Step::Dropped => "it had none of many blocks and is not asked again",
        Step::TimedOut => "no response in time",
        Step::NotConnected | Step::NoAddress => attempt.detail.as_deref().unwrap_or(NO_CONNECTION),
        Step::Disconnected => "the connection ended",
        Step::Unsupported => "it does not support Bitswap",
        Step::Invalid => "it sent bytes that match no requested block",
        Step::Connected | Step::Received | Step::Have => "",
    };
    detail.to_owned()
}

impl RetrievalMetrics {
    fn count_peer(&self, outcome: Outcome, blocks: u64, bytes: u64, first_byte: Option<Duration>) {
        let source = SourceKind::Peer.name();
        self.attempts.with_label_values(&[source, outcome.name()]).inc();
        self.blocks.with_label_values(&[source]).inc_by(blocks);
        self.bytes.with_label_values(&[source]).inc_by(bytes);
        if let Some(first_byte) = first_byte {
            self.first_byte.with_label_values(&[source]).observe(first_byte.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::poll;
    use ipfrs_bitswap::BlockProvider;
    use ipfrs_core::Result;
    use prometheus::Registry;

    use super::*;

    /// A private key as a libp2p message, with the key of RFC 8032, 7.1, test 1.
    const KEY: &str = "080112409d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60\
                       d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    struct NoBlocks;

    #[async_trait]
    impl BlockProvider for NoBlocks {
        async fn get(&self, _cid: &Cid) -> Result<Option<Bytes>> {
            Ok(None)
        }

        async fn size(&self, _cid: &Cid) -> Result<Option<u64>> {
            Ok(None)
        }
    }

    #[tokio::test]
    async fn unconnected_peer_is_reported_while_others_are_silent() {
        let id = PeerId::random();
        let peers = vec![format!("/ip4/127.0.0.1/tcp/1/p2p/{id}").parse().unwrap()];
        let config = BitswapConfig { listen: Vec::new(), peers, ..BitswapConfig::default() };
        let byte = |at: usize| u8::from_str_radix(&KEY[at..at + 2], 16).unwrap();
        let key: Vec<_> = (0..KEY.len()).step_by(2).map(byte).collect();
        let registry = Registry::new();
        let bitswap = Bitswap::start(config, &key, Arc::new(NoBlocks), Arc::new(|_| true), &registry).await.unwrap();
        let metrics = RetrievalMetrics::register(&registry).unwrap();
        let session = Exchange(bitswap).session(Instant::now(), metrics);
        assert!(session.unconnected().is_empty(), "no block was needed");
        let cid = parse_cid("bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku").unwrap();
        let mut get = pin!(session.get(&cid));
        assert!(poll!(&mut get).is_pending());
        let attempts = session.unconnected();
        assert_eq!((attempts.len(), attempts[0].outcome), (1, Outcome::Failed));
        assert_eq!(attempts[0].address, format!("/p2p/{id}"));
    }

    #[test]
    fn report_has_a_limit_however_many_peers_are_named() {
        let metrics = RetrievalMetrics::register(&Registry::new()).unwrap();
        let requests = Requests { began: Instant::now(), metrics, by_outcome: Mutex::default() };
        let attempt = |peer, outcome| ipfrs_bitswap::Attempt {
            peer,
            request: Request::Block,
            cid: None,
            outcome,
            bytes: 1,
            duration: Duration::ZERO,
            detail: None,
        };
        let first = PeerId::random();
        requests.record(&attempt(first, ipfrs_bitswap::Outcome::Received));
        for _ in 0..1_000 {
            requests.record(&attempt(PeerId::random(), ipfrs_bitswap::Outcome::NoAddress));
        }
        requests.record(&attempt(first, ipfrs_bitswap::Outcome::Received));
        let attempts = requests.by_outcome.lock();
        assert_eq!((attempts.len(), attempts[&(first, Outcome::Delivered)].blocks), (MAX_ATTEMPTS, 2));
    }
}

//! The task of one session.

mod timeouts;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::Cid;
use libp2p::{Multiaddr, PeerId};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::peer_table::{Absence, Choice, Link, PeerSet, PeerTable};
use super::want_table::{Failure, Waiter, Want, WantTable};
use crate::client::event::{SessionEvent, SessionId, SessionSender};
use crate::client::received::Received;
use crate::network::{DialError, Network, Origin};
use crate::outcome::{Attempt, Outcome, Request, Trace};
use crate::peer::Peer;
use crate::wire::WantKind;

/// Number of `DONT_HAVE` in a row after which a session no longer uses a peer.
const MAX_MISSES: usize = 16;
/// Number of dials of one session at the same time.
const MAX_DIALS: usize = 8;
/// Number of other peers that are asked whether they have a block.
const PROBED_PEERS: usize = 2;
/// Number of unanswered questions of that kind per peer.
const MAX_PROBES: usize = 4;
/// Interval at which timeouts are checked.
const TICK: Duration = Duration::from_millis(250);
/// Number of events that are handled together.
const BATCH_EVENTS: usize = 256;
/// Maximum number of wants that are skipped because the peers that may have them are busy.
const MAX_SKIPPED: usize = 64;

type Dialed = (usize, Result<Arc<Peer>, DialError>);

struct Actor {
    id: SessionId,
    network: Network,
    trace: Option<Trace>,
    events: SessionSender,
    peers: PeerTable,
    wants: WantTable,
    dials: JoinSet<Dialed>,
    dial_permits: Arc<Semaphore>,
    /// Peers whose wants have changed.
    changed: PeerSet,
}

/// Runs a session until its last handle is dropped or the node is shut down.
pub(super) async fn run(
    network: Network,
    trace: Option<Trace>,
    events: SessionSender,
    mut received: mpsc::UnboundedReceiver<SessionEvent>,
) {
    let stop = network.context.stop.clone();
    let sessions = network.context.metrics.sessions.clone();
    sessions.inc();
    let mut actor = Actor {
        id: SessionId::next(),
        network,
        trace,
        events,
        peers: PeerTable::default(),
        wants: WantTable::default(),
        dials: JoinSet::new(),
        dial_permits: Arc::new(Semaphore::new(MAX_DIALS)),
        changed: PeerSet::default(),
    };
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut batch = Vec::with_capacity(BATCH_EVENTS);
    let mut is_open = true;
    while is_open {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = received.recv_many(&mut batch, BATCH_EVENTS) => {
                for event in batch.drain(..) {
                    is_open &= !matches!(event, SessionEvent::Close);
                    actor.on_event(event);
                }
            }
            Some(Ok((peer, result))) = actor.dials.join_next() => actor.on_dialed(peer, result),
            _ = ticks.tick(), if actor.wants.len() > 0 => actor.check_timeouts(),
        }
        actor.assign();
        actor.notify_changed();
    }
    actor.close();
    sessions.dec();
}

impl Actor {
    fn on_event(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Get { cid, waiter, is_patient, reply } => {
                self.get(cid, Waiter { id: waiter, is_patient, reply });
            }
            SessionEvent::Abandon { cid, waiter } => {
                if let Some(want) = self.wants.abandon(&cid, waiter) {
                    self.release(&cid, &want, None);
                }
            }
            SessionEvent::Providers(providers) => self.add_providers(providers),
            SessionEvent::Block { peer, received } => self.on_block(peer, &received),
            SessionEvent::Presence { peer, cid, has_block } => {
                if let Some(number) = self.peers.index(&peer) {
                    if has_block { self.on_have(number, &cid) } else { self.on_dont_have(number, &cid) }
                }
            }
            SessionEvent::Invalid { peer, bytes } => self.exclude_by_id(&peer, Outcome::Invalid, bytes),
            SessionEvent::Unsupported { peer } => self.exclude_by_id(&peer, Outcome::Unsupported, 0),
            SessionEvent::Disconnected { peer } => {
                if let Some(number) = self.peers.index(&peer) {
                    self.on_disconnected(number);
                }
            }
            SessionEvent::Close => {}
        }
    }

    fn get(&mut self, cid: Cid, waiter: Waiter) {
        let before = self.wants.len();
        self.wants.add(cid, waiter);
        self.network.context.metrics.client_wants.add(i64::from(self.wants.len() > before));
    }

    fn add_providers(&mut self, providers: Vec<(PeerId, Vec<Multiaddr>)>) {
        for (id, addresses) in providers {
            if let Some(number) = self.peers.add(id, addresses) {
                // The number may have been that of an earlier peer, or of an earlier use of this one.
                self.wants.iter_mut().for_each(|(_, want)| want.clear_peer(number));
                self.connect(number);
            }
        }
    }

    fn connect(&mut self, number: usize) {
        let peer = self.peers.get(number);
        let id = peer.id;
        if let Some(connected) = self.network.context.peers.get(&id) {
            self.on_connected(number, connected, Duration::ZERO);
            return;
        }
        peer.link = Link::Dialing(Instant::now());
        let (network, addresses) = (self.network.clone(), peer.addresses.clone());
        let permits = Arc::clone(&self.dial_permits);
        self.dials.spawn(async move {
            let _permit = permits.acquire().await;
            (number, network.connect(id, &addresses, Origin::Network).await)
        });
    }

    fn on_dialed(&mut self, number: usize, result: Result<Arc<Peer>, DialError>) {
        let Link::Dialing(since) = self.peers.get(number).link else { return };
        match result {
            Ok(peer) => self.on_connected(number, peer, since.elapsed()),
            Err(error) => {
                let (absence, outcome) = match error {
                    DialError::NoAddress => (Absence::NoAddress, Outcome::NoAddress),
                    DialError::Failed(_) => (Absence::Temporary, Outcome::NotConnected),
                };
                self.peers.get(number).link = Link::Gone(absence);
                let duration = since.elapsed();
                let detail = Some(error.to_string());
                self.record(number, Request::Connect, None, outcome, 0, duration, detail);
            }
        }
    }

    fn on_connected(&mut self, number: usize, peer: Arc<Peer>, duration: Duration) {
        peer.wants.lock().attach(self.id, self.events.clone());
        // A peer that closed before it was attached sends no event.
        if peer.closed.is_cancelled() {
            peer.wants.lock().disconnected();
        }
        self.peers.get(number).link = Link::Connected(peer);
        self.wants.resume_all(number);
        self.record(number, Request::Connect, None, Outcome::Connected, 0, duration, None);
    }

    fn on_block(&mut self, peer: PeerId, received: &Received) {
        let block = &received.block;
        let Some(number) = self.peers.index(&peer) else { return };
        let Some(want) = self.wants.remove(block.cid()) else { return };
        let bytes = block.data().len();
        let sent_by_asked = want.asked.filter(|(asked, _)| *asked == number);
        let since = sent_by_asked.map(|(_, since)| since).or(want.probed_at);
        let duration = since.map_or(Duration::ZERO, |since| since.elapsed());
        let peer = self.peers.get(number);
        peer.on_response();
        peer.last_block_at = Some(Instant::now());
        if sent_by_asked.is_some() {
            peer.window.on_block(duration, bytes, peer.in_flight);
        }
        self.release(block.cid(), &want, Some(number));
        self.network.context.metrics.block_seconds.observe(duration.as_secs_f64());
        self.record(number, Request::Block, Some(*block.cid()), Outcome::Received, bytes, duration, None);
        want.reply(block.cid(), Ok(received));
    }

    fn on_have(&mut self, number: usize, cid: &Cid) {
        let Some(want) = self.wants.get_mut(cid) else { return };
        want.holders.insert(number);
        if !want.probed.remove(number) {
            // A patient caller waits for a block that the peer did not have before.
            if want.is_patient() && want.refused.remove(number) {
                self.wants.resume(cid);
            }
            return;
        }
        let duration = want.probed_at.map_or(Duration::ZERO, |since| since.elapsed());
        let peer = self.peers.get(number);
        peer.probes -= 1;
        peer.on_response();
        self.record(number, Request::Have, Some(*cid), Outcome::Have, 0, duration, None);
    }

    fn on_dont_have(&mut self, number: usize, cid: &Cid) {
        let Some((request, duration)) = self.refuse(number, cid) else { return };
        let is_patient = self.wants.get_mut(cid).is_some_and(|want| want.is_patient());
        let peer = self.peers.get(number);
        // A peer may send later what patient callers want, and is not dropped for it.
        peer.misses += usize::from(!is_patient);
        (peer.timeouts, peer.last_timeout_at) = (0, None);
        let is_dropped = peer.misses >= MAX_MISSES;
        self.record(number, request, Some(*cid), Outcome::DontHave, 0, duration, None);
        if is_dropped {
            self.exclude(number, Outcome::Dropped, 0);
        }
    }

    /// Ends the request for a block to a peer that does not send it. Returns what was asked and since when, or `None`
    /// if nothing was.
    fn refuse(&mut self, number: usize, cid: &Cid) -> Option<(Request, Duration)> {
        let want = self.wants.get_mut(cid)?;
        let peer = self.peers.get(number);
        want.refused.insert(number);
        want.holders.remove(number);
        match want.asked {
            Some((asked, since)) if asked == number => {
                want.asked = None;
                peer.in_flight -= 1;
                self.wants.requeue(*cid);
                Some((Request::Block, since.elapsed()))
            }
            _ => want.probed.remove(number).then(|| {
                peer.probes -= 1;
                (Request::Have, want.probed_at.map_or(Duration::ZERO, |since| since.elapsed()))
            }),
        }
    }

    fn exclude_by_id(&mut self, id: &PeerId, outcome: Outcome, bytes: usize) {
        if let Some(number) = self.peers.index(id) {
            self.exclude(number, outcome, bytes);
        }
    }

    /// Stops using a peer.
    fn exclude(&mut self, number: usize, outcome: Outcome, bytes: usize) {
        let is_permanent = matches!(outcome, Outcome::Invalid | Outcome::Unsupported);
        let absence = if is_permanent { Absence::Permanent } else { Absence::Temporary };
        let link = &mut self.peers.get(number).link;
        if !matches!(link, Link::Connected(_)) {
            return;
        }
        let Link::Connected(peer) = std::mem::replace(link, Link::Gone(absence)) else { return };
        if outcome == Outcome::Invalid {
            tracing::info!(peer = %peer.id, "a Bitswap session no longer uses the peer, which sent wrong bytes");
        }
        peer.wants.lock().detach(self.id);
        peer.wants_changed.notify_one();
        self.take_back(number, outcome == Outcome::Invalid);
        self.record(number, Request::Block, None, outcome, bytes, Duration::ZERO, None);
    }

    fn on_disconnected(&mut self, number: usize) {
        if !matches!(self.peers.get(number).link, Link::Connected(_)) {
            return;
        }
        self.peers.get(number).link = Link::Gone(Absence::Temporary);
        let oldest = self.take_back(number, true);
        self.record(number, Request::Block, None, Outcome::Disconnected, 0, oldest, None);
        let peer = self.peers.get(number);
        if peer.reconnects > 0 && !peer.addresses.is_empty() {
            peer.reconnects -= 1;
            self.connect(number);
        }
    }

    /// Ends all requests to a peer. Returns the time since the oldest of them.
    fn take_back(&mut self, number: usize, has_failed: bool) -> Duration {
        let mut oldest = Duration::ZERO;
        let mut queued = Vec::new();
        for (cid, want) in self.wants.iter_mut() {
            want.probed.remove(number);
            want.holders.remove(number);
            if let Some((asked, since)) = want.asked
                && asked == number
            {
                want.asked = None;
                want.has_failed |= has_failed;
                oldest = oldest.max(since.elapsed());
                queued.push((since, *cid));
            }
        }
        queued.sort_by_key(|(since, _)| std::cmp::Reverse(*since));
        queued.into_iter().for_each(|(_, cid)| self.wants.requeue(cid));
        let peer = self.peers.get(number);
        (peer.in_flight, peer.probes) = (0, 0);
        oldest
    }

    /// Requests queued blocks from peers, while peers have capacity.
    fn assign(&mut self) {
        let mut skipped = Vec::new();
        while self.wants.has_queued() && skipped.len() < MAX_SKIPPED {
            if !self.peers.has_capacity() && !self.peers.is_exhausted() && !skipped.is_empty() {
                break;
            }
            let Some(cid) = self.wants.pop() else { break };
            let Some(want) = self.wants.get_mut(&cid) else { continue };
            match self.peers.choose(want.holders, want.refused) {
                Choice::Peer(number) => self.ask(number, cid),
                Choice::Later => skipped.push(cid),
                Choice::None if want.retry(self.peers.connected()) => self.wants.requeue(cid),
                Choice::None => self.fail(&cid),
            }
        }
        skipped.into_iter().rev().for_each(|cid| self.wants.requeue(cid));
    }

    fn ask(&mut self, number: usize, cid: Cid) {
        let Some(want) = self.wants.get_mut(&cid) else { return };
        let now = Instant::now();
        want.asked = Some((number, now));
        if want.probed.remove(number) {
            self.peers.get(number).probes -= 1;
        }
        self.peers.get(number).in_flight += 1;
        self.want(number, cid, WantKind::Block);
        self.probe(number, &cid, now);
    }

    /// Asks a few peers that have not yet had a block of the session whether they have this one.
    fn probe(&mut self, asked: usize, cid: &Cid, now: Instant) {
        let Some(want) = self.wants.get_mut(cid) else { return };
        let refused = want.refused.union(want.probed);
        let candidates = self.peers.iter().filter(|(number, peer)| {
            let is_unknown = !peer.is_proven && peer.connected().is_some();
            is_unknown && *number != asked && !refused.contains(*number) && peer.probes < MAX_PROBES
        });
        let probed: Vec<usize> = candidates.map(|(number, _)| number).take(PROBED_PEERS).collect();
        if probed.is_empty() {
            return;
        }
        want.probed_at = Some(now);
        probed.iter().for_each(|number| want.probed.insert(*number));
        for number in probed {
            self.peers.get(number).probes += 1;
            self.want(number, *cid, WantKind::Have);
        }
    }

    fn want(&mut self, number: usize, cid: Cid, kind: WantKind) {
        if let Some(peer) = self.peers.get(number).connected() {
            peer.wants.lock().want(cid, kind, self.id);
            self.changed.insert(number);
        }
    }

    fn cancel(&mut self, number: usize, cid: &Cid) {
        if let Some(peer) = self.peers.get(number).connected() {
            peer.wants.lock().cancel(cid, self.id);
            self.changed.insert(number);
        }
    }

    fn fail(&mut self, cid: &Cid) {
        let Some(want) = self.wants.get_mut(cid) else { return };
        let has_connected = self.peers.iter().any(|(_, peer)| peer.connected().is_some());
        let failure = Failure {
            peers: self.peers.len(),
            has_connected: has_connected || want.refused != PeerSet::default(),
            has_failed: want.has_failed,
        };
        if want.is_patient() {
            want.fail_impatient(cid, &failure);
            self.wants.suspend(*cid);
            return;
        }
        let Some(want) = self.wants.remove(cid) else { return };
        self.release(cid, &want, None);
        want.reply(cid, Err(&failure));
    }

    /// Cancels the requests for a block that is no longer wanted, at all peers but the one that sent it.
    fn release(&mut self, cid: &Cid, want: &Want, sender: Option<usize>) {
        self.network.context.metrics.client_wants.dec();
        let mut told = want.refused.union(want.timed_out).union(want.probed).union(want.holders);
        if let Some((asked, _)) = want.asked {
            self.peers.get(asked).in_flight -= 1;
            told.insert(asked);
        }
        for number in want.probed.iter() {
            self.peers.get(number).probes -= 1;
        }
        for number in told.iter().filter(|number| Some(*number) != sender) {
            self.cancel(number, cid);
        }
    }

    fn notify_changed(&mut self) {
        for number in std::mem::take(&mut self.changed).iter() {
            if let Some(peer) = self.peers.get(number).connected() {
                peer.wants_changed.notify_one();
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument per field of the attempt")]
    fn record(
        &mut self,
        number: usize,
        request: Request,
        cid: Option<Cid>,
        outcome: Outcome,
        bytes: usize,
        duration: Duration,
        detail: Option<String>,
    ) {
        self.network.context.metrics.attempts.with_label_values(&[outcome.as_str()]).inc();
        if let Some(trace) = &self.trace {
            let peer = self.peers.get(number).id;
            trace(&Attempt { peer, request, cid, outcome, bytes, duration, detail });
        }
    }

    fn close(&mut self) {
        for (_, peer) in self.peers.iter() {
            if let Some(peer) = peer.connected() {
                peer.wants.lock().detach(self.id);
                peer.wants_changed.notify_one();
            }
        }
        self.network.context.metrics.client_wants.sub(i64::try_from(self.wants.len()).unwrap_or(0));
    }
}

//! The wants of all sessions towards one peer, and the changes of them that the peer does not know yet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use ipfrs_core::{Block, Cid, Multihash};
use libp2p::PeerId;

use super::event::{SessionEvent, SessionId, SessionSender};
use super::received::{MessageMemory, Received};
use crate::wire::{Outgoing, WantKind};

/// Number of former wants that are remembered. A block for one of them is late, not unrequested.
const MAX_FORMER_WANTS: usize = 4096;
/// Number of entries of the queue that may be skipped before they are removed.
const MAX_SKIPPED_ENTRIES: usize = 1024;
/// Range of priorities. Peers send blocks of higher priority first.
const PRIORITIES: i32 = 1 << 30;

/// A want towards the peer.
#[derive(Debug)]
struct Want {
    kind: WantKind,
    sessions: Vec<SessionId>,
    state: WantState,
    /// Whether the sessions know that the peer has the block (first) or not (second), since the want was last sent.
    reported: [bool; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantState {
    /// The peer does not know the want yet.
    Queued,
    /// The peer has been asked.
    Sent,
    /// The peer responded `DONT_HAVE` or nothing in time. It may remember the want and send the block later.
    Refused,
}

/// Meaning of a received block for the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// At least one session waits for it.
    Wanted,
    /// It was requested, but no session waits for it any more.
    Late,
    /// It was never requested.
    Unrequested,
}

/// The wants of all sessions towards one peer.
pub(crate) struct WantBook {
    peer: PeerId,
    sessions: HashMap<SessionId, SessionSender>,
    wants: HashMap<Cid, Want>,
    /// Content IDs of the wants by hash: a peer may name a block by another content ID.
    by_hash: HashMap<Multihash, Vec<Cid>>,
    /// Wants to send, oldest first. Entries whose want is gone or already sent are skipped.
    queue: VecDeque<Cid>,
    cancels: HashSet<Cid>,
    former: FormerWants,
    next_priority: i32,
}

impl WantBook {
    pub(crate) fn new(peer: PeerId) -> Self {
        Self {
            peer,
            sessions: HashMap::new(),
            wants: HashMap::new(),
            by_hash: HashMap::new(),
            queue: VecDeque::new(),
            cancels: HashSet::new(),
            former: FormerWants::default(),
            next_priority: PRIORITIES,
        }
    }

    /// Adds a session, which receives the events of the peer from now on.
    pub(crate) fn attach(&mut self, id: SessionId, sender: SessionSender) {
        self.sessions.insert(id, sender);
    }

    /// Removes a session and its wants.
    pub(crate) fn detach(&mut self, id: SessionId) {
        self.sessions.remove(&id);
        let cids: Vec<Cid> =
            self.wants.iter().filter(|(_, want)| want.sessions.contains(&id)).map(|(cid, _)| *cid).collect();
        cids.iter().for_each(|cid| self.cancel(cid, id));
    }

    /// Returns whether a session uses the peer.
    pub(crate) fn is_used(&self) -> bool {
        !self.sessions.is_empty()
    }

    /// Returns the wanted content IDs.
    pub(crate) fn cids(&self) -> Vec<Cid> {
        self.wants.keys().copied().collect()
    }

    /// Returns the number of wants.
    pub(crate) fn len(&self) -> usize {
        self.wants.len()
    }

    /// Adds a want of a session. A want for the block replaces one for its presence.
    pub(crate) fn want(&mut self, cid: Cid, kind: WantKind, session: SessionId) {
        self.cancels.remove(&cid);
        let want = self.wants.entry(cid).or_insert_with(|| {
            self.queue.push_back(cid);
            self.by_hash.entry(*cid.hash()).or_default().push(cid);
            Want { kind, sessions: Vec::with_capacity(1), state: WantState::Queued, reported: [false; 2] }
        });
        if !want.sessions.contains(&session) {
            want.sessions.push(session);
        }
        let is_upgrade = kind > want.kind;
        want.kind = want.kind.max(kind);
        let is_repeated = want.state == WantState::Refused;
        if (is_upgrade || is_repeated) && want.state != WantState::Queued {
            want.state = WantState::Queued;
            self.queue.push_back(cid);
        }
        self.compact_queue();
    }

    /// Records that the peer has not responded to a want in time. The next call of [`Self::want`] sends it again.
    pub(crate) fn time_out(&mut self, cid: &Cid) {
        if let Some(want) = self.wants.get_mut(cid)
            && want.state == WantState::Sent
        {
            want.state = WantState::Refused;
        }
    }

    /// Removes entries of the queue that are skipped, once they are the larger part.
    fn compact_queue(&mut self) {
        if self.queue.len() <= 2 * self.wants.len() + MAX_SKIPPED_ENTRIES {
            return;
        }
        let mut kept = HashSet::new();
        let wants = &self.wants;
        let is_queued = |cid: &Cid| wants.get(cid).is_some_and(|want| want.state == WantState::Queued);
        self.queue.retain(|cid| is_queued(cid) && kept.insert(*cid));
    }

    fn remove(&mut self, cid: &Cid) -> Option<Want> {
        let want = self.wants.remove(cid)?;
        if let Some(cids) = self.by_hash.get_mut(cid.hash()) {
            cids.retain(|other| other != cid);
            if cids.is_empty() {
                self.by_hash.remove(cid.hash());
            }
        }
        Some(want)
    }

    /// Removes a want of a session. If no other session has it, the peer gets a cancel.
    pub(crate) fn cancel(&mut self, cid: &Cid, session: SessionId) {
        let Some(want) = self.wants.get_mut(cid) else { return };
        want.sessions.retain(|id| *id != session);
        if !want.sessions.is_empty() {
            return;
        }
        if want.state != WantState::Queued || want.kind == WantKind::Block {
            // A queued want for the block may have been a sent one for its presence.
            self.cancels.insert(*cid);
            self.former.insert(cid.hash());
        }
        self.remove(cid);
    }

    /// Takes up to `max` changes that the peer does not know yet.
    pub(crate) fn take_outgoing(&mut self, max: usize) -> Vec<(Cid, Outgoing)> {
        let cancels: Vec<Cid> = self.cancels.iter().take(max).copied().collect();
        for cid in &cancels {
            self.cancels.remove(cid);
        }
        let mut outgoing: Vec<(Cid, Outgoing)> = cancels.into_iter().map(|cid| (cid, Outgoing::Cancel)).collect();
        while outgoing.len() < max {
            let Some(cid) = self.queue.pop_front() else { break };
            let Some(want) = self.wants.get_mut(&cid).filter(|want| want.state == WantState::Queued) else { continue };
            want.state = WantState::Sent;
            want.reported = [false; 2];
            outgoing.push((cid, Outgoing::Want { kind: want.kind, priority: self.next_priority }));
            self.next_priority = if self.next_priority > 1 { self.next_priority - 1 } else { PRIORITIES };
        }
        outgoing
    }

    /// Puts back changes that could not be sent.
    pub(crate) fn requeue(&mut self, outgoing: &[(Cid, Outgoing)]) {
        for (cid, change) in outgoing {
            match (change, self.wants.get_mut(cid)) {
                (Outgoing::Want { .. }, Some(want)) if want.state == WantState::Sent => {
                    want.state = WantState::Queued;
                    self.queue.push_back(*cid);
                }
                (Outgoing::Cancel, None) => {
                    self.cancels.insert(*cid);
                }
                _ => {}
            }
        }
    }

    /// Delivers a block, whose bytes match its content ID, to the sessions that want it.
    pub(crate) fn deliver(&mut self, block: &Block, memory: &MessageMemory) -> Delivery {
        let Some((cid, want)) = self.remove_by_block(block.cid()) else {
            let is_late = self.former.contains(block.cid().hash());
            return if is_late { Delivery::Late } else { Delivery::Unrequested };
        };
        self.former.insert(cid.hash());
        for session in want.sessions.iter().filter_map(|id| self.sessions.get(id)) {
            let received = Received { block: Block::trusted(cid, block.data().clone()), memory: memory.clone() };
            session.send(SessionEvent::Block { peer: self.peer, received }).ok();
        }
        Delivery::Wanted
    }

    /// Removes the want that a block fulfils. The peer may name the block by another content ID with the same hash.
    fn remove_by_block(&mut self, cid: &Cid) -> Option<(Cid, Want)> {
        let cids = self.by_hash.get(cid.hash())?;
        let wanted = cids.iter().find(|wanted| *wanted == cid).or(cids.first()).copied()?;
        self.remove(&wanted).map(|want| (wanted, want))
    }

    /// Handles `HAVE` or `DONT_HAVE`. Returns whether a session had asked. A repeated one is ignored.
    pub(crate) fn presence(&mut self, cid: &Cid, has_block: bool) -> bool {
        let Some(want) = self.wants.get_mut(cid) else { return false };
        if std::mem::replace(&mut want.reported[usize::from(!has_block)], true) {
            return true;
        }
        for session in want.sessions.iter().filter_map(|id| self.sessions.get(id)) {
            session.send(SessionEvent::Presence { peer: self.peer, cid: *cid, has_block }).ok();
        }
        if !has_block {
            want.state = WantState::Refused;
        } else if want.kind == WantKind::Have {
            // The peer forgets the want when it sends `HAVE`.
            self.remove(cid);
            self.former.insert(cid.hash());
        }
        true
    }

    /// Tells every session that the peer sent a block that was never requested.
    pub(crate) fn invalid(&mut self, bytes: usize) {
        self.tell_all(|peer| SessionEvent::Invalid { peer, bytes });
    }

    /// Tells every session that the peer does not support Bitswap.
    pub(crate) fn unsupported(&mut self) {
        self.tell_all(|peer| SessionEvent::Unsupported { peer });
    }

    /// Forgets everything and tells every session that the peer is gone.
    pub(crate) fn disconnected(&mut self) {
        self.tell_all(|peer| SessionEvent::Disconnected { peer });
        self.wants.clear();
        self.by_hash.clear();
        self.queue.clear();
        self.cancels.clear();
        self.sessions.clear();
    }

    fn tell_all(&self, event: impl Fn(PeerId) -> SessionEvent) {
        for session in self.sessions.values() {
            session.send(event(self.peer)).ok();
        }
    }
}

/// Hashes of the last wants, in the order in which they ended.
#[derive(Default)]
struct FormerWants {
    hasher: RandomState,
    order: VecDeque<u64>,
    set: HashSet<u64>,
}

impl FormerWants {
    fn insert(&mut self, hash: &Multihash) {
        let key = self.hasher.hash_one(hash);
        if !self.set.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MAX_FORMER_WANTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }

    fn contains(&self, hash: &Multihash) -> bool {
        self.set.contains(&self.hasher.hash_one(hash))
    }
}

#[cfg(test)]
mod tests;

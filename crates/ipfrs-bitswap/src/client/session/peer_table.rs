//! The peers of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libp2p::{Multiaddr, PeerId};

use crate::client::window::Window;
use crate::peer::Peer;

/// Maximum number of peers of a session, the number of bits of a [`PeerSet`].
pub(super) const MAX_PEERS: usize = 64;
/// Maximum number of wants of all sessions towards one peer, below the 1,024 that peers accept.
const MAX_PEER_WANTS: usize = 960;
/// Use of the window, in thousandths, that is added to a peer that has not responded in time.
const UNRESPONSIVE: usize = 1_000_000;
/// Number of times that a session connects again to a peer that disconnects.
const RECONNECTS: u8 = 2;

/// A set of peers of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PeerSet(u64);

impl PeerSet {
    pub(super) fn insert(&mut self, peer: usize) {
        self.0 |= 1 << peer;
    }

    /// Removes a peer and returns whether it was in the set.
    pub(super) fn remove(&mut self, peer: usize) -> bool {
        let was_in = self.contains(peer);
        self.0 &= !(1 << peer);
        was_in
    }

    pub(super) fn contains(self, peer: usize) -> bool {
        self.0 & 1 << peer != 0
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_PEERS).filter(move |peer| self.contains(*peer))
    }
}

/// Connection of a session to a peer.
pub(super) enum Link {
    Dialing(Instant),
    Connected(Arc<Peer>),
    /// The session does not use the peer (any more).
    Gone(Absence),
}

/// The reason why a session does not use a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// It may be used if it is added again.
    Temporary,
    /// It has no address that this node can dial. Its number may be used for another peer.
    NoAddress,
    /// It sends wrong bytes or does not support Bitswap.
    Permanent,
}

/// A peer of a session.
pub(super) struct SessionPeer {
    pub id: PeerId,
    pub addresses: Vec<Multiaddr>,
    pub link: Link,
    pub window: Window,
    /// Number of blocks that are requested from the peer.
    pub in_flight: usize,
    /// Number of unanswered questions whether it has a block.
    pub probes: usize,
    /// Whether it had a block of the session.
    pub is_proven: bool,
    /// Number of `DONT_HAVE` since the last block or `HAVE`.
    pub misses: usize,
    /// Number of timeouts since the last response.
    pub timeouts: usize,
    pub last_timeout_at: Option<Instant>,
    /// Time of the last wanted block.
    pub last_block_at: Option<Instant>,
    pub reconnects: u8,
}

impl SessionPeer {
    fn new(id: PeerId, addresses: Vec<Multiaddr>) -> Self {
        Self {
            id,
            addresses,
            link: Link::Gone(Absence::Temporary),
            window: Window::default(),
            in_flight: 0,
            probes: 0,
            is_proven: false,
            misses: 0,
            timeouts: 0,
            last_timeout_at: None,
            last_block_at: None,
            reconnects: RECONNECTS,
        }
    }

    pub(super) fn connected(&self) -> Option<&Arc<Peer>> {
        match &self.link {
            Link::Connected(peer) => Some(peer),
            _ => None,
        }
    }

    /// Returns the time since which a request of `since` has been overdue to be responded to: a peer that sends other
    /// blocks is slow and not silent.
    pub(super) fn silent_since(&self, since: Instant) -> Instant {
        self.last_block_at.map_or(since, |at| at.max(since))
    }

    /// Records that the peer responded.
    pub(super) fn on_response(&mut self) {
        self.is_proven = true;
        (self.misses, self.timeouts, self.last_timeout_at) = (0, 0, None);
    }

    /// Records that requests were not responded to in time. They count once in `period`.
    pub(super) fn on_timeout(&mut self, period: Duration) {
        if self.last_timeout_at.is_none_or(|at| at.elapsed() >= period) {
            self.last_timeout_at = Some(Instant::now());
            self.timeouts += 1;
            self.window.on_timeout();
        }
    }

    fn has_capacity(&self) -> bool {
        let has_wants = |peer: &Arc<Peer>| peer.wants.lock().len() < MAX_PEER_WANTS;
        self.in_flight < self.window.size() && self.connected().is_some_and(has_wants)
    }

    /// Returns how much of the window is used, in thousandths.
    fn usage(&self) -> usize {
        (self.in_flight + 1) * 1000 / self.window.size()
    }
}

/// Result of the choice of a peer for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The block is requested from this peer.
    Peer(usize),
    /// Peers that may have the block are busy or not connected yet.
    Later,
    /// No peer is left.
    None,
}

/// The peers of a session.
#[derive(Default)]
pub(super) struct PeerTable {
    list: Vec<SessionPeer>,
    index: HashMap<PeerId, usize>,
}

impl PeerTable {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn index(&self, id: &PeerId) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// Adds a peer and returns its number, which may be that of an earlier one. A known peer that the session no longer
    /// uses is used again, with the new addresses. Returns `None` if it is in use, excluded, or there are too many.
    pub(super) fn add(&mut self, id: PeerId, addresses: Vec<Multiaddr>) -> Option<usize> {
        let known = self.index(&id);
        let number = match known {
            Some(number) if matches!(self.list[number].link, Link::Gone(Absence::Permanent)) => return None,
            Some(number) if matches!(self.list[number].link, Link::Gone(_)) => number,
            Some(_) => return None,
            None if self.list.len() < MAX_PEERS => {
                self.list.push(SessionPeer::new(id, Vec::new()));
                self.list.len() - 1
            }
            None => self.list.iter().position(|peer| matches!(peer.link, Link::Gone(Absence::NoAddress)))?,
        };
        self.index.remove(&self.list[number].id);
        self.index.insert(id, number);
        self.list[number] = SessionPeer::new(id, addresses);
        Some(number)
    }

    /// Returns the peers that are connected.
    pub(super) fn connected(&self) -> PeerSet {
        let mut set = PeerSet::default();
        self.iter().filter(|(_, peer)| peer.connected().is_some()).for_each(|(number, _)| set.insert(number));
        set
    }

    /// Returns whether the session uses another peer.
    pub(super) fn has_other(&self, number: usize) -> bool {
        self.iter().any(|(other, peer)| other != number && !matches!(peer.link, Link::Gone(_)))
    }

    pub(super) fn get(&mut self, peer: usize) -> &mut SessionPeer {
        &mut self.list[peer]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &SessionPeer)> {
        self.list.iter().enumerate()
    }

    /// Returns whether a block can be requested from any peer now.
    pub(super) fn has_capacity(&self) -> bool {
        self.list.iter().any(SessionPeer::has_capacity)
    }

    /// Returns whether every peer is gone.
    pub(super) fn is_exhausted(&self) -> bool {
        self.list.iter().all(|peer| matches!(peer.link, Link::Gone(_)))
    }

    /// Chooses the peer from which a block is requested: one that has it, else one that had others, else any; among
    /// equal ones, the one that uses least of its window.
    pub(super) fn choose(&self, holders: PeerSet, refused: PeerSet) -> Choice {
        let mut best: Option<(usize, (usize, usize, Duration))> = None;
        let mut is_possible = false;
        for (number, peer) in self.iter().filter(|(number, _)| !refused.contains(*number)) {
            is_possible |= !matches!(peer.link, Link::Gone(_));
            if !peer.has_capacity() {
                continue;
            }
            let rank = if holders.contains(number) { 0 } else { usize::from(!peer.is_proven) + 1 };
            // A peer that does not respond is used last among those of its rank.
            let usage = if peer.timeouts > 0 { peer.usage() + UNRESPONSIVE } else { peer.usage() };
            let key = (rank, usage, peer.window.latency());
            if best.is_none_or(|(_, other)| key < other) {
                best = Some((number, key));
            }
        }
        match best {
            // A proven peer that is busy is better than one that is not known to have anything.
            Some((number, (2, ..))) if self.has_busy_holder(holders, refused) && self.list[number].misses > 0 => {
                Choice::Later
            }
            Some((number, _)) => Choice::Peer(number),
            None if is_possible => Choice::Later,
            None => Choice::None,
        }
    }

    fn has_busy_holder(&self, holders: PeerSet, refused: PeerSet) -> bool {
        let is_holder = |(number, peer): (usize, &SessionPeer)| {
            let may_have = peer.is_proven || holders.contains(number);
            may_have && !refused.contains(number) && peer.connected().is_some()
        };
        self.iter().any(is_holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BitswapConfig;

    fn table(count: usize) -> PeerTable {
        let mut table = PeerTable::default();
        for number in 0..count {
            let id = PeerId::random();
            assert_eq!(table.add(id, Vec::new()), Some(number));
            table.get(number).link = Link::Connected(Arc::new(Peer::new(id, &BitswapConfig::default())));
        }
        table
    }

    fn set(peers: &[usize]) -> PeerSet {
        let mut set = PeerSet::default();
        peers.iter().for_each(|peer| set.insert(*peer));
        set
    }

    #[test]
    fn holder_is_chosen_before_proven_before_unknown() {
        let mut table = table(3);
        table.get(1).is_proven = true;
        table.get(1).in_flight = 5;
        assert_eq!(table.choose(set(&[]), set(&[])), Choice::Peer(1));
        assert_eq!(table.choose(set(&[2]), set(&[])), Choice::Peer(2));
        assert_eq!(table.choose(set(&[]), set(&[1])), Choice::Peer(0));
        assert_eq!(table.choose(set(&[]), set(&[0, 1, 2])), Choice::None);
    }

    #[test]
    fn load_is_shared_by_use_of_the_window() {
        let mut table = table(2);
        (0..2).for_each(|peer| table.get(peer).is_proven = true);
        for _ in 0..10 {
            let Choice::Peer(peer) = table.choose(set(&[]), set(&[])) else { panic!("no peer") };
            table.get(peer).in_flight += 1;
        }
        assert_eq!((table.get(0).in_flight, table.get(1).in_flight), (5, 5));
    }

    #[test]
    fn busy_and_dialing_peers_are_waited_for() {
        let mut table = table(2);
        table.get(0).in_flight = table.get(0).window.size();
        table.get(1).link = Link::Dialing(Instant::now());
        assert_eq!(table.choose(set(&[]), set(&[])), Choice::Later);
        table.get(1).link = Link::Gone(Absence::Temporary);
        assert_eq!(table.choose(set(&[]), set(&[0])), Choice::None);
    }

    #[test]
    fn at_most_64_peers_are_used() {
        let mut table = table(MAX_PEERS);
        assert_eq!(table.add(PeerId::random(), Vec::new()), None);
        let known = table.get(3).id;
        assert_eq!(table.add(known, Vec::new()), None);
        table.get(5).link = Link::Gone(Absence::NoAddress);
        let (old, new) = (table.get(5).id, PeerId::random());
        assert_eq!((table.add(new, Vec::new()), table.index(&new), table.index(&old)), (Some(5), Some(5), None));
    }

    #[test]
    fn peer_that_is_gone_is_used_again_unless_it_was_invalid() {
        let mut table = table(2);
        let (gone, invalid) = (table.get(0).id, table.get(1).id);
        table.get(0).link = Link::Gone(Absence::Temporary);
        table.get(1).link = Link::Gone(Absence::Permanent);
        let address: Multiaddr = "/ip4/192.0.2.1/tcp/1".parse().unwrap();
        assert_eq!(table.add(gone, vec![address.clone()]), Some(0));
        assert_eq!(table.get(0).addresses, [address]);
        assert_eq!(table.add(invalid, Vec::new()), None);
    }
}

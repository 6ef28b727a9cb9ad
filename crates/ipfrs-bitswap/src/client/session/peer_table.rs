//! The peers of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use libp2p::{Multiaddr, PeerId};

use crate::client::window::Window;
use crate::peer::Peer;

/// Maximum number of peers of a session, the number of bits of a [`PeerSet`].
pub(super) const MAX_PEERS: usize = 64;
/// Maximum number of wants of all sessions towards one peer, below the 1,024 that peers accept.
const MAX_PEER_WANTS: usize = 960;
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

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_PEERS).filter(move |peer| self.contains(*peer))
    }
}

/// Connection of a session to a peer.
pub(super) enum Link {
    Dialing(Instant),
    Connected(Arc<Peer>),
    /// The session does not use the peer (any more).
    Gone,
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
    pub reconnects: u8,
}

impl SessionPeer {
    fn new(id: PeerId, addresses: Vec<Multiaddr>) -> Self {
        Self {
            id,
            addresses,
            link: Link::Gone,
            window: Window::default(),
            in_flight: 0,
            probes: 0,
            is_proven: false,
            misses: 0,
            timeouts: 0,
            reconnects: RECONNECTS,
        }
    }

    pub(super) fn connected(&self) -> Option<&Arc<Peer>> {
        match &self.link {
            Link::Connected(peer) => Some(peer),
            _ => None,
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

    /// Adds a peer. Returns `None` if it is known or there are too many.
    pub(super) fn add(&mut self, id: PeerId, addresses: Vec<Multiaddr>) -> Option<usize> {
        if self.list.len() >= MAX_PEERS || self.index.contains_key(&id) {
            return None;
        }
        let number = self.list.len();
        self.index.insert(id, number);
        self.list.push(SessionPeer::new(id, addresses));
        Some(number)
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
        self.list.iter().all(|peer| matches!(peer.link, Link::Gone))
    }

    /// Chooses the peer from which a block is requested: one that has it, else one that had others, else any; among
    /// equal ones, the one that uses least of its window.
    pub(super) fn choose(&self, holders: PeerSet, refused: PeerSet) -> Choice {
        let mut best: Option<(usize, (usize, usize, std::time::Duration))> = None;
        let mut is_possible = false;
        for (number, peer) in self.iter().filter(|(number, _)| !refused.contains(*number)) {
            is_possible |= !matches!(peer.link, Link::Gone);
            if !peer.has_capacity() {
                continue;
            }
            let rank = if holders.contains(number) { 0 } else { usize::from(!peer.is_proven) + 1 };
            let key = (rank, peer.usage(), peer.window.latency());
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
        table.get(1).link = Link::Gone;
        assert_eq!(table.choose(set(&[]), set(&[0])), Choice::None);
    }

    #[test]
    fn at_most_64_peers_are_used() {
        let mut table = table(MAX_PEERS);
        assert_eq!(table.add(PeerId::random(), Vec::new()), None);
        let known = table.get(3).id;
        assert_eq!(table.add(known, Vec::new()), None);
    }
}

//! Wants of all peers for blocks that are missing here, by hash.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use ipfrs_core::{Cid, Multihash};
use libp2p::PeerId;
use parking_lot::Mutex;

/// Maximum number of waiting wants of all peers. Further ones are refused and not remembered.
const MAX_WAITING: usize = 65_536;

/// Wants for missing blocks.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    wants: Mutex<HashMap<Multihash, HashSet<(PeerId, Cid)>>>,
    /// Number of wants. It lets most calls of [`Self::take`] return without the lock.
    count: AtomicUsize,
}

impl Waiting {
    /// Adds a want. Returns false if there are too many.
    pub(crate) fn insert(&self, peer: PeerId, cid: &Cid) -> bool {
        let mut wants = self.wants.lock();
        if self.count.load(Ordering::SeqCst) >= MAX_WAITING {
            return false;
        }
        if wants.entry(*cid.hash()).or_default().insert((peer, *cid)) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        true
    }

    /// Removes a want, if it is there.
    pub(crate) fn remove(&self, peer: PeerId, cid: &Cid) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut wants = self.wants.lock();
        let Some(set) = wants.get_mut(cid.hash()) else { return };
        if set.remove(&(peer, *cid)) {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        if set.is_empty() {
            wants.remove(cid.hash());
        }
    }

    /// Takes the wants for a block that is now stored.
    pub(crate) fn take(&self, cid: &Cid) -> HashSet<(PeerId, Cid)> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return HashSet::new();
        }
        let taken = self.wants.lock().remove(cid.hash()).unwrap_or_default();
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::codec;
    use ipfrs_core::hash::sha2_256;

    use super::*;

    #[test]
    fn wants_for_one_hash_are_taken_once() {
        let waiting = Waiting::default();
        let (one, two) = (PeerId::random(), PeerId::random());
        let cid = Cid::new_v1(codec::RAW, sha2_256(b"a"));
        for peer in [one, one, two] {
            assert!(waiting.insert(peer, &cid));
        }
        waiting.remove(one, &cid);
        let other = Cid::new_v1(codec::DAG_PB, *cid.hash());
        assert_eq!(waiting.take(&other), HashSet::from([(two, cid)]));
        assert!(waiting.take(&cid).is_empty());
        assert_eq!(waiting.count.load(Ordering::SeqCst), 0);
    }
}

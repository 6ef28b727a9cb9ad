//! Wants of all peers for blocks that are missing here, by hash.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipfrs_core::{Cid, Multihash};
use libp2p::PeerId;
use parking_lot::Mutex;

/// Maximum number of waiting wants of all peers. Further ones are refused and not remembered.
const MAX_WAITING: usize = 65_536;

/// Wants for missing blocks.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    wants: Mutex<HashMap<Multihash, Vec<(PeerId, Cid)>>>,
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
        let list = wants.entry(*cid.hash()).or_default();
        if !list.contains(&(peer, *cid)) {
            list.push((peer, *cid));
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
        let Some(list) = wants.get_mut(cid.hash()) else { return };
        let before = list.len();
        list.retain(|want| *want != (peer, *cid));
        self.count.fetch_sub(before - list.len(), Ordering::SeqCst);
        if list.is_empty() {
            wants.remove(cid.hash());
        }
    }

    /// Takes the wants for a block that is now stored.
    pub(crate) fn take(&self, cid: &Cid) -> Vec<(PeerId, Cid)> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let taken = self.wants.lock().remove(cid.hash()).unwrap_or_default();
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }
}

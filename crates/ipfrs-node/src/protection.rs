//! What keeps blocks from a collection that runs beside the one who needs them.
//!
//! Whoever writes blocks, or looks whether they are there, in order to pin them holds a [`Lease`] from before the first
//! block until the pin is durable, and *touches* each block before it puts it or looks for it. A deletion spares what was
//! touched while a lease is alive that was alive then. There is no lock over all of this, and nobody waits for anybody
//! longer than for one batch of deletions.
//!
//! **Why nothing is lost.** Say that an operation P pins a DAG, and a collection C could delete one of its blocks, X. C
//! takes its own lease, then reads the pins, then marks, then deletes.
//!
//! 1. P's pin was durable before C read that page of the pins: C marks X, because it walks the DAG of each pin, of which
//!    no block is missing by this very argument.
//! 2. Else P's lease was alive when C took its own. If P touched X after that, C's lease keeps the touch. If before, then
//!    P's lease, alive at both times, has kept the touch until C's lease was taken, which holds on to *everything* that
//!    is kept then ([`Protection::lease_of_all`]). Either way the touch is there until C ends. So X is deleted only if the
//!    engine asked about X before the touch, and then P learns of it:
//!    * P puts X: the engine decides about puts and deletions one after the other, and the put was sent after the touch,
//!      hence after the question: X is gone by then, and is written again ([`ipfrs_store::BlockStore::delete_unless`]).
//!    * P looks for X: a batch in which X goes might have been decided and not yet be visible. P waits after the touch
//!      until no batch is under way that began before it ([`Protection::settled`]), and then finds X missing.
//!
//! **What is cancelled.** A deletion that was sent happens although the collection that sent it is gone: the question that
//! the engine asks holds C's lease, and a task of its own holds up those who look for blocks until it is over. A pin that
//! was sent is made although its client is gone: it holds P's lease until it is durable.
//!
//! **Memory.** Touches are 64-bit fingerprints; two blocks with the same one keep a block too many. They lie in epochs.
//! A new one begins when the newest is full or old, and with each collection; a lease belongs to the newest of its time,
//! and the oldest is dropped as soon as it has no lease. So leases that overlap without an end keep only what was touched
//! in about the time of the oldest of them, in memory and from collections. Above [`MAX_TOUCHES`] the touches are
//! forgotten, and everything is spared until the leases of that time have ended; a collection says so and fails.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Multihash, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

use crate::fingerprint::{ByItself, Fingerprints};

/// Touches of one epoch: what a hash table of 2^17 places takes without growing, at some 10 bytes each.
const EPOCH_TOUCHES: usize = (1 << 17) / 8 * 7;

/// A lease that begins when the newest epoch is older begins another one.
const EPOCH_AGE: Duration = Duration::from_secs(60);

/// With so many epochs, only a full one is a reason for another: each is looked at for each block that is to be deleted.
const MANY_EPOCHS: usize = 64;

/// Touches of all epochs, about 160 MB.
const MAX_TOUCHES: usize = 16 * 1024 * 1024;

/// Which blocks must not be deleted although no pin holds them yet. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protection {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    fingerprints: Fingerprints,
    epochs: Mutex<Epochs>,
    deletions: Arc<RwLock<()>>,
}

#[derive(Debug, Default)]
struct Epochs {
    /// Oldest first; empty when no lease is alive.
    alive: VecDeque<Epoch>,
    /// Number of the oldest.
    first: u64,
    /// Touches of all.
    touches: usize,
}

#[derive(Debug)]
struct Epoch {
    begun: Instant,
    leases: usize,
    touched: Touched,
}

#[derive(Debug)]
enum Touched {
    These(HashSet<u64, ByItself>),
    /// More than could be remembered.
    Everything,
}

/// Keeps alive what is touched as long as it exists, or a clone of it.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    _held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    shared: Arc<Shared>,
    epoch: u64,
}

impl Protection {
    /// A lease: what is touched from now on is spared until it is dropped.
    pub(crate) fn lease(&self) -> Lease {
        let mut epochs = self.shared.epochs.lock();
        match epochs.alive.back() {
            Some(Epoch { touched: Touched::These(_), begun, .. }) if begun.elapsed() < EPOCH_AGE => {}
            Some(Epoch { touched: Touched::These(_), .. }) => epochs.begin_if_useful(),
            // One that forgot its touches is not made to live longer.
            Some(Epoch { touched: Touched::Everything, .. }) | None => epochs.begin(),
        }
        let newest = epochs.first + epochs.alive.len() as u64 - 1;
        self.join(&mut epochs, newest)
    }

    /// A lease that also keeps what others keep at this moment: for those who delete.
    pub(crate) fn lease_of_all(&self) -> Lease {
        let mut epochs = self.shared.epochs.lock();
        if epochs.alive.is_empty() {
            epochs.begin();
        }
        let oldest = epochs.first;
        let lease = self.join(&mut epochs, oldest);
        // What is touched from now on can be told from what the next collection need not keep.
        epochs.begin_if_useful();
        lease
    }

    fn join(&self, epochs: &mut Epochs, number: u64) -> Lease {
        if let Some(epoch) = epochs.alive.get_mut((number - epochs.first) as usize) {
            epoch.leases += 1;
        }
        Lease { _held: Arc::new(Held { shared: Arc::clone(&self.shared), epoch: number }) }
    }

    /// To be called before the blocks are put or looked for. Costs next to nothing while nobody has a lease.
    pub(crate) fn touch<'a>(&self, hashes: impl Iterator<Item = &'a Multihash>) {
        if self.shared.epochs.lock().alive.is_empty() {
            return;
        }
        let touches: Vec<_> = hashes.map(|hash| self.shared.fingerprints.short(hash)).collect();
        let mut epochs = self.shared.epochs.lock();
        for touch in touches {
            epochs.touch(touch, MAX_TOUCHES);
        }
    }

    /// Whether a block must be kept.
    pub(crate) fn is_touched(&self, hash: &Multihash) -> bool {
        let touch = self.shared.fingerprints.short(hash);
        self.shared.epochs.lock().alive.iter().any(|epoch| match &epoch.touched {
            Touched::These(touches) => touches.contains(&touch),
            Touched::Everything => true,
        })
    }

    /// Waits until every deletion is over that began before this call.
    pub(crate) async fn settled(&self) {
        drop(self.shared.deletions.read().await);
    }

    /// To be held while a batch of deletions is under way, whatever becomes of the one who asked for it.
    pub(crate) async fn deleting(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.shared.deletions).write_owned().await
    }

    /// Whether it is known what must be kept.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when so much was written that it was forgotten what.
    pub(crate) fn check(&self) -> Result<()> {
        let epochs = self.shared.epochs.lock();
        if epochs.alive.iter().any(|epoch| matches!(epoch.touched, Touched::Everything)) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "more than {MAX_TOUCHES} blocks were written while imports are under way, too many to tell which of \
                     them are needed: collect again when those imports have ended"
                ),
            ));
        }
        Ok(())
    }
}

impl Epochs {
    fn begin(&mut self) {
        self.alive.push_back(Epoch { begun: Instant::now(), leases: 0, touched: Touched::These(HashSet::default()) });
    }

    /// Begins an epoch, unless the newest has no touches or there are many.
    fn begin_if_useful(&mut self) {
        let is_blank = |epoch: &Epoch| matches!(&epoch.touched, Touched::These(touches) if touches.is_empty());
        if self.alive.len() < MANY_EPOCHS && !self.alive.back().is_some_and(is_blank) {
            self.begin();
        }
    }

    fn touch(&mut self, touch: u64, most: usize) {
        let Some(Epoch { touched: Touched::These(touches), .. }) = self.alive.back_mut() else { return };
        if !touches.insert(touch) {
            return;
        }
        let is_full = touches.len() >= EPOCH_TOUCHES;
        self.touches += 1;
        if self.touches > most {
            self.alive.iter_mut().for_each(|epoch| epoch.touched = Touched::Everything);
            self.touches = 0;
        } else if is_full {
            self.begin();
        }
    }

    /// Drops what no lease keeps.
    fn drop_unused(&mut self) {
        while self.alive.front().is_some_and(|epoch| epoch.leases == 0) {
            if let Some(Epoch { touched: Touched::These(touches), .. }) = self.alive.pop_front() {
                self.touches -= touches.len();
            }
            self.first += 1;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut epochs = self.shared.epochs.lock();
        let index = (self.epoch - epochs.first) as usize;
        if let Some(epoch) = epochs.alive.get_mut(index) {
            epoch.leases -= 1;
        }
        epochs.drop_unused();
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::sha2_256;

    use super::*;

    fn touch(protection: &Protection, what: &str) -> Multihash {
        let hash = sha2_256(what.as_bytes());
        protection.touch([&hash].into_iter());
        hash
    }

    #[test]
    fn what_is_touched_is_kept_as_long_as_a_lease_of_its_time() {
        let protection = Protection::default();
        let before = touch(&protection, "before any lease");
        let first = protection.lease();
        let a = touch(&protection, "a");
        let second = protection.lease();
        drop(first);
        assert!(protection.is_touched(&a) && !protection.is_touched(&before));
        drop(second);
        assert!(!protection.is_touched(&a));
        assert!(protection.shared.epochs.lock().alive.is_empty());
    }

    #[test]
    fn a_collection_keeps_what_was_kept_when_it_began() {
        let protection = Protection::default();
        let import = protection.lease();
        let early = touch(&protection, "early");
        protection.shared.epochs.lock().begin();
        let later = protection.lease();
        let collection = protection.lease_of_all();
        drop((import, later));
        assert!(protection.is_touched(&early), "its import may have pinned it after the pins were read");
        drop(collection);
        assert!(!protection.is_touched(&early));
    }

    #[test]
    fn leases_that_overlap_without_an_end_do_not_keep_what_was_touched_long_before() {
        let protection = Protection::default();
        let mut import = protection.lease();
        let touched = touch(&protection, "touched");
        drop(protection.lease_of_all());
        for _ in 0..2 {
            // The next one begins before the one before ends.
            import = protection.lease();
            let collection = protection.lease_of_all();
            drop(collection);
        }
        assert!(!protection.is_touched(&touched));
        drop(import);
    }

    #[test]
    fn leases_that_overlap_without_an_end_do_not_fill_the_memory() {
        let protection = Protection::default();
        let mut lease = protection.lease();
        for round in 0..8 {
            for n in 0..EPOCH_TOUCHES as u64 {
                protection.shared.epochs.lock().touch(round << 32 | n, MAX_TOUCHES);
            }
            lease = protection.lease();
        }
        let epochs = protection.shared.epochs.lock();
        assert!(epochs.alive.len() <= 2 && epochs.touches <= EPOCH_TOUCHES, "{} touches", epochs.touches);
        drop(epochs);
        drop(lease);
        assert_eq!(protection.shared.epochs.lock().touches, 0);
    }

    #[test]
    fn too_many_touches_keep_everything_until_their_leases_end() {
        let protection = Protection::default();
        let long = protection.lease();
        for n in 0..=100 {
            protection.shared.epochs.lock().touch(n, 100);
        }
        let other = sha2_256(b"other");
        assert!(protection.check().is_err() && protection.is_touched(&other));
        let short = protection.lease();
        let touched = touch(&protection, "touched");
        drop(long);
        protection.check().unwrap();
        assert!(protection.is_touched(&touched) && !protection.is_touched(&other));
        drop(short);
    }
}

//! Protection of blocks that are about to be pinned from a concurrent garbage collection (gc).
//!
//! A task that writes blocks or looks them up in order to pin them holds a [`Lease`] from before the first block
//! until the pin is durable. It *touches* each block before it puts the block or looks it up. A deletion spares a
//! block if a lease that was alive when the block was touched is still alive. No lock covers the whole procedure, and
//! no task waits longer than one batch of deletions takes.
//!
//! **Why no block is lost.** Suppose that an operation P pins a DAG, and a gc run C could delete one of its blocks,
//! X. C takes its own lease, reads the pins, marks, and then deletes.
//!
//! 1. P's pin was durable before C read that page of the pins. Then C marks X, because it walks the DAG of each pin,
//!    and by this argument no block of the DAG is missing.
//! 2. Otherwise, P's lease was alive when C took its own. If P touched X after that, C's lease keeps the touch. If P
//!    touched X before, P's lease, alive at both times, has kept the touch until C took its lease, which keeps *all*
//!    touches that exist at that time ([`Protection::lease_of_all`]). In both cases the touch exists until C ends. So
//!    X is deleted only if the engine checked for touches of X before P touched it, and then P notices:
//!    * P puts X: the engine processes puts and deletions one after the other. The put was sent after the touch,
//!      hence after the check. X is deleted by then and is written again
//!      ([`ipfrs_store::BlockStore::delete_unless`]).
//!    * P looks up X: the engine might have decided on a batch that deletes X without the effect being visible yet.
//!      After the touch, P waits until all batches that began before it have completed ([`Protection::settled`]), and
//!      then finds that X is missing.
//!
//! **Cancellation.** A deletion that was sent is carried out even if its gc run is cancelled: the check that the
//! engine calls holds C's lease, and a separate task blocks lookups until the deletion has completed. A pin that was
//! sent is created even if its client disconnects: P's lease is held until the pin is durable.
//!
//! **Memory.** Touches are 64-bit fingerprints; a collision keeps one block too many. Touches are grouped in epochs.
//! A new epoch begins when the newest one is full or old, and with each gc run. A lease belongs to the newest epoch
//! at its start (that of a gc run to the oldest), and the oldest epoch is dropped as soon as it has no lease. An
//! endless chain of overlapping leases therefore keeps only the touches since about the start of its oldest lease,
//! both in memory and from gc. An import, which may last as long as its client likes, gives up the touches of others
//! when a gc run begins ([`RenewedLease`](super::RenewedLease)). Above [`MAX_TOUCHES`], the touches are dropped and
//! every block is spared until the leases of that time have ended; a gc run reports this and fails.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Multihash, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

use super::renewed::RenewedLeases;
use crate::fingerprint::{ByItself, Fingerprints};

/// Number of touches in one epoch: the capacity of a hash table with 2^17 buckets, at about 10 bytes each.
const EPOCH_TOUCHES: usize = (1 << 17) / 8 * 7;

/// Age of the newest epoch above which a new lease begins another one.
const EPOCH_AGE: Duration = Duration::from_secs(60);

/// Number of epochs from which only a full epoch starts another one. Every epoch is searched for each block that gc
/// wants to delete.
const MANY_EPOCHS: usize = 64;

/// Maximum number of touches in all epochs, about 160 MB.
const MAX_TOUCHES: usize = 16 * 1024 * 1024;

/// Set of blocks that must not be deleted although no pin covers them yet. Clones share the set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Protection {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    fingerprints: Fingerprints,
    epochs: Mutex<Epochs>,
    deletions: Arc<RwLock<()>>,
    renewed: RenewedLeases,
}

#[derive(Debug, Default)]
struct Epochs {
    /// Epochs with live leases, oldest first; empty if there are no leases.
    alive: VecDeque<Epoch>,
    /// Number of the oldest epoch.
    first: u64,
    /// Total number of touches.
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
    /// All blocks, because there were too many touches to record.
    Everything,
}

/// Guard that keeps touches alive until it and its clones are dropped.
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
    /// Returns a lease: blocks touched from now on are spared until it is dropped.
    pub(crate) fn lease(&self) -> Lease {
        let mut epochs = self.shared.epochs.lock();
        match epochs.alive.back() {
            Some(Epoch { touched: Touched::These(_), begun, .. }) if begun.elapsed() < EPOCH_AGE => {}
            Some(Epoch { touched: Touched::These(_), .. }) => epochs.begin_if_useful(),
            // An epoch that dropped its touches must not get further leases, which would extend its life.
            Some(Epoch { touched: Touched::Everything, .. }) | None => epochs.begin(),
        }
        let newest = epochs.first + epochs.alive.len() as u64 - 1;
        self.join(&mut epochs, newest)
    }

    /// Returns a lease that also keeps all touches that other leases keep now, for tasks that delete blocks.
    pub(crate) fn lease_of_all(&self) -> Lease {
        let mut epochs = self.shared.epochs.lock();
        if epochs.alive.is_empty() {
            epochs.begin();
        }
        let oldest = epochs.first;
        let lease = self.join(&mut epochs, oldest);
        // A new epoch separates later touches from those that the next gc run need not keep.
        epochs.begin_if_useful();
        lease
    }

    /// Begins an epoch, so that the next lease does not keep earlier touches.
    pub(super) fn begin_epoch(&self) {
        self.shared.epochs.lock().begin_if_useful();
    }

    pub(super) fn renewed(&self) -> &RenewedLeases {
        &self.shared.renewed
    }

    fn join(&self, epochs: &mut Epochs, number: u64) -> Lease {
        if let Some(epoch) = epochs.alive.get_mut((number - epochs.first) as usize) {
            epoch.leases += 1;
        }
        Lease { _held: Arc::new(Held { shared: Arc::clone(&self.shared), epoch: number }) }
    }

    /// Protects blocks under the current leases. Callers must touch blocks before they put or look them up. The call
    /// costs almost nothing while there are no leases.
    pub(crate) fn touch<'a>(&self, hashes: impl Iterator<Item = &'a Multihash>) {
        if self.shared.epochs.lock().alive.is_empty() {
            return;
        }
        let touches: Vec<_> = hashes.map(|hash| self.fingerprint(hash)).collect();
        self.touch_again(&touches);
    }

    /// Touches blocks by their fingerprints.
    pub(crate) fn touch_again(&self, fingerprints: &[u64]) {
        let mut epochs = self.shared.epochs.lock();
        for touch in fingerprints {
            epochs.touch(*touch, MAX_TOUCHES);
        }
    }

    pub(crate) fn fingerprint(&self, hash: &Multihash) -> u64 {
        self.shared.fingerprints.short(hash)
    }

    /// Returns whether a block must be kept.
    pub(crate) fn is_touched(&self, hash: &Multihash) -> bool {
        let touch = self.fingerprint(hash);
        self.shared.epochs.lock().alive.iter().any(|epoch| match &epoch.touched {
            Touched::These(touches) => touches.contains(&touch),
            Touched::Everything => true,
        })
    }

    /// Waits until every deletion that began before this call has completed.
    pub(crate) async fn settled(&self) {
        drop(self.shared.deletions.read().await);
    }

    /// Returns a guard to hold during a batch of deletions, even if the task that requested it is cancelled.
    pub(crate) async fn deleting(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.shared.deletions).write_owned().await
    }

    /// Checks that no touches were dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if more blocks were written than can be recorded.
    pub(crate) fn check(&self) -> Result<()> {
        let epochs = self.shared.epochs.lock();
        if epochs.alive.iter().any(|epoch| matches!(epoch.touched, Touched::Everything)) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "running imports have written more than {MAX_TOUCHES} blocks, too many to tell which of \
                     them are needed: run gc again when those imports have ended"
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

    /// Begins an epoch, unless the newest one has no touches or there are many epochs.
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

    /// Drops the oldest epochs that have no leases.
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
    fn touched_block_is_kept_while_a_lease_is_alive() {
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
    fn lease_of_all_keeps_earlier_touches() {
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
    fn overlapping_leases_release_old_touches() {
        let protection = Protection::default();
        let mut import = protection.lease();
        let touched = touch(&protection, "touched");
        drop(protection.lease_of_all());
        for _ in 0..2 {
            // Each lease begins before the previous one ends.
            import = protection.lease();
            let collection = protection.lease_of_all();
            drop(collection);
        }
        assert!(!protection.is_touched(&touched));
        drop(import);
    }

    #[test]
    fn overlapping_leases_use_bounded_memory() {
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
    fn too_many_touches_spare_all_blocks_until_leases_end() {
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

//! Leases of tasks that wait for a client.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ipfrs_core::Multihash;
use parking_lot::Mutex;

use super::{Lease, Protection};

/// Number of own touches above which a lease stays as it is: 8 MB.
const MAX_OWN: usize = 1024 * 1024;

/// Pause after a renewal for this number of touches.
const PAUSE: Duration = Duration::from_millis(1);
const TOUCHES_PER_PAUSE: usize = 64;

/// A lease for a task whose client may be slow. Each gc run replaces it by a new lease, and so does the removal of a
/// single block that is touched. The task thus keeps only the blocks that it touched itself, which it touches again
/// under the new lease.
pub(crate) struct RenewedLease {
    protection: Protection,
    state: Mutex<State>,
}

struct State {
    lease: Lease,
    /// Fingerprints of the task's own touches; `None` if there are too many.
    own: Option<Vec<u64>>,
    /// Time from which it may be renewed. Others may hold older leases, so that each renewal takes memory for the own
    /// touches again.
    earliest: Instant,
}

impl fmt::Debug for RenewedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedLease").finish_non_exhaustive()
    }
}

impl RenewedLease {
    /// Remembers blocks that the task is about to put. The put touches them.
    pub(crate) fn remember<'a>(&self, hashes: impl ExactSizeIterator<Item = &'a Multihash>) {
        let mut state = self.state.lock();
        state.own = state.own.take().filter(|own| own.len() + hashes.len() <= MAX_OWN);
        if let Some(own) = &mut state.own {
            own.extend(hashes.map(|hash| self.protection.fingerprint(hash)));
        }
    }

    /// Returns the lease, for a task that completes what this one began.
    pub(crate) fn current(&self) -> Lease {
        self.state.lock().lease.clone()
    }

    fn renew(&self) {
        let mut state = self.state.lock();
        let State { lease, own: Some(own), earliest } = &mut *state else { return };
        if Instant::now() < *earliest {
            return;
        }
        *earliest = Instant::now() + PAUSE * (own.len() / TOUCHES_PER_PAUSE) as u32;
        let new = self.protection.lease();
        // The blocks stay touched, because the old lease ends after this.
        self.protection.touch_again(own);
        *lease = new;
    }
}

/// The leases that can be renewed.
#[derive(Debug, Default)]
pub(super) struct RenewedLeases(Mutex<Vec<Weak<RenewedLease>>>);

impl Protection {
    /// Returns a lease that ends at the next gc run or removal, and continues as a new one with its own touches.
    pub(crate) fn renewed_lease(&self) -> Arc<RenewedLease> {
        let state = State { lease: self.lease(), own: Some(Vec::new()), earliest: Instant::now() };
        let lease = Arc::new(RenewedLease { protection: self.clone(), state: Mutex::new(state) });
        let mut leases = self.renewed().0.lock();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(Arc::downgrade(&lease));
        lease
    }

    /// Renews the leases of tasks that wait for clients.
    pub(crate) fn renew_leases(&self) {
        let leases: Vec<_> = self.renewed().0.lock().iter().filter_map(Weak::upgrade).collect();
        if leases.is_empty() {
            return;
        }
        self.begin_epoch();
        leases.iter().for_each(|lease| lease.renew());
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::sha2_256;

    use super::*;

    #[test]
    fn a_renewed_lease_keeps_its_own_touches_only() {
        let protection = Protection::default();
        let [own, other] = [sha2_256(b"own"), sha2_256(b"other")];
        let import = protection.renewed_lease();
        import.remember([&own].into_iter());
        protection.touch([&own, &other].into_iter());
        assert!(protection.is_touched(&other));
        let completing = import.current();
        protection.renew_leases();
        assert!(protection.is_touched(&other), "a task that completes the import holds the old lease");
        drop(completing);
        assert!(protection.is_touched(&own) && !protection.is_touched(&other));

        let hashes: Vec<_> = (0..MAX_OWN).map(|_| &other).collect();
        import.remember(hashes.into_iter());
        protection.renew_leases();
        assert!(protection.is_touched(&own), "a lease that cannot tell its own touches is not replaced");
        drop(import);
        assert!(!protection.is_touched(&own));
    }
}

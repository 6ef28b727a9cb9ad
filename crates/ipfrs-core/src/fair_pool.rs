//! Pool of units that clients share with dynamic thresholds (Choudhury and Hahne, 1998): a client may hold at most as
//! many units as are free. A single client gets half of the pool, two clients get a third each, and some units always
//! stay free for the next client.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Number of tables of clients, so that requests of different clients rarely contend for a lock.
const TABLES: usize = 16;

/// Pool of units, which clients of type `C` share. Clones are the same pool.
#[derive(Debug)]
pub struct FairPool<C: Client>(Arc<Pool<C>>);

/// Identity of a client.
pub trait Client: Copy + Eq + Hash {}

impl<C: Copy + Eq + Hash> Client for C {}

impl<C: Client> Clone for FairPool<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Pool<C> {
    capacity: AtomicUsize,
    /// Number of units that a client may hold even if fewer are free.
    minimum: usize,
    /// Maximum number of units of one client, however many are free.
    most_per_client: AtomicUsize,
    used: AtomicUsize,
    /// Units held by each client. Clients that hold none are removed, so there are never more entries than units.
    held: [Mutex<HashMap<C, usize>>; TABLES],
}

/// Reason why a client gets no units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Too few units are free.
    Total,
    /// The client would hold more units than are free.
    Share,
    /// The client would exceed the limit per client.
    Client,
}

impl<C: Client> FairPool<C> {
    /// Creates a pool of `capacity` units. A client may hold `minimum` units while any are free, and never more than
    /// `most_per_client`.
    #[must_use]
    pub fn new(capacity: usize, minimum: usize, most_per_client: usize) -> Self {
        let (used, held) = (AtomicUsize::new(0), Default::default());
        let [capacity, most_per_client] = [capacity, most_per_client].map(AtomicUsize::new);
        Self(Arc::new(Pool { capacity, minimum, most_per_client, used, held }))
    }

    /// Changes the number of units, and the maximum of one client. Clients keep what they hold, even if it is more: the
    /// pool gives out nothing until enough was returned.
    pub fn resize(&self, capacity: usize, most_per_client: usize) {
        self.0.capacity.store(capacity, Ordering::Relaxed);
        self.0.most_per_client.store(most_per_client, Ordering::Relaxed);
    }

    /// Returns the number of units in the pool, free or not.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.capacity.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of units of one client, however many are free.
    #[must_use]
    pub fn most_per_client(&self) -> usize {
        self.0.most_per_client.load(Ordering::Relaxed)
    }

    /// Takes `units` for a client.
    ///
    /// # Errors
    /// The reason why the client gets none.
    pub fn take(&self, client: C, units: usize) -> Result<Share<C>, Shortage> {
        let mut share = self.nothing(client);
        share.grow(units)?;
        Ok(share)
    }

    /// Returns an empty share for a client, which can grow later.
    #[must_use]
    pub fn nothing(&self, client: C) -> Share<C> {
        Share { pool: self.clone(), client, units: 0 }
    }

    /// Returns the number of units that a client holds.
    #[must_use]
    pub fn held(&self, client: C) -> usize {
        self.table(client).lock().get(&client).copied().unwrap_or(0)
    }

    fn table(&self, client: C) -> &Mutex<HashMap<C, usize>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(client);
        &self.0.held[usize::try_from(hash % TABLES as u64).unwrap_or(0)]
    }

    #[cfg(test)]
    fn clients(&self) -> usize {
        self.0.held.iter().map(|table| table.lock().len()).sum()
    }
}

/// Units that a client holds until this value is dropped.
#[derive(Debug)]
pub struct Share<C: Client> {
    pool: FairPool<C>,
    client: C,
    units: usize,
}

impl<C: Client> Share<C> {
    /// Returns the client that holds the units.
    #[must_use]
    pub fn client(&self) -> C {
        self.client
    }

    /// Returns the number of units held.
    #[must_use]
    pub fn units(&self) -> usize {
        self.units
    }

    /// Takes `units` more units, or none on failure.
    ///
    /// # Errors
    /// The reason why the client gets none.
    pub fn grow(&mut self, units: usize) -> Result<(), Shortage> {
        let pool = &*self.pool.0;
        let (capacity, most_per_client) = (self.pool.capacity(), self.pool.most_per_client());
        let mut table = self.pool.table(self.client).lock();
        let wanted = table.get(&self.client).copied().unwrap_or(0).saturating_add(units);
        if wanted > most_per_client {
            return Err(Shortage::Client);
        }
        let taken = pool.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            // More are used than there are after the pool was made smaller.
            let free = capacity.saturating_sub(used);
            let left = free.checked_sub(units)?;
            (wanted <= pool.minimum.max(left)).then(|| used + units)
        });
        if let Err(used) = taken {
            return Err(if units > capacity.saturating_sub(used) { Shortage::Total } else { Shortage::Share });
        }
        if units > 0 {
            table.insert(self.client, wanted);
        }
        self.units += units;
        Ok(())
    }

    /// Takes over all units of another share of the same client in the same pool.
    ///
    /// # Panics
    /// If the other share is of another client.
    pub fn take_over(&mut self, other: &mut Self) {
        assert!(self.client == other.client, "the shares are of different clients");
        self.units += std::mem::take(&mut other.units);
    }

    /// Returns all units to the pool.
    pub fn release(&mut self) {
        self.shrink_to(0);
    }

    /// Returns the units beyond `units` to the pool.
    pub fn shrink_to(&mut self, units: usize) {
        let returned = self.units.saturating_sub(units);
        if returned == 0 {
            return;
        }
        let mut table = self.pool.table(self.client).lock();
        let left = table.get(&self.client).map_or(0, |held| held.saturating_sub(returned));
        if left == 0 {
            table.remove(&self.client);
        } else {
            table.insert(self.client, left);
        }
        self.pool.0.used.fetch_sub(returned, Ordering::Relaxed);
        self.units -= returned;
    }
}

impl<C: Client> Drop for Share<C> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes single units for a client until the pool refuses.
    fn take_all(pool: &FairPool<u8>, client: u8) -> (Vec<Share<u8>>, Shortage) {
        let mut shares = Vec::new();
        loop {
            match pool.take(client, 1) {
                Ok(share) => shares.push(share),
                Err(shortage) => return (shares, shortage),
            }
        }
    }

    #[test]
    fn fair_pool_shares_units_among_clients() {
        for capacity in [3, 4, 7, 16, 100, 4_096] {
            let pool = FairPool::new(capacity, 2, usize::MAX);
            let (first, shortage) = take_all(&pool, 1);
            assert_eq!((first.len(), shortage), ((capacity / 2).max(2), Shortage::Share), "{capacity}");
            assert_eq!((pool.held(1), pool.held(2)), (first.len(), 0), "{capacity}");
            let (second, _) = take_all(&pool, 2);
            assert!(!second.is_empty(), "{capacity}");
            drop(first);
            assert!(take_all(&pool, 3).0.len() >= capacity / 3, "{capacity}");
            drop(second);
            assert_eq!((pool.clients(), pool.0.used.load(Ordering::Relaxed)), (0, 0));
        }
    }

    #[test]
    fn resized_pool_waits_until_enough_units_are_returned() {
        let pool = FairPool::new(4, 4, usize::MAX);
        let (mut held, _) = take_all(&pool, 1);
        assert_eq!(held.len(), 4);
        pool.resize(2, 1);
        assert_eq!((pool.capacity(), pool.most_per_client()), (2, 1));
        assert_eq!(pool.take(2, 1).unwrap_err(), Shortage::Total);
        held.truncate(2);
        assert_eq!(pool.take(2, 1).unwrap_err(), Shortage::Total);
        held.truncate(1);
        assert_eq!(pool.take(1, 1).unwrap_err(), Shortage::Client);
        let _second = pool.take(2, 1).unwrap();
        pool.resize(8, usize::MAX);
        assert_eq!(take_all(&pool, 1).0.len(), 3, "a client may hold the minimum whatever others hold");
    }

    #[test]
    fn one_client_can_exhaust_a_small_pool() {
        for capacity in [1, 2] {
            let pool = FairPool::new(capacity, 2, usize::MAX);
            let (held, shortage) = take_all(&pool, 1);
            assert_eq!((held.len(), shortage), (capacity, Shortage::Total));
            assert_eq!(pool.take(2, 1).unwrap_err(), Shortage::Total);
        }
    }

    #[test]
    fn limit_of_one_client_holds_while_others_get_more() {
        let pool = FairPool::new(100, 2, 5);
        let (held, shortage) = take_all(&pool, 1);
        assert_eq!((held.len(), shortage), (5, Shortage::Client));
        assert_eq!(take_all(&pool, 2).0.len(), 5);
    }

    #[test]
    fn refused_grow_leaves_share_unchanged() {
        let pool = FairPool::new(100, 0, usize::MAX);
        let mut share = pool.nothing(1);
        share.grow(40).unwrap();
        assert_eq!(share.grow(30), Err(Shortage::Share));
        assert_eq!(share.grow(61), Err(Shortage::Total));
        assert_eq!((share.units(), pool.clients()), (40, 1));
        share.grow(10).unwrap();
        let other = pool.take(2, 25).unwrap();
        share.shrink_to(60);
        assert_eq!((share.units(), pool.0.used.load(Ordering::Relaxed)), (50, 75));
        share.shrink_to(20);
        assert_eq!((share.units(), pool.0.used.load(Ordering::Relaxed)), (20, 45));
        let mut both = pool.take(1, 1).unwrap();
        both.take_over(&mut share);
        assert_eq!((both.units(), share.units(), pool.held(1)), (21, 0, 21));
        share.take_over(&mut both);
        share.shrink_to(20);
        // The units that were kept count as those of the client.
        assert_eq!(share.grow(28), Err(Shortage::Share));
        drop(share);
        assert_eq!(pool.clients(), 1);
        drop(other);
        assert_eq!((pool.clients(), pool.0.used.load(Ordering::Relaxed)), (0, 0));
    }
}

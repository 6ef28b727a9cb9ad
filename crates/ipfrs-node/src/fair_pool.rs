//! A pool of units that clients share by dynamic thresholds (Choudhury and Hahne, 1998): a client holds at most as many
//! units as are free. One client alone gets half of the pool, two get a third each, and some units are always free for
//! the next one.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Client;

/// Tables of clients, so that requests of different clients seldom wait for each other.
const TABLES: usize = 16;

/// A pool. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct FairPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    capacity: usize,
    /// Units that a client may hold although fewer are free.
    minimum: usize,
    /// Most units of one client, however many are free.
    most_per_client: usize,
    used: AtomicUsize,
    /// Units by client. A client that holds none is not in here, so that there are never more entries than units.
    held: [Mutex<HashMap<Client, usize>>; TABLES],
}

/// The reason why a pool gives no units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Too few are free.
    Total,
    /// The client would hold more than are free.
    Share,
    /// The client would hold more than one client may.
    Client,
}

impl FairPool {
    /// A pool of `capacity` units. A client may hold `minimum` units while any are free, and never more than
    /// `most_per_client`.
    pub(crate) fn new(capacity: usize, minimum: usize, most_per_client: usize) -> Self {
        let (used, held) = (AtomicUsize::new(0), Default::default());
        Self(Arc::new(Pool { capacity, minimum, most_per_client, used, held }))
    }

    /// Units of the pool, free ones and others.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity
    }

    /// Takes `units` for a client.
    pub(crate) fn take(&self, client: Client, units: usize) -> Result<Share, Shortage> {
        let mut share = self.nothing(client);
        share.grow(units)?;
        Ok(share)
    }

    /// No units yet, for a client that will take some.
    pub(crate) fn nothing(&self, client: Client) -> Share {
        Share { pool: self.clone(), client, units: 0 }
    }

    fn table(&self, client: Client) -> &Mutex<HashMap<Client, usize>> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(client);
        &self.0.held[usize::try_from(hash % TABLES as u64).unwrap_or(0)]
    }

    #[cfg(test)]
    fn clients(&self) -> usize {
        self.0.held.iter().map(|table| table.lock().len()).sum()
    }
}

/// Units that a client holds until this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: FairPool,
    client: Client,
    units: usize,
}

impl Share {
    /// The client that holds the units.
    pub(crate) fn client(&self) -> Client {
        self.client
    }

    /// Units that are held.
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// Takes `units` more, or none.
    pub(crate) fn grow(&mut self, units: usize) -> Result<(), Shortage> {
        let pool = &*self.pool.0;
        let mut table = self.pool.table(self.client).lock();
        let wanted = table.get(&self.client).copied().unwrap_or(0).saturating_add(units);
        if wanted > pool.most_per_client {
            return Err(Shortage::Client);
        }
        let taken = pool.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            let free = pool.capacity - used;
            let left = free.checked_sub(units)?;
            (wanted <= pool.minimum.max(left)).then(|| used + units)
        });
        if let Err(used) = taken {
            return Err(if units > pool.capacity - used { Shortage::Total } else { Shortage::Share });
        }
        if units > 0 {
            table.insert(self.client, wanted);
        }
        self.units += units;
        Ok(())
    }

    /// Gives all units back.
    pub(crate) fn release(&mut self) {
        if self.units == 0 {
            return;
        }
        let mut table = self.pool.table(self.client).lock();
        let left = table.get(&self.client).map_or(0, |held| held.saturating_sub(self.units));
        if left == 0 {
            table.remove(&self.client);
        } else {
            table.insert(self.client, left);
        }
        self.pool.0.used.fetch_sub(self.units, Ordering::Relaxed);
        self.units = 0;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn client(number: u8) -> Client {
        Client::of(IpAddr::from([10, 0, 0, number]))
    }

    /// Takes single units for a client until it gets no more.
    fn take_all(pool: &FairPool, client: Client) -> (Vec<Share>, Shortage) {
        let mut shares = Vec::new();
        loop {
            match pool.take(client, 1) {
                Ok(share) => shares.push(share),
                Err(shortage) => return (shares, shortage),
            }
        }
    }

    #[test]
    fn pool_is_shared_by_as_many_clients_as_come() {
        for capacity in [3, 4, 7, 16, 100, 4_096] {
            let pool = FairPool::new(capacity, 2, usize::MAX);
            let (first, shortage) = take_all(&pool, client(1));
            assert_eq!((first.len(), shortage), ((capacity / 2).max(2), Shortage::Share), "{capacity}");
            let (second, _) = take_all(&pool, client(2));
            assert!(!second.is_empty(), "{capacity}");
            drop(first);
            assert!(take_all(&pool, client(3)).0.len() >= capacity / 3, "{capacity}");
            drop(second);
            assert_eq!((pool.clients(), pool.0.used.load(Ordering::Relaxed)), (0, 0));
        }
    }

    #[test]
    fn small_pool_is_used_up_by_one_client_and_full_for_all() {
        for capacity in [1, 2] {
            let pool = FairPool::new(capacity, 2, usize::MAX);
            let (held, shortage) = take_all(&pool, client(1));
            assert_eq!((held.len(), shortage), (capacity, Shortage::Total));
            assert_eq!(pool.take(client(2), 1).unwrap_err(), Shortage::Total);
        }
    }

    #[test]
    fn limit_of_one_client_holds_while_others_get_more() {
        let pool = FairPool::new(100, 2, 5);
        let (held, shortage) = take_all(&pool, client(1));
        assert_eq!((held.len(), shortage), (5, Shortage::Client));
        assert_eq!(take_all(&pool, client(2)).0.len(), 5);
    }

    #[test]
    fn share_grows_and_a_refusal_changes_nothing() {
        let pool = FairPool::new(100, 0, usize::MAX);
        let mut share = pool.nothing(client(1));
        share.grow(40).unwrap();
        assert_eq!(share.grow(30), Err(Shortage::Share));
        assert_eq!(share.grow(61), Err(Shortage::Total));
        assert_eq!((share.units(), pool.clients()), (40, 1));
        share.grow(10).unwrap();
        let other = pool.take(client(2), 25).unwrap();
        drop(share);
        assert_eq!(pool.clients(), 1);
        drop(other);
        assert_eq!((pool.clients(), pool.0.used.load(Ordering::Relaxed)), (0, 0));
    }
}

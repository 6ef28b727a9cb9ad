//! Ledger of the disk space that unfinished uploads still need.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Numbers of bytes that are still to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Need {
    /// Bytes for the directory of resumable uploads.
    pub(super) spool: u64,
    /// Bytes for the packs of the store.
    pub(super) packs: u64,
}

impl Need {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { spool: self.spool.saturating_add(other.spool), packs: self.packs.saturating_add(other.packs) }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self { spool: self.spool.saturating_sub(other.spool), packs: self.packs.saturating_sub(other.packs) }
    }

    /// Returns the need without what is over `most` bytes in either place.
    fn at_most(self, most: u64) -> Self {
        Self { spool: self.spool.min(most), packs: self.packs.min(most) }
    }

    /// Returns the bytes in both places.
    pub(super) fn bytes(self) -> u64 {
        self.spool.saturating_add(self.packs)
    }
}

/// Needs of unfinished uploads.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) total: Need,
    /// The needs of each client. `None` stands for this program itself, and for uploads whose client is unknown.
    by_client: HashMap<Option<IpAddr>, Need>,
}

impl Needs {
    fn change(&mut self, client: Option<IpAddr>, old: Need, new: Need) {
        self.total = self.total.minus(old).plus(new);
        let own = self.by_client.entry(client).or_default();
        *own = own.minus(old).plus(new);
        if *own == Need::default() {
            self.by_client.remove(&client);
        }
    }

    /// Returns what others need, if each of them may keep an equal share of `free` bytes with this client, and the
    /// need of the client itself. Uploads of this program keep what they need. Returns `None` if the client has no room
    /// in its own share for `need`.
    pub(super) fn shared(&self, client: Option<IpAddr>, need: Need, free: u64) -> Option<Need> {
        let of = |client| self.by_client.get(&client).copied().unwrap_or_default();
        let others = || self.by_client.iter().filter(|(other, _)| other.is_some() && **other != client);
        let share = free / (others().count() as u64 + 1);
        let (own, of_program) = (of(client), if client.is_some() { of(None) } else { Need::default() });
        let fits = own.plus(need).bytes() <= share;
        fits.then(|| others().fold(own.plus(of_program), |sum, (_, other)| sum.plus(other.at_most(share / 2))))
    }
}

/// Sum of the needs of all unfinished uploads.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) needs: Arc<Mutex<Needs>>,
    /// Held from the measurement of the disk until the reservation, so that two uploads cannot reserve the same
    /// bytes.
    pub(super) admitting: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Reserves space for an upload of a client without checking the disk.
    pub(super) fn reserve(&self, client: Option<IpAddr>, need: Need) -> Reservation {
        let reservation = Reservation { needs: Arc::clone(&self.needs), client, need: Mutex::default() };
        reservation.set(need);
        reservation
    }
}

/// Bytes that are reserved for one upload. Dropping this releases them.
#[derive(Debug)]
pub(super) struct Reservation {
    needs: Arc<Mutex<Needs>>,
    client: Option<IpAddr>,
    need: Mutex<Need>,
}

impl Reservation {
    /// Returns what the upload needs.
    pub(super) fn need(&self) -> Need {
        *self.need.lock()
    }

    /// Replaces the reserved number of bytes.
    pub(super) fn set(&self, need: Need) {
        let mut own = self.need.lock();
        self.needs.lock().change(self.client, *own, need);
        *own = need;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(Need::default());
    }
}

//! Ledger of the disk space that unfinished uploads still need.

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
}

/// Sum of the needs of all unfinished uploads.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) total: Arc<Mutex<Need>>,
    /// Held from the measurement of the disk until the reservation, so that two uploads cannot reserve the same
    /// bytes.
    pub(super) admitting: tokio::sync::Mutex<()>,
}

impl Ledger {
    /// Reserves space for an upload without checking the disk.
    pub(super) fn reserve(&self, need: Need) -> Reservation {
        let reservation = Reservation { total: Arc::clone(&self.total), need: Mutex::default() };
        reservation.set(need);
        reservation
    }
}

/// Bytes that are reserved for one upload. Dropping this releases them.
#[derive(Debug)]
pub(super) struct Reservation {
    total: Arc<Mutex<Need>>,
    need: Mutex<Need>,
}

impl Reservation {
    /// Returns what the upload needs.
    pub(super) fn need(&self) -> Need {
        *self.need.lock()
    }

    /// Replaces the reserved number of bytes.
    pub(super) fn set(&self, need: Need) {
        let (mut own, mut total) = (self.need.lock(), self.total.lock());
        *total = total.minus(*own).plus(need);
        *own = need;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(Need::default());
    }
}

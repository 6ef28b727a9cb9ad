//! The store epoch, by which caches recognize stale entries.

/// State of a store's content at one point in time; see [`BlockStore::epoch`](crate::BlockStore::epoch). A value that
/// was derived from blocks at one epoch may be wrong at another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEpoch(u64);

impl StoreEpoch {
    /// Creates an epoch from a number that never decreases.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns an epoch that changes when this one changes and when `number`, which never decreases, does.
    #[must_use]
    pub fn combined_with(self, number: u64) -> Self {
        Self(self.0.wrapping_add(number))
    }
}

//! Options of the pack store.

use crate::Durability;

/// Minimum of [`PackOptions::pack_bytes`].
pub(super) const MIN_PACK_BYTES: u32 = 64 * 1024;

/// Options of a [`PackStore`](crate::PackStore).
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Length at which a pack is full and the next one begins, in bytes; at least 64 KiB. A larger atomic put gets a
    /// pack of its own. On a disk smaller than 64 times this length, the length is reduced to 1/64 of the disk, but
    /// not below 12 MiB. Puts leave as much free space as the longest pack occupies (see
    /// [`Reserve`](crate::Reserve)), so that a store that has filled its disk can be compacted.
    pub pack_bytes: u32,
    /// Durability of acknowledged writes.
    pub durability: Durability,
    /// Whether every read copies the block out of its pack and compares it with its content ID. Costs a hash and a
    /// copy per read. Returned blocks are then never slices of mapped files.
    pub verify_on_read: bool,
    /// Whether the store is opened without changing anything on the disk, for example on a read-only file system. The
    /// store must exist. Several readers may have it open at the same time, in any processes. While they do,
    /// opening it for writing is a [`Conflict`](ipfrs_core::ErrorKind), also within a process. If the index is missing,
    /// damaged or behind the packs, the rebuilt part is kept in memory. Puts and deletions are
    /// [`Forbidden`](ipfrs_core::ErrorKind).
    pub read_only: bool,
    /// Name of this process in the errors of other processes that try to open the store, for example `ipfrs-cli
    /// gateway start`.
    pub holder: String,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            pack_bytes: 1024 * 1024 * 1024,
            durability: Durability::default(),
            verify_on_read: false,
            read_only: false,
            holder: "a program with a block store".to_owned(),
        }
    }
}

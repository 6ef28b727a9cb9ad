//! The block store: the [`BlockStore`] trait and its engines.
//!
//! * [`PackStore`] keeps blocks in append-only, memory-mapped pack files (CARv1) with an index of sorted runs. A
//!   write that was acknowledged is durable.
//! * [`Filestore`] adds blocks to a pack store that stay in files of the user.
//! * [`MemoryStore`] keeps blocks in memory, for tests and for gateways that only relay content.
//! * [`Pins`] name the blocks and DAGs that garbage collection must keep.

mod batch;
mod config;
mod epoch;
mod epoch_cache;
mod filestore;
mod mapping;
mod memory;
mod pack;
mod pins;
mod redb_file;
mod redb_overlay;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use batch::{BlockBatch, Section, StoredSection};
pub use config::{Durability, Engine, StoreConfig};
pub use epoch::{Footprint, Provenance, StoreEpoch};
pub use epoch_cache::{DropStale, EpochCache};
pub use filestore::{FileState, Filestore, Reference, ReferenceOrder};
pub use mapping::{MappedSlice, Mappings, Sending};
pub use memory::MemoryStore;
pub use pack::{
    LinkedPack, MIN_ALIGNED_BYTES, PACK_HEADER, PackOptions, PackStore, RepoLock, lock_holder, sync_directory,
};
pub use pins::{MAX_PIN_NAME_BYTES, Pin, PinMode, Pins, RootNote};
pub use redb_file::is_panic_an_error;
pub use store::{
    Admission, BlockStore, BlockStoreExt, CompactOptions, Compacted, DamagedPack, Disk, PutMode, RESERVED_CODEC,
    Reserve, Scrubbed, Spared, Stats, Stored, admit, refuse_all,
};

/// Decoders of index files, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Decodes a manifest; see `fuzz/fuzz_targets/index_manifest.rs`.
    pub fn index_manifest(content: &[u8]) {
        crate::pack::index::fuzzing::manifest(content);
    }

    /// Opens and reads a run; see `fuzz/fuzz_targets/index_run.rs`.
    pub fn index_run(header: &[u8], content: &[u8], key: &[u8]) {
        crate::pack::index::fuzzing::run(header, content, key);
    }
}

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
mod forward;
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

/// Decoders of the files of a store, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    use std::panic;
    use std::sync::Once;

    use crate::is_panic_an_error;
    use crate::redb_file::damage::Damage;

    /// Opens a damaged file of pins; see `fuzz/fuzz_targets/pin_database.rs`.
    pub fn pin_database(changes: &[(u8, u16, u8)], length: Option<u32>, content: Option<&[u8]>) {
        crate::pins::fuzzing::database(damage(changes, length, content));
    }

    /// Opens a damaged file of references; see `fuzz/fuzz_targets/filestore_database.rs`.
    pub fn filestore_database(changes: &[(u8, u16, u8)], length: Option<u32>, content: Option<&[u8]>) {
        crate::filestore::fuzzing::database(damage(changes, length, content));
    }

    fn damage<'a>(changes: &'a [(u8, u16, u8)], length: Option<u32>, content: Option<&'a [u8]>) -> Damage<'a> {
        static HOOK: Once = Once::new();
        // The hook of the fuzzer ends the process at any panic. Those of redb become errors.
        HOOK.call_once(|| {
            let fatal = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !is_panic_an_error() {
                    fatal(info);
                }
            }));
        });
        let length = length.map_or(Damage::Bytes(changes), Damage::Length);
        content.map_or(length, Damage::Replaced)
    }

    /// Decodes a manifest; see `fuzz/fuzz_targets/index_manifest.rs`.
    pub fn index_manifest(content: &[u8]) {
        crate::pack::index::fuzzing::manifest(content);
    }

    /// Opens and reads a run; see `fuzz/fuzz_targets/index_run.rs`.
    pub fn index_run(header: &[u8], content: &[u8], key: &[u8]) {
        crate::pack::index::fuzzing::run(header, content, key);
    }
}

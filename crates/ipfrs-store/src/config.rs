//! The `[store]` section.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::PackOptions;

/// Storage engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Durable packs on disk.
    #[default]
    Pack,
    /// Memory only: all blocks are lost when the process ends.
    Memory,
}

/// Durability of a write that was acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On disk: a put returns after `fdatasync`, and its blocks survive a power failure.
    #[default]
    Fsync,
    /// Passed to the operating system: the blocks survive a crash of the process, but not a power failure.
    Os,
}

/// The `[store]` section: the engine, and the location and durability of the blocks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// Storage engine, `"pack"` or `"memory"`.
    pub engine: Engine,
    /// Directory of the packs and the index, relative to the repo. The default is the repo itself.
    pub path: Option<PathBuf>,
    /// Durability of acknowledged writes, `"fsync"` or `"os"`.
    pub durability: Durability,
    /// Whether every read compares the block with its content ID.
    pub verify_on_read: bool,
    /// Whether the store is read-only: blocks can be read, but neither added nor removed.
    pub read_only: bool,
    /// Directory of files that blocks may stay in (`add --nocopy`), absolute or relative to the repo. If unset, the
    /// store has no references to files.
    pub filestore_root: Option<PathBuf>,
    /// Maximum size of the store in bytes, as far as evicting fetched blocks can hold it; 0 for no limit.
    pub max_bytes: u64,
}

/// Minimum and maximum of `store.max_bytes`. Besides its blocks, a store needs some percent for dead ones.
const MAX_BYTES_RANGE: RangeInclusive<u64> = 32 * MAX_BLOCK_BYTES as u64..=1 << 50;

/// Number of packs in a store with `max_bytes`, at least. Space is freed pack by pack.
const MIN_PACKS: u64 = 64;

/// Minimum length of packs in such a store, in bytes.
const MIN_PACK_BYTES: u64 = 1024 * 1024;

impl StoreConfig {
    /// Checks the constraints that the types do not express.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind), with a message that names the key, the value and the
    /// accepted values.
    pub fn validate(&self) -> Result<()> {
        if self.read_only && self.engine == Engine::Memory {
            return Err(Error::invalid(
                "store.read_only = true: an in-memory store starts empty, so there is nothing to read; set \
                 store.engine = \"pack\"",
            ));
        }
        if self.max_bytes > 0 && !MAX_BYTES_RANGE.contains(&self.max_bytes) {
            let (least, most) = MAX_BYTES_RANGE.into_inner();
            return Err(Error::invalid(format!(
                "store.max_bytes = {}: accepted values are {least} to {most}, and 0 for no limit",
                self.max_bytes
            )));
        }
        if self.filestore_root.is_some() && self.engine == Engine::Memory {
            return Err(Error::invalid(
                "store.filestore_root: a store in memory has no references to files; omit it, or set store.engine = \"pack\"",
            ));
        }
        if self.filestore_root.as_ref().is_some_and(|root| root.as_os_str().is_empty()) {
            return Err(Error::invalid("store.filestore_root = \"\": set a directory, or omit the key"));
        }
        match &self.path {
            Some(path) if path.as_os_str().is_empty() => {
                Err(Error::invalid("store.path = \"\": set a directory, or omit the key to use the repo itself"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the length at which a pack is full ([`PackOptions::pack_bytes`](crate::PackOptions)).
    #[must_use]
    pub fn pack_bytes(&self) -> u32 {
        let longest = PackOptions::default().pack_bytes;
        match self.max_bytes {
            0 => longest,
            limit => (limit / MIN_PACKS).clamp(MIN_PACK_BYTES, u64::from(longest)) as u32,
        }
    }
}

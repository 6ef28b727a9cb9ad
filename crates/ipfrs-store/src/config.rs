//! The `[store]` section.

use std::path::PathBuf;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// Which engine keeps the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Durable packs on disk.
    #[default]
    Pack,
    /// Memory only: everything is gone when the process ends.
    Memory,
}

/// What "acknowledged" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// On disk: a put returns after `fdatasync`, and survives a power cut.
    #[default]
    Fsync,
    /// Handed to the operating system: survives the end of the process, not a power cut.
    Os,
}

/// `[store]`: where and how blocks are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `"pack"` or `"memory"`.
    pub engine: Engine,
    /// Directory of the packs and the index; relative to the repo, default the repo itself.
    pub path: Option<PathBuf>,
    /// `"fsync"` or `"os"`.
    pub durability: Durability,
    /// Whether every block is compared with its content ID when it is read.
    pub verify_on_read: bool,
    /// Whether nothing is written: blocks can be read, and neither added nor removed.
    pub read_only: bool,
}

impl StoreConfig {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if self.read_only && self.engine == Engine::Memory {
            return Err(Error::invalid(
                "store.read_only = true: a store in memory begins empty, so there would be nothing to read; set \
                 store.engine = \"pack\"",
            ));
        }
        match &self.path {
            Some(path) if path.as_os_str().is_empty() => {
                Err(Error::invalid("store.path = \"\": give a directory, or leave the key out for the repo itself"))
            }
            _ => Ok(()),
        }
    }
}

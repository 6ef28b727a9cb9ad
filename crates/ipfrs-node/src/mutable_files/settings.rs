//! Settings of mutable files: those of new files and directories in `[import]`, and those in `[mutable_files]`.

use ipfrs_core::Result;
use ipfrs_unixfs::{Chunker, CidFormat, ImportOptions, Sharding};

use super::config::MutableFilesConfig;
use crate::config::ImportConfig;

/// Settings of the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeSettings {
    /// Format of content IDs, for an operation that does not select one.
    pub(super) format: CidFormat,
    /// When and how directories are sharded.
    pub(super) sharding: Sharding,
    /// Chunker of new content.
    pub(super) chunker: Chunker,
    /// Whether new leaves are raw; `None` if the content ID of each file decides.
    pub(super) raw_leaves: Option<bool>,
    /// Maximum number of consecutive operations without a flush; 0 for no limit.
    pub(super) max_unflushed: u64,
}

impl TreeSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the settings contradict each other, in a program that has
    /// not checked them.
    pub(crate) fn new(config: &ImportConfig, limits: &MutableFilesConfig) -> Result<Self> {
        let profile = config.named_profile();
        let options = ImportOptions::new(profile, config.overrides())?;
        Ok(Self {
            format: options.cid_format(),
            sharding: options.sharding(),
            chunker: options.chunker(),
            max_unflushed: limits.max_unflushed,
            raw_leaves: if profile.is_some() { Some(options.raw_leaves()) } else { config.raw_leaves },
        })
    }
}

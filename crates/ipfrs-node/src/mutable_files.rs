//! Mutable files: a tree of UnixFS directories and files with one durable root per repo.
//!
//! The tree keeps nodes that changed in memory. It follows boxo's `mfs` step by step, because the form of a large
//! directory depends on its history (`ipfrs_unixfs::DirectoryEdit`). A flush stores the new blocks, and then replaces
//! the root on the disk.

mod appended;
mod cached_nodes;
mod change;
mod config;
mod copy;
mod directory;
mod files_state;
mod path;
mod path_locks;
mod read;
mod root_file;
mod root_notes;
mod settings;
mod tree;
mod unstored;
mod unstored_view;
mod write;

pub(crate) use appended::AppendedFile;
pub use change::MutableAttribute;
pub(crate) use change::now;
pub use config::MutableFilesConfig;
pub use copy::CopySource;
pub(crate) use files_state::MutableFiles;
pub use path::MutablePath;
pub use read::{MutableEntry, MutableListing};
#[cfg(fuzzing)]
pub(crate) use root_file::fuzzing;
pub(crate) use root_file::{RootFile, SavedRoot};
pub(crate) use settings::TreeSettings;
pub use write::WriteOptions;

//! Import of files and directories into blocks, with the same content IDs as Kubo.

mod buzhash;
mod chunker;
mod cut;
mod cutter;
mod directory;
mod file_layout;
mod importer;
mod layout;
mod leaf;
mod options;
mod rabin;
mod shard;
mod sharding;
mod spare;
mod trickle;
mod writer;

pub use chunker::Chunker;
pub(crate) use directory::check_name;
pub use directory::{DirectoryBuilder, entry_hash};
pub use importer::{Entry, EntryKind, Importer, MAX_GATHERING};
pub(crate) use layout::Part;
pub use options::{ImportOptions, Layout, Overrides, Profile};
pub(crate) use sharding::{DirectoryBytes, basic_data};
pub use sharding::{DirectorySize, Sharding};
pub use spare::SpareBatch;
pub use writer::Mark;

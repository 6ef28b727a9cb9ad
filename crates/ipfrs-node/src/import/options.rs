//! Options of an import, and what it reports.

use ipfrs_core::Cid;
use ipfrs_core::hash::HashFunction;
use ipfrs_unixfs::{Attributes, Chunker, EntryKind, Layout, Profile};

use crate::LinkName;
use crate::mutable_files::MutablePath;
use crate::operations::OperationId;

/// Options of an import. Fields that are `None` take their value from the profile, as in Kubo's `add`.
#[derive(Debug, Clone, Default)]
pub struct AddOptions {
    /// Profile that supplies the defaults. If `None`, the import uses `import.profile`.
    pub profile: Option<Profile>,
    /// CID version, 0 or 1.
    pub cid_version: Option<u64>,
    /// Whether leaves are raw blocks.
    pub raw_leaves: Option<bool>,
    /// Algorithm that splits files into chunks.
    pub chunker: Option<Chunker>,
    /// Hash function of the content IDs.
    pub hash: Option<HashFunction>,
    /// Maximum size, in bytes, of a block that is stored inline in the content ID that refers to it.
    pub inline_limit: Option<usize>,
    /// Layout of the nodes above the leaves of a file.
    pub layout: Option<Layout>,
    /// Mode and modification time of every entry.
    pub attributes: Attributes,
    /// Whether entries keep the mode that the client sent, instead of the mode in `attributes`.
    pub preserve_mode: bool,
    /// Whether entries keep the modification time that the client sent, instead of the time in `attributes`.
    pub preserve_mtime: bool,
    /// Maximum number of links of an inner node of a file.
    pub max_file_links: Option<usize>,
    /// Maximum number of entries of an unsharded directory; 0 for no limit.
    pub max_directory_links: Option<usize>,
    /// Fan-out of HAMT directory shards.
    pub hamt_fanout: Option<u32>,
    /// Whether raw leaves stay in the files that they are read from, so that the filestore stores only references to
    /// them. The leaves are raw by default then. Each file needs its absolute path on this machine.
    pub nocopy: bool,
    /// Whether blocks that the filestore has a reference to are not stored a second time.
    pub fscache: bool,
    /// Whether the import only computes content IDs and stores nothing.
    pub only_hash: bool,
    /// Whether the import puts everything into one more directory.
    pub wrap_with_directory: bool,
    /// Whether the import leaves out directories that the client sent empty, except at the top level.
    pub skip_empty_directories: bool,
    /// Whether the import creates no pins. The next garbage collection removes its blocks, unless a client pins them
    /// first.
    pub unpinned: bool,
    /// Name of the pins that the import creates. If empty, existing pins keep their names.
    pub pin_name: String,
    /// Path in the tree of mutable files where the roots of the import are put. With a slash at the end, it is an
    /// existing directory; otherwise there may be only one root.
    pub to_files: Option<MutablePath>,
    /// ID of the operation under which clients can watch the import. If `None`, the import is not shown as an
    /// operation.
    pub operation: Option<OperationId>,
}

/// File, symlink or directory that an import has created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Path within the import; empty for the wrapping directory.
    pub name: LinkName,
    /// Content ID of the entry.
    pub cid: Cid,
    /// Cumulative size of the entry's DAG in bytes, as `add` reports it.
    pub size: u64,
    /// Whether it is a file, a directory or a symlink.
    pub kind: EntryKind,
    /// Mode and modification time that the client sent with the entry. The options decide whether they are stored.
    pub attributes: Attributes,
}

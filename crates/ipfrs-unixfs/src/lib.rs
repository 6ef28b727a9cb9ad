//! Codecs for dag-pb and UnixFS, path resolution, directory listing and file import.
//!
//! Except for [`local_tree`], all functions read from a [`BlockSource`] or write to a [`BlockSink`], and are
//! independent of HTTP, stores and configuration. The formats are specified in <https://specs.ipfs.tech/unixfs/> and
//! <https://ipld.io/specs/codecs/dag-pb/spec/>. Imports produce the same content IDs as Kubo.

mod blocks;
mod children;
pub mod dag_pb;
mod data;
mod dir_entry;
mod directory_index;
mod edit;
mod hamt;
mod import;
mod ipld;
mod link_name;
mod list;
pub mod local_tree;
mod murmur3;
mod node;
mod resolve;
mod search;
mod sizes;

pub use blocks::{BlockSink, BlockSource};
pub use children::{Child, Children};
pub use data::{Attributes, Mtime};
pub use dir_entry::DirEntry;
pub use directory_index::DirectoryIndex;
pub use edit::{AttributeChange, CidFormat, DirectoryEdit, FileEdit, MAX_HOLE_BYTES, NewLink, Staging};
pub use hamt::{HamtShard, ShardLink};
pub use import::{
    Chunker, DirectoryBuilder, DirectorySize, Entry, EntryKind, ImportOptions, Importer, Layout, MAX_GATHERING, Mark,
    Overrides, Profile, Sharding, SpareBatch, entry_hash,
};
pub use ipld::{canonical_cbor, git, jose, knows_links, lenient_links, link_names, links, named_links, ordered_cbor};
pub use link_name::LinkName;
pub use list::{Entries, Place, entries, page};
pub use node::{FileNode, Node, declared_size, declared_type, decode, decode_async, is_without_sizes, part_cids};
pub use resolve::{Resolved, leads_nowhere, missing_target, resolve, resolve_values, roots_before};
pub use sizes::{MAX_MEASURED_PARTS, decode_measured};

//! dag-pb and UnixFS: reading nodes, resolving paths, listing directories and importing files.
//!
//! Everything here is a pure function over a [`BlockSource`] or into a [`BlockSink`]; nothing knows of HTTP, stores or
//! configuration. The formats are those of <https://specs.ipfs.tech/unixfs/> and
//! <https://ipld.io/specs/codecs/dag-pb/spec/>; imports give the content IDs that Kubo gives.

mod blocks;
pub mod dag_pb;
mod data;
mod hamt;
mod import;
mod ipld;
mod link_name;
mod list;
mod murmur3;
mod node;
mod resolve;

pub use blocks::{BlockSink, BlockSource};
pub use data::{Attributes, Mtime};
pub use hamt::{HamtShard, Slot};
pub use import::{
    Chunker, DirectoryBuilder, Entry, EntryKind, ImportOptions, Importer, Layout, Mark, Overrides, Profile, entry_hash,
};
pub use ipld::{canonical_cbor, lenient_links, links};
pub use link_name::LinkName;
pub use list::{Entries, Place, entries, page};
pub use node::{Child, DirEntry, FileNode, Node, decode, decode_async};
pub use resolve::{Resolved, leads_nowhere, resolve, roots_before};

//! The zero-copy layer between stored blocks and connections.
//!
//! * [`DagReader`] turns a [`Span`] of a UnixFS file into pieces that are slices of its blocks.
//! * [`NodeCache`] caches decoded inner nodes for later readers.
//! * [`Socket`] writes slices with `sendfile` if they are in a mapped pack, and counts its bytes in [`Bandwidth`].
//! * [`DagWalk`] yields the blocks of a DAG, or of a [`Part`] of one, in the order of a CAR.
//! * [`car`] encodes blocks as CAR, and decodes CAR with every hash verified.
//! * [`gathered`] combines the short pieces of a body.
//! * [`tar`] writes the headers and padding of files, directories and symlinks in a TAR archive.
//! * [`BlockStoreSource`], [`IndexingSource`] and [`StoreSink`] let the UnixFS code read from and write to a block
//!   store.

mod bandwidth;
pub mod car;
mod config;
mod dag_walk;
mod gather;
mod node_cache;
mod reader;
mod socket;
mod source;
mod span;
pub mod tar;
mod visited;
mod walk;

pub use bandwidth::{Bandwidth, BandwidthSnapshot};
pub use config::{FlowControl, StreamingConfig};
pub use dag_walk::{DagWalk, DepthWalk, Part};
pub use gather::gathered;
pub use node_cache::NodeCache;
pub use reader::DagReader;
pub use socket::{Encrypted, Presence, Socket, Traffic};
pub use source::{BlockStoreSource, IndexingSource, MEASURED_PARTS, StoreSink};
pub use span::Span;
pub use visited::Visited;

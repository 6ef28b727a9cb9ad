//! What [`Backend`](crate::backend::Backend) stands on: the node in the process, or a daemon, in types of Rust.
//!
//! Content IDs go in and out as text. A path is `CID[/a/b]`, `/ipfs/...`, `/ipns/...`, `ipfs://...` or `ipns://...`. Kinds of
//! errors are those that the daemon answers with, so that both behave alike.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use ipfrs_core::Result;
use ipfrs_node::LinkName;
use pyo3::IntoPyObject;
use serde::Deserialize;

/// Bytes on their way, in pieces of at most some megabytes. An error ends them.
pub(crate) type Pieces = BoxStream<'static, Result<Bytes>>;

/// How the content ID of a block is made, and whether it is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockOptions {
    /// Name or number of a codec: `raw`, `dag-cbor`, `0x71`.
    pub(crate) codec: String,
    /// Name of a hash function: `sha2-256`, `blake3`.
    pub(crate) mhtype: String,
    /// With everything below it, which must be here.
    pub(crate) pin: bool,
}

/// Options of an import, as Kubo's `add` has them. What is `None` follows from the profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddOptions {
    pub(crate) profile: Option<String>,
    pub(crate) cid_version: Option<u64>,
    pub(crate) raw_leaves: Option<bool>,
    pub(crate) chunker: Option<String>,
    pub(crate) hash: Option<String>,
    /// Blocks of at most this many bytes go whole into the content IDs that name them.
    pub(crate) inline_limit: Option<usize>,
    pub(crate) trickle: bool,
    /// Permission bits that everything gets.
    pub(crate) mode: Option<u32>,
    /// Seconds since 1970 and nanoseconds that everything gets.
    pub(crate) mtime: Option<(i64, u32)>,
    /// Files and directories of a tree get the mode that they have.
    pub(crate) preserve_mode: bool,
    /// Everything in a tree gets the time that it has.
    pub(crate) preserve_mtime: bool,
    pub(crate) max_file_links: Option<usize>,
    pub(crate) max_directory_links: Option<usize>,
    pub(crate) hamt_fanout: Option<u32>,
    /// Makes the content IDs and stores nothing.
    pub(crate) only_hash: bool,
    pub(crate) wrap_with_directory: bool,
    pub(crate) pin: bool,
    /// Name of the pin; an empty one leaves the name of a pin that is there.
    pub(crate) pin_name: String,
    /// Name of the file in the directory that it is wrapped with; empty for none.
    pub(crate) name: LinkName,
    /// Takes entries of directories along whose names begin with a dot.
    pub(crate) hidden: bool,
}

impl Default for AddOptions {
    fn default() -> Self {
        Self {
            profile: None,
            cid_version: None,
            raw_leaves: None,
            chunker: None,
            hash: None,
            inline_limit: None,
            trickle: false,
            mode: None,
            mtime: None,
            preserve_mode: false,
            preserve_mtime: false,
            max_file_links: None,
            max_directory_links: None,
            hamt_fanout: None,
            only_hash: false,
            wrap_with_directory: false,
            pin: true,
            pin_name: String::new(),
            name: LinkName::default(),
            hidden: false,
        }
    }
}

/// How far an import is. Whoever works counts, whoever calls Python looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    done: AtomicU64,
    /// One more than the bytes there are; 0 while that is not known.
    total: AtomicU64,
}

impl Progress {
    /// So many bytes more are done.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// There are so many bytes.
    pub(crate) fn expect(&self, bytes: u64) {
        self.0.total.store(bytes.saturating_add(1), Ordering::Relaxed);
    }

    /// Bytes that are done, and bytes that there are where that is known.
    pub(crate) fn now(&self) -> (u64, Option<u64>) {
        (self.0.done.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed).checked_sub(1))
    }
}

/// Something that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) cid: String,
    /// Cumulative size of its DAG in bytes.
    pub(crate) size: u64,
}

/// Bytes of a file whose number is known.
pub(crate) struct Content {
    /// How many bytes all of `pieces` have; other numbers are an error that the reader reports.
    pub(crate) size: u64,
    pub(crate) pieces: Pieces,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: LinkName,
    pub(crate) cid: String,
    /// `file`, `directory`, `symlink`, or `node` for what is none of these or is not here.
    pub(crate) kind: &'static str,
    /// Bytes of a file; 0 for directories and symlinks.
    pub(crate) size: u64,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stat {
    pub(crate) cid: String,
    /// As [`Entry::kind`].
    pub(crate) kind: &'static str,
    /// Bytes of a file; 0 for a directory or a symlink; of anything else those of its block.
    pub(crate) size: u64,
    /// Links of its root block.
    pub(crate) blocks: Option<u64>,
    /// Permission bits, where they were kept.
    pub(crate) mode: Option<u32>,
    /// Seconds since 1970, where they were kept.
    pub(crate) mtime: Option<f64>,
}

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinEntry {
    pub(crate) cid: String,
    /// `recursive` or `direct`.
    pub(crate) kind: &'static str,
    /// Empty for none.
    pub(crate) name: String,
}

/// What is stored. Python sees a dictionary of it.
#[derive(Debug, Clone, PartialEq, Eq, IntoPyObject)]
pub(crate) struct StoreStats {
    pub(crate) blocks: u64,
    /// On disk.
    pub(crate) bytes: u64,
    /// Where the repo is.
    pub(crate) repo: String,
}

/// What the elements of a tensor come to, as `/v1/tensor` tells it. Python sees a dictionary of it.
#[derive(Debug, Clone, PartialEq, Deserialize, IntoPyObject)]
pub(crate) struct TensorStats {
    pub(crate) count: u64,
    pub(crate) nan: u64,
    pub(crate) inf: u64,
    pub(crate) zero: u64,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) std: Option<f64>,
}

/// The tensors of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorList {
    pub(crate) cid: String,
    /// `safetensors` or `npy`.
    pub(crate) format: String,
    pub(crate) metadata: Vec<(String, String)>,
    pub(crate) tensors: Vec<TensorEntry>,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorEntry {
    pub(crate) name: String,
    /// As safetensors has it: `F32`, `BF16`.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
    /// Where its bytes begin in the file.
    pub(crate) offset: u64,
}

/// The elements of a tensor or of a slice of it, little-endian, in row-major order.
pub(crate) struct TensorBytes {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) content: Content,
}

/// Blocks and files, here or elsewhere. Dropping a future ends the work as far as it can be ended; what was acknowledged
/// stays.
#[async_trait]
pub(crate) trait Backing: Send + Sync + 'static {
    /// Opens what is open already as well. Every other method opens what is not open yet.
    async fn open(&self) -> Result<()>;

    /// Ends, makes everything durable and gives locks back. Closes what is closed already as well.
    async fn close(&self) -> Result<()>;

    /// As `ipfrs-cli version` shows it.
    async fn version(&self) -> Result<String>;

    /// `blocks`, `bytes` and `repo` at least.
    async fn stats(&self) -> Result<StoreStats>;

    async fn put(&self, data: Bytes, options: BlockOptions) -> Result<String>;

    /// All or none.
    async fn put_many(&self, blocks: Vec<Bytes>, options: BlockOptions) -> Result<Vec<String>>;

    async fn get(&self, cid: String) -> Result<Bytes>;

    /// In the order asked; `None` for what is not here.
    async fn get_many(&self, cids: Vec<String>) -> Result<Vec<Option<Bytes>>>;

    async fn has_many(&self, cids: Vec<String>) -> Result<Vec<bool>>;

    async fn size(&self, cid: String) -> Result<u64>;

    /// `force` ignores blocks that are not here; pinned ones are an error in any case.
    async fn remove(&self, cids: Vec<String>, force: bool) -> Result<()>;

    /// Imports one file.
    async fn add(&self, content: Pieces, options: AddOptions) -> Result<Added>;

    /// Imports a file, or a directory with everything in it; a symlink stands for what it leads to, but within a directory
    /// for itself. Nobody looks where there is no `progress`.
    async fn add_path(&self, path: PathBuf, options: AddOptions, progress: Option<Progress>) -> Result<Added>;

    /// `length` bytes of a file from `offset`, or as many as there are.
    async fn read(&self, path: LinkName, offset: u64, length: Option<u64>) -> Result<Content>;

    /// The entries of a directory, or the links of a node that is no file; a file or a symlink is
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind).
    async fn list(&self, path: LinkName) -> Result<Vec<Entry>>;

    async fn stat(&self, path: LinkName) -> Result<Stat>;

    /// The content ID that a path leads to.
    async fn resolve(&self, path: LinkName) -> Result<String>;

    /// Gives the content ID.
    async fn pin(&self, path: LinkName, recursive: bool, name: Option<String>) -> Result<String>;

    async fn unpin(&self, path: LinkName, recursive: bool) -> Result<()>;

    /// Pins of their own: recursive and direct ones.
    async fn pins(&self) -> Result<Vec<PinEntry>>;

    /// A CARv1 with what the path leads to as its root, and everything below it.
    async fn export_car(&self, path: LinkName) -> Result<Pieces>;

    /// Gives the roots that the CAR names.
    async fn import_car(&self, car: Pieces, pin_roots: bool) -> Result<Vec<String>>;

    /// Collects garbage: how many blocks are gone, and how many bytes they had.
    async fn collect(&self, force: bool) -> Result<(u64, u64)>;

    async fn tensors(&self, path: LinkName) -> Result<TensorList>;

    /// An empty name stands for the only tensor of a file, an empty slice for all of it.
    async fn tensor(&self, path: LinkName, name: String, slice: String) -> Result<TensorBytes>;

    async fn tensor_stats(&self, path: LinkName, name: String) -> Result<TensorStats>;
}

//! Implementations of [`Backend`](crate::backend::Backend): a node in the process, or a daemon. The interface uses
//! Rust types.
//!
//! Content IDs are passed as text. A path is `CID[/a/b]`, `/ipfs/...`, `/ipns/...`, or a URI such as `ipfs://...`.
//! Both implementations report the error kinds of the daemon, so that they behave alike.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use ipfrs_core::Result;
use ipfrs_node::{LinkName, WalkOptions, size_of_tree};
use ipfrs_rpc::types;
use pyo3::IntoPyObject;

/// A stream of bytes, in pieces of at most a few megabytes. An error is its last item.
pub(crate) type Pieces = BoxStream<'static, Result<Bytes>>;

/// Options for storing blocks: the parameters of their content IDs, and whether to pin them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockOptions {
    /// Name or number of a codec, such as `raw`, `dag-cbor` or `0x71`.
    pub(crate) codec: String,
    /// Name of a hash function, such as `sha2-256` or `blake3`.
    pub(crate) mhtype: String,
    /// Whether to pin the block and everything below it, which must be present.
    pub(crate) pin: bool,
}

/// Options of an import, as in Kubo's `add`. The profile determines options that are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddOptions {
    pub(crate) profile: Option<String>,
    pub(crate) cid_version: Option<u64>,
    pub(crate) raw_leaves: Option<bool>,
    pub(crate) chunker: Option<String>,
    pub(crate) hash: Option<String>,
    /// Maximum size in bytes of blocks that are stored inside the content IDs that refer to them.
    pub(crate) inline_limit: Option<usize>,
    pub(crate) trickle: Option<bool>,
    /// Permission bits for every file and directory.
    pub(crate) mode: Option<u32>,
    /// Modification time for every file and directory, in seconds since 1970 and nanoseconds.
    pub(crate) mtime: Option<(i64, u32)>,
    /// Whether files and directories of a tree keep their mode.
    pub(crate) preserve_mode: bool,
    /// Whether everything in a tree keeps its modification time.
    pub(crate) preserve_mtime: bool,
    pub(crate) max_file_links: Option<usize>,
    pub(crate) max_directory_links: Option<usize>,
    pub(crate) hamt_fanout: Option<u32>,
    /// Whether the leaves stay in the files, which are below the filestore root.
    pub(crate) nocopy: bool,
    /// Whether blocks that are already in files are not stored again.
    pub(crate) fscache: bool,
    /// Whether to compute the content IDs only, and store nothing.
    pub(crate) only_hash: bool,
    pub(crate) wrap_with_directory: bool,
    pub(crate) pin: bool,
    /// Name of the pin. If empty, an existing pin keeps its name.
    pub(crate) pin_name: String,
    /// Name of the file in the wrapping directory, or empty for none.
    pub(crate) name: LinkName,
    /// Whether to include directory entries whose names begin with a dot.
    pub(crate) hidden: bool,
    /// Whether every symlink of a tree means its target.
    pub(crate) dereference_symlinks: bool,
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
            trickle: None,
            mode: None,
            mtime: None,
            preserve_mode: false,
            preserve_mtime: false,
            max_file_links: None,
            max_directory_links: None,
            hamt_fanout: None,
            nocopy: false,
            fscache: false,
            only_hash: false,
            wrap_with_directory: false,
            pin: true,
            pin_name: String::new(),
            name: LinkName::default(),
            hidden: false,
            dereference_symlinks: false,
        }
    }
}

impl AddOptions {
    /// Returns how to walk over the file or directory that is imported.
    pub(crate) fn walk(&self) -> WalkOptions {
        // The name is only used in a wrapping directory.
        let name = Some(self.name.as_bytes().to_vec()).filter(|name| self.wrap_with_directory && !name.is_empty());
        WalkOptions {
            name,
            hidden: self.hidden,
            follow_root: true,
            follow_all: self.dereference_symlinks,
            ..WalkOptions::default()
        }
    }
}

/// Progress of an import. The import updates it, and the thread or event loop that calls Python reads it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    done: AtomicU64,
    /// The total number of bytes plus one, or 0 while the total is unknown.
    total: AtomicU64,
}

impl Progress {
    /// Adds `bytes` to the number of bytes done.
    pub(crate) fn advance(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Starts to compute the total size of the file or directory at `path`. The import reports unreadable files. Must
    /// be called within the runtime.
    pub(crate) fn measure(&self, path: PathBuf, options: WalkOptions) {
        let counters = self.0.clone();
        tokio::task::spawn_blocking(move || {
            counters.total.store(size_of_tree(&path, &options).saturating_add(1), Ordering::Relaxed);
        });
    }

    /// Returns the number of bytes done, and the total if it is known.
    pub(crate) fn now(&self) -> (u64, Option<u64>) {
        (self.0.done.load(Ordering::Relaxed), self.0.total.load(Ordering::Relaxed).checked_sub(1))
    }
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Added {
    pub(crate) cid: String,
    /// Cumulative size of the DAG in bytes.
    pub(crate) size: u64,
}

/// Content of known size.
pub(crate) struct Content {
    /// Total size of `pieces` in bytes. Consumers report any other number of bytes as an error.
    pub(crate) size: u64,
    pub(crate) pieces: Pieces,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: LinkName,
    pub(crate) cid: String,
    /// `file`, `directory`, `symlink`, or `node` for a node of another kind or one that is not stored here.
    pub(crate) kind: &'static str,
    /// Size of a file in bytes. 0 for directories and symlinks.
    pub(crate) size: u64,
}

/// Metadata of the content at a path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stat {
    pub(crate) cid: String,
    /// Kind of the content, as in [`Entry::kind`].
    pub(crate) kind: &'static str,
    /// Size in bytes: of the content for a file, 0 for a directory or a symlink, and otherwise of the block.
    pub(crate) size: u64,
    /// Number of links of the root block.
    pub(crate) links: Option<u64>,
    /// Permission bits, if stored.
    pub(crate) mode: Option<u32>,
    /// Modification time in seconds since 1970, if stored.
    pub(crate) mtime: Option<f64>,
}

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PinEntry {
    pub(crate) cid: String,
    /// `recursive` or `direct`.
    pub(crate) kind: &'static str,
    /// Name of the pin, or empty for none.
    pub(crate) name: String,
}

/// Statistics of the store. Converted to a Python dictionary.
#[derive(Debug, Clone, PartialEq, Eq, IntoPyObject)]
pub(crate) struct StoreStats {
    pub(crate) blocks: u64,
    /// Size on disk in bytes.
    pub(crate) bytes: u64,
    /// Directory of the repo.
    pub(crate) repo: String,
}

/// Statistics of the elements of a tensor, as returned by `/v1/tensor`. Converted to a Python dictionary.
#[derive(Debug, Clone, PartialEq, IntoPyObject)]
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

impl From<types::TensorStats> for TensorStats {
    fn from(stats: types::TensorStats) -> Self {
        let types::ElementStats { count, nan, inf, zero, min, max, mean, std } = stats.elements;
        Self { count, nan, inf, zero, min, max, mean, std }
    }
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
    /// Type by its safetensors name, such as `F32` or `BF16`.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
    /// Offset of the first byte in the file.
    pub(crate) offset: u64,
}

/// The elements of a tensor or of a slice of it, little-endian, in row-major order.
pub(crate) struct TensorBytes {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) content: Content,
}

/// Access to the blocks and files of a node or a daemon. Dropping a future cancels the operation as far as possible.
/// Acknowledged changes persist.
#[async_trait]
pub(crate) trait Backing: Send + Sync + 'static {
    /// Opens the backing. This has no effect if it is open. Every other method opens it if necessary.
    async fn open(&self) -> Result<()>;

    /// Closes the backing, makes all data durable and releases locks. This has no effect if it is closed.
    async fn close(&self) -> Result<()>;

    /// Returns the version that `ipfrs-cli version` prints.
    async fn version(&self) -> Result<String>;

    /// Returns statistics of the store.
    async fn stats(&self) -> Result<StoreStats>;

    async fn put(&self, data: Bytes, options: BlockOptions) -> Result<String>;

    /// Stores all blocks or none.
    async fn put_many(&self, blocks: Vec<Bytes>, options: BlockOptions) -> Result<Vec<String>>;

    async fn get(&self, cid: String) -> Result<Bytes>;

    /// Returns blocks in the order of `cids`, with `None` for blocks that are not stored here.
    async fn get_many(&self, cids: Vec<String>) -> Result<Vec<Option<Bytes>>>;

    async fn has_many(&self, cids: Vec<String>) -> Result<Vec<bool>>;

    async fn size(&self, cid: String) -> Result<u64>;

    /// Removes blocks. `force` ignores missing blocks. A pinned block is always an error.
    async fn remove(&self, cids: Vec<String>, force: bool) -> Result<()>;

    /// Imports one file.
    async fn add(&self, content: Pieces, options: AddOptions) -> Result<Added>;

    /// Imports a file, or a directory with all its contents. A symlink at `path` itself is followed, and symlinks
    /// within a directory are kept. `progress` is `None` if progress is not wanted.
    async fn add_path(&self, path: PathBuf, options: AddOptions, progress: Option<Progress>) -> Result<Added>;

    /// Reads `length` bytes of a file from `offset`, or up to the end of the file.
    async fn read(&self, path: LinkName, offset: u64, length: Option<u64>) -> Result<Content>;

    /// Returns the entries of a directory, or the links of a node that is not a file. For a file or a symlink,
    /// returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind).
    async fn list(&self, path: LinkName) -> Result<Vec<Entry>>;

    async fn stat(&self, path: LinkName) -> Result<Stat>;

    /// Returns the content ID that a path resolves to.
    async fn resolve(&self, path: LinkName) -> Result<String>;

    /// Pins content and returns its content ID.
    async fn pin(&self, path: LinkName, recursive: bool, name: Option<String>) -> Result<String>;

    async fn unpin(&self, path: LinkName, recursive: bool) -> Result<()>;

    /// Returns recursive and direct pins.
    async fn pins(&self) -> Result<Vec<PinEntry>>;

    /// Exports everything below a path as a CARv1, with the path's content as its root.
    async fn export_car(&self, path: LinkName) -> Result<Pieces>;

    /// Imports a CAR and returns the roots that it names.
    async fn import_car(&self, car: Pieces, pin_roots: bool) -> Result<Vec<String>>;

    /// Runs garbage collection. Returns the number of removed blocks, and their size in bytes.
    async fn collect(&self, force: bool) -> Result<(u64, u64)>;

    async fn tensors(&self, path: LinkName) -> Result<TensorList>;

    /// Reads a tensor. An empty name selects the only tensor of a file, and an empty slice the whole tensor.
    async fn tensor(&self, path: LinkName, name: String, slice: String) -> Result<TensorBytes>;

    async fn tensor_stats(&self, path: LinkName, name: String) -> Result<TensorStats>;
}

//! [`Node`]: the single handle that all front-ends use.
//!
//! A front-end parses its protocol, calls one method here and renders the result. The Node does not depend on HTTP,
//! and front-ends do not depend on stores and codecs.
//!
//! # Programs that embed it
//!
//! [`Node::open_default`] needs a directory and a Tokio runtime of either flavor, with time and I/O. The directory
//! `examples` of the source has programs.
//!
//! * **Durability.** When a method that adds, pins, unpins or removes returns, its effect survives a crash of the
//!   process and a power failure. With [`Durability::Os`], blocks survive only a crash of the process. Changes of
//!   mutable files without a flush are durable after the next flush or [`Node::close`].
//! * **Garbage.** [`Node::gc`] removes all blocks to which neither a pin nor a mutable file leads. Nothing else removes
//!   blocks, except calls that name them, and `store.max_bytes`, which evicts what was fetched from other nodes.
//! * **Cancellation.** A future or stream may be dropped at any time. Reads, imports and gc end soon. A change of pins
//!   or mutable files is made completely, or not at all. A block whose put was dropped may or may not be stored.
//! * **Full disk.** [`ErrorKind::NoSpace`] needs no restart: the same call succeeds once there is space. Reads, unpins
//!   and gc continue meanwhile.
//! * **Failed disk.** If a put is [`ErrorKind::Unavailable`], the store refuses changes until the node is opened again.
//!   Reads continue.
//! * **End.** [`Node::close`] stores what was not flushed and releases the directory. Without it, nothing that is
//!   durable is lost, and the next open reads and verifies at most the last 64 MiB of blocks, or one larger put.
//! * **Effects on the process.** The store maps files, and installs a handler for SIGBUS, which passes all other faults
//!   to the previous one. It runs threads of its own. If the length of files is limited (`RLIMIT_FSIZE`), the program
//!   must ignore SIGXFSZ: then a file that becomes too long is [`ErrorKind::NoSpace`].

mod blocking;
mod blocks;
mod config;
mod content;
mod dag;
mod denylist;
mod durable_directory;
mod events;
mod fetched;
mod filestore;
mod fingerprint;
mod gc;
mod import;
mod ingest;
mod keys;
mod metrics;
mod mutable_files;
mod names;
mod node;
mod node_store;
mod open;
mod operations;
mod peers;
#[cfg(feature = "pinning")]
mod pin_requests;
mod pins;
pub mod private_file;
mod problems;
mod readiness;
mod refusals;
#[cfg(feature = "pinning")]
mod remote_pins;
mod retrieval;
mod snapshots;
mod tensors;
mod to_the_end;
mod trace;
mod uploads;

pub use blocking::off_workers;
pub use blocks::{BatchItem, BatchPut, BatchPutOutcome, BlockFormat, PutBlock, PutBlockOptions, TransactionStatus};
pub use config::{BatchConfig, CacheConfig, ConcurrencyConfig, ImportConfig, NodeConfig};
pub use content::{
    Archive, CarScope, ContentPath, EntityBytes, FileContent, Listed, ListedKind, ListedPage, Object, ObjectInfo,
    ObjectKind, PathCar, ResolvedPath,
};
pub use dag::{
    DagExport, DagImport, DagImportOptions, DagLink, DagPath, DagSize, DagStats, DifferenceKind, ImportedDags,
    LinkChange, LinkDifference, LinkWalkOptions, PatchOptions, PutNode, block_links,
};
pub use denylist::{DenylistReport, NewDenylists, check_denylists, inspect_denylist};
pub use events::{Delivered, EncodedEvents, Event, EventBatch, EventData, EventWatch, GcPhase, Topic};
pub use gc::{GcEvent, GcOptions, GcReport, Removal, Repair, Repaired, Verified, Verifying};
pub use import::{AddOptions, AddPathOptions, AddSession, Added};
pub use ingest::{IngestConfig, IngestName, IngestObject, IngestStore};
pub use ipfrs_core::hash::HashFunction;
/// Types of content IDs, blocks and errors.
pub use ipfrs_core::{Block, Cid, Error, ErrorKind, Result, codec, identity_payload};
pub use ipfrs_ipns::{KeyType, MAX_RECORD_BYTES, Name, Record};
/// Attempts of a retrieval, and its configuration.
#[cfg(feature = "retrieval")]
pub use ipfrs_retrieval::{Attempt, Ended, Outcome, RetrievalConfig, SourceKind, Unretrieved};
/// Types for implementing a custom storage engine; see [`NodeBuilder::engine`].
pub use ipfrs_store::{
    Admission, BlockBatch, BlockStore, CompactOptions, Compacted, DropStale, MemoryStore, Section, Spared, admit,
    refuse_all,
};
pub use ipfrs_store::{
    DamagedPack, Disk, Durability, Engine, EpochCache, FileState, Footprint, LinkedPack, Mappings, PACK_HEADER, Pin,
    PinMode, Provenance, PutMode, Reference, ReferenceOrder, Reserve, Stats, StoreConfig, StoreEpoch, Stored,
    is_panic_an_error, lock_holder, sync_directory,
};
/// Tests of a custom storage engine.
#[cfg(feature = "testing")]
pub use ipfrs_store::{engine_tests, testing};
pub use ipfrs_stream::car;
pub use ipfrs_stream::{Bandwidth, Span, StreamingConfig, gathered};
pub use ipfrs_tensor::{
    Catalogue, Dtype, FileFormat, Order, Slice, Summary, TensorFormat, TensorInfo, safetensors_head,
};
pub use ipfrs_unixfs::dag_pb::PbLink;
/// How [`Node::add_path`] walks over a local tree.
pub use ipfrs_unixfs::local_tree::{IgnoreRules, WalkOptions, size_of_tree};
pub use ipfrs_unixfs::{
    Attributes, Chunker, CidFormat, DirectorySize, EntryKind, Layout, LinkName, Mtime, Place, Profile, leads_nowhere,
};
pub use keys::Identity;
#[cfg(feature = "keys")]
pub use keys::{KeyFormat, NamedKey, export_key, key_id};
pub use metrics::CacheMeter;
pub use mutable_files::{
    CopySource, MutableAttribute, MutableEntry, MutableFilesConfig, MutableListing, MutablePath, WriteOptions,
};
pub use names::{Answers, IpnsConfig, Link, NameRoot, ResolvedName};
#[cfg(feature = "dns")]
pub use names::{DnsConfig, ResolverList};
#[cfg(feature = "keys")]
pub use names::{PublishOptions, PublishedName};
pub use node::{DiskSpace, Node};
pub use node_store::ReadConfig;
pub use open::NodeBuilder;
pub use operations::{OperationId, OperationKind, OperationState, Progress};
pub use peers::{BootstrapChange, ConnectedPeer, ExchangeTotals, PeerLedger, PeerPinger};
#[cfg(feature = "pinning")]
pub use pin_requests::{NameMatch, PinRequestFilter, PinningConfig};
pub use pins::{PinFilter, PinOptions, Pinned, VerifiedPin, Walked, check_pin_name};
/// The registry that receives the metrics of a node.
pub use prometheus::Registry;
pub use refusals::Limit;
#[cfg(feature = "pinning")]
pub use remote_pins::{PinningService, RemotePinFilter};
#[cfg(feature = "retrieval")]
pub use retrieval::Retrieved;
pub use retrieval::{
    Expected, RequestContext, current_client, current_context, expecting, with_client, with_context, within_context,
};
pub use snapshots::Snapshot;
pub use tensors::{NewTensor, TensorConfig, TensorContent, TensorFile, TensorOperation, TensorPart, TensorRequest};
pub use to_the_end::to_the_end;
pub use trace::{TRACE_TARGET, propagate_traces};
pub use uploads::{NewUpload, UploadConfig, UploadOptions, UploadStatus, Uploaded};

/// Parsers of files and nodes, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a denylist; see `fuzz/fuzz_targets/denylist.rs`.
    pub fn denylist(bytes: &[u8]) {
        crate::denylist::fuzzing::read(bytes);
    }

    /// Converts a node between all codecs; see `fuzz/fuzz_targets/dag_node.rs`.
    pub fn dag_node(bytes: &[u8]) {
        crate::dag::fuzzing::convert_all(bytes);
    }

    /// Reads a journal; see `fuzz/fuzz_targets/ingest_journal.rs`.
    pub fn ingest_journal(first: u64, records: &[(u8, &[u8])], rest: &[u8], size: u64) {
        crate::ingest::fuzzing::read(first, records, rest, size);
    }

    /// Reads the file with the root of the mutable files; see `fuzz/fuzz_targets/mutable_files_root.rs`.
    pub fn mutable_files_root(lines: Option<[&str; 3]>, bytes: &[u8]) {
        crate::mutable_files::fuzzing::read(lines, bytes);
    }
}

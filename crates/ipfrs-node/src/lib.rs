//! [`Node`]: the single handle that all front-ends use.
//!
//! A front-end parses its protocol, calls one method here and renders the result. The Node does not depend on HTTP,
//! and front-ends do not depend on stores and codecs.

mod blocks;
mod config;
mod content;
mod dag;
mod denylist;
mod fingerprint;
mod gc;
mod import;
mod keys;
mod metrics;
mod names;
mod node;
mod node_store;
mod operations;
mod pins;
mod readiness;
mod refusals;
mod tensors;
mod uploads;

pub use blocks::{BatchItem, BatchPut, BatchPutOutcome, BlockFormat, PutBlock, TransactionStatus};
pub use config::{BatchConfig, CacheConfig, ConcurrencyConfig, ImportConfig, NodeConfig};
pub use content::{
    Archive, CarScope, ContentPath, EntityBytes, FileContent, Listed, ListedKind, ListedPage, Object, ObjectInfo,
    ObjectKind, PathCar, ResolvedPath, saved_name,
};
pub use dag::{DagExport, DagImport, DagPath, DagSize, DagStats, ImportedDags, PutNode};
pub use denylist::{DenylistReport, check_denylists, inspect_denylist};
pub use gc::{GcEvent, GcReport, Removal, Verified, Verifying};
pub use import::{AddOptions, AddSession, Added};
pub use ipfrs_ipns::{KeyType, MAX_RECORD_BYTES, Name, Record};
/// Types for implementing a custom storage engine; see [`Node::over`].
pub use ipfrs_store::{BlockBatch, BlockStore, CompactOptions, Compacted, DropStale, MemoryStore, Section, Spared};
pub use ipfrs_store::{
    DamagedPack, Disk, EpochCache, Mappings, PinMode, PutMode, Reserve, Stats, StoreConfig, StoreEpoch, Stored,
};
pub use ipfrs_stream::car;
pub use ipfrs_stream::{Bandwidth, Span, StreamingConfig};
pub use ipfrs_tensor::{
    Catalogue, Dtype, FileFormat, Order, Slice, Summary, TensorFormat, TensorInfo, safetensors_head,
};
pub use ipfrs_unixfs::{Attributes, Chunker, Layout, LinkName, Mtime, Place, Profile, leads_nowhere};
pub use keys::{Identity, KeyFormat, NamedKey, export_key};
pub use metrics::CacheMeter;
pub use names::{
    Answers, DnsConfig, IpnsConfig, Link, NameRoot, PublishOptions, PublishedName, ResolvedName, ResolverList,
};
pub use node::Node;
pub use node_store::RetrievalConfig;
pub use operations::{OperationId, OperationKind, OperationState, Progress};
pub use pins::{PinFilter, PinOptions, Pinned, VerifiedPin, Walked};
pub use refusals::Limit;
pub use tensors::{NewTensor, TensorConfig, TensorContent, TensorFile, TensorOperation, TensorPart, TensorRequest};
pub use uploads::{NewUpload, UploadConfig, UploadOptions, UploadStatus, Uploaded};

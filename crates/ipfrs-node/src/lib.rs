//! [`Node`]: the single handle that all front-ends use.
//!
//! A front-end parses its protocol, calls one method here and renders the result. The Node does not depend on HTTP,
//! and front-ends do not depend on stores and codecs.

mod add;
mod archive;
mod blocks;
mod client;
mod config;
mod dag;
mod dag_import;
mod dag_node;
mod deadline;
mod denylist;
mod fair_pool;
mod files;
mod fingerprint;
mod gc;
mod identity;
mod keystore;
mod lifecycle;
mod listing;
mod metrics;
mod names;
mod network;
mod node;
mod node_store;
mod object_info;
mod operations;
mod path;
mod path_car;
mod pin_list;
mod pins;
mod protection;
mod reachable;
mod readiness;
mod refusals;
mod request_ids;
mod request_memory;
mod request_slots;
mod retrieval_timeout;
mod sorted_table;
mod tensors;
mod tree;
mod uploads;
mod verify;

pub use crate::retrieval_timeout::RetrievalConfig;
pub use add::{AddOptions, AddSession, Added};
pub use archive::{Archive, saved_name};
pub use blocks::{BatchItem, BatchPut, BatchPutOutcome, BlockFormat, PutBlock, TransactionStatus};
pub use client::{Client, TrustedProxies};
pub use config::{BatchConfig, CacheConfig, ConcurrencyConfig, ImportConfig, NodeConfig};
pub use dag::{DagExport, DagPath, DagSize, DagStats};
pub use dag_import::{DagImport, ImportedDags};
pub use dag_node::PutNode;
pub use deadline::RequestDeadline;
pub use denylist::{DenylistReport, check_denylists, inspect_denylist};
pub use files::{FileContent, Object, ObjectKind, PathFacts};
pub use gc::{GcEvent, GcReport, Removal};
pub use identity::Identity;
pub use ipfrs_ipns::{KeyType, MAX_RECORD_BYTES, Name, Record};
/// Types for implementing a custom storage engine; see [`Node::over`].
pub use ipfrs_store::{BlockBatch, BlockStore, CompactOptions, Compacted, DropStale, MemoryStore, Section, Spared};
pub use ipfrs_store::{DamagedPack, Disk, EpochCache, Mappings, PinMode, PutMode, Reserve, Stats, StoreConfig, Stored};
pub use ipfrs_stream::car;
pub use ipfrs_stream::{Bandwidth, Span, StreamingConfig};
pub use ipfrs_tensor::{
    Catalogue, Dtype, FileFormat, Order, Slice, Summary, TensorFormat, TensorInfo, safetensors_head,
};
pub use ipfrs_unixfs::{Attributes, Chunker, Layout, LinkName, Mtime, Place, Profile, leads_nowhere};
pub use keystore::{KeyFormat, NamedKey, export_key};
pub use lifecycle::Lifecycle;
pub use listing::{Listed, ListedKind, ListedPage};
pub use metrics::CacheMeter;
pub use names::{
    Answers, DnsConfig, IpnsConfig, Link, NameRoot, PublishOptions, PublishedName, ResolvedName, ResolverList,
};
pub use network::Network;
pub use node::Node;
pub use object_info::ObjectInfo;
pub use operations::{OperationId, OperationKind, OperationState, Progress};
pub use path::ContentPath;
pub use path_car::{CarScope, EntityBytes, PathCar};
pub use pin_list::{PinFilter, Pinned, VerifiedPin};
pub use pins::{PinOptions, Walked};
pub use refusals::Limit;
pub use request_ids::RequestIds;
pub use request_memory::RequestMemory;
pub use request_slots::{Held, NoPermit, RequestSlot, RequestSlots, Requests};
pub use tensors::{NewTensor, TensorConfig, TensorContent, TensorFile, TensorOperation, TensorPart, TensorRequest};
pub use uploads::{NewUpload, UploadConfig, UploadOptions, UploadStatus, Uploaded};
pub use verify::{Verified, Verifying};

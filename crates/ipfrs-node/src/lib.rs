//! [`Node`]: the one handle that every front-end sees.
//!
//! A front-end parses its protocol, calls one method here and renders the answer. The Node knows nothing of HTTP, and
//! front-ends know nothing of stores and codecs.

mod add;
mod archive;
mod blocks;
mod config;
mod files;
mod dag;
mod dag_import;
mod identity;
mod metered;
mod metrics;
mod node;
mod operations;
mod path;
mod uploads;

pub use add::{AddOptions, AddSession, Added};
pub use blocks::{BatchPut, BatchPutOutcome, BlockFormat, PutBlock, TransactionStatus};
pub use config::{BatchConfig, CacheConfig, ConcurrencyConfig, ImportConfig, NodeConfig};
pub use files::{FileContent, Listed, ListedKind, Object, ObjectKind, PathFacts};
pub use identity::Identity;
pub use ipfrs_store::{Mappings, PutMode, Stats, StoreConfig, Stored};
pub use ipfrs_stream::car;
pub use ipfrs_stream::{Bandwidth, Span, StreamingConfig};
pub use ipfrs_unixfs::{Attributes, Chunker, Layout, Mtime, Profile};
pub use metrics::CacheMeter;
pub use archive::{Archive, saved_name};
pub use node::{Node, Room};
pub use operations::{OperationId, OperationKind, OperationState, Progress};
pub use path::ContentPath;
pub use dag::{DagExport, DagPath, DagSize, DagStats};
pub use dag_import::{DagImport, ImportedDags};
pub use uploads::{UploadConfig, UploadOptions, Uploaded};

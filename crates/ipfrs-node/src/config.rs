//! Configuration sections of the Node.

pub(crate) mod ranges;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipfrs_core::Result;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
#[cfg(feature = "retrieval")]
use ipfrs_retrieval::RetrievalConfig;
use ipfrs_stream::StreamingConfig;
use ipfrs_unixfs::Profile;
use serde::Deserialize;

use self::ranges::in_range;
use crate::ingest::IngestConfig;
use crate::names::IpnsConfig;
#[cfg(feature = "dns")]
use crate::names::dnslink::DnsConfig;
use crate::names::dnslink::check_configured;
use crate::node_store::ReadConfig;
#[cfg(feature = "pinning")]
use crate::pin_requests::PinningConfig;
use crate::{TensorConfig, UploadConfig};

/// Configuration of the Node, by section.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeConfig {
    /// `[batch]`.
    pub batch: BatchConfig,
    /// `[cache]`.
    pub cache: CacheConfig,
    /// `[concurrency]`.
    pub concurrency: ConcurrencyConfig,
    /// `gateway.denylists`: files in the compact denylist format, or directories of `*.deny` files. Relative paths
    /// start at the repo.
    pub denylists: Vec<PathBuf>,
    /// `[import]`.
    pub import: ImportConfig,
    /// `[ingest]`.
    pub ingest: IngestConfig,
    /// `[ipns]`.
    pub ipns: IpnsConfig,
    /// `[pinning]`.
    #[cfg(feature = "pinning")]
    pub pinning: PinningConfig,
    /// `[streaming]`.
    pub streaming: StreamingConfig,
    /// `[tensor]`.
    pub tensor: TensorConfig,
    /// `[upload]`.
    pub upload: UploadConfig,
    /// `[dns]`.
    #[cfg(feature = "dns")]
    pub dns: DnsConfig,
    /// `[gateway.dnslink]` and `IPFS_NS_MAP`: DNSLink targets of domains that are resolved without DNS.
    pub dnslink: BTreeMap<String, String>,
    /// Settings of `[gateway]` for reading blocks.
    pub reads: ReadConfig,
    /// `[retrieval]`.
    #[cfg(feature = "retrieval")]
    pub retrieval: RetrievalConfig,
}

impl NodeConfig {
    /// Checks every section.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        self.batch.validate()?;
        self.cache.validate()?;
        self.concurrency.validate()?;
        self.ingest.validate()?;
        self.ipns.validate()?;
        #[cfg(feature = "pinning")]
        self.pinning.validate()?;
        self.streaming.validate()?;
        self.upload.validate()?;
        #[cfg(feature = "dns")]
        self.dns.validate()?;
        #[cfg(feature = "retrieval")]
        self.retrieval.validate()?;
        check_configured(&self.dnslink)
    }
}

/// `[batch]`: limits of one batch request.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Maximum number of blocks in one batch request.
    pub max_batch_size: usize,
    /// Maximum payload bytes of a batch that must be held in memory as a whole: JSON bodies and atomic puts.
    pub max_batch_bytes: usize,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { max_batch_size: 1_000, max_batch_bytes: 64 * 1024 * 1024 }
    }
}

impl BatchConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("batch.max_batch_size", self.max_batch_size as u64, 1, 100_000)?;
        in_range("batch.max_batch_bytes", self.max_batch_bytes as u64, MAX_BLOCK_BYTES as u64, 1 << 30)
    }
}

/// `[cache]`: limits of the in-memory caches and the `max-age` for clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Whether resolved paths and decoded nodes are cached in memory.
    pub enabled: bool,
    /// Maximum number of entries of each cache.
    pub max_entries: usize,
    /// Maximum bytes of cached resolved paths. The same limit applies again to the cached inner nodes of files and to
    /// the cached tensor catalogues.
    pub max_bytes: u64,
    /// `max-age` of immutable responses, in seconds.
    pub max_age_seconds: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { enabled: true, max_entries: 100_000, max_bytes: 64 * 1024 * 1024, max_age_seconds: 29_030_400 }
    }
}

impl CacheConfig {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("cache.max_entries", self.max_entries as u64, 1, 100_000_000)?;
        in_range("cache.max_bytes", self.max_bytes, 64 * 1024, 1 << 40)?;
        in_range("cache.max_age_seconds", self.max_age_seconds, 0, 10 * 31_536_000)
    }
}

/// `[concurrency]`: limits of concurrent work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConcurrencyConfig {
    /// Maximum number of concurrent imports. Further imports wait for a permit for at most 30 seconds.
    pub max_concurrent_tasks: usize,
}

impl Default for ConcurrencyConfig {
    fn default() -> Self {
        Self { max_concurrent_tasks: 100 }
    }
}

impl ConcurrencyConfig {
    /// Checks the range.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("concurrency.max_concurrent_tasks", self.max_concurrent_tasks as u64, 1, 100_000)
    }
}

/// `[import]`: defaults of `add` for options that a request does not set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportConfig {
    /// Default profile: `"unixfs-v0-2015"` (the same content IDs as Kubo's default) or `"unixfs-v1-2025"`.
    pub profile: Profile,
}

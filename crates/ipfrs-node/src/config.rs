//! Configuration sections of the Node.

pub(crate) mod ranges;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, Result};
#[cfg(feature = "retrieval")]
use ipfrs_retrieval::RetrievalConfig;
use ipfrs_stream::StreamingConfig;
use ipfrs_unixfs::{Chunker, DirectorySize, ImportOptions, Layout, Overrides, Profile};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use self::ranges::in_range;
use crate::ingest::IngestConfig;
use crate::mutable_files::MutableFilesConfig;
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
    /// `[mutable_files]`.
    pub mutable_files: MutableFilesConfig,
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
        self.import.validate()?;
        self.ingest.validate()?;
        self.ipns.validate()?;
        self.mutable_files.validate()?;
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

/// Size of the smallest default chunk, in bytes. A write to a mutable file holds the leaves of 2 MiB in memory.
const MIN_CHUNK_BYTES: usize = 256;

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

/// `[import]`: defaults of imports and mutable files, and the hash of `block/put` and `dag/put` of the RPC, for options
/// that a request does not set. They do not apply to a request that names a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImportConfig {
    /// Default profile: `"unixfs-v0-2015"` (the same content IDs as Kubo's default) or `"unixfs-v1-2025"`.
    pub profile: Profile,
    /// Version of content IDs, 0 or 1. Version 1 implies raw leaves, as in Kubo.
    pub cid_version: Option<u64>,
    /// Whether leaves are raw blocks.
    pub raw_leaves: Option<bool>,
    /// Chunker of files, such as `"size-1048576"`.
    #[serde(deserialize_with = "parsed")]
    pub chunker: Option<Chunker>,
    /// Hash function of content IDs, such as `"sha2-256"`.
    #[serde(deserialize_with = "hash_function")]
    pub hash: Option<HashFunction>,
    /// Layout of the nodes above the leaves: `"balanced"` or `"trickle"`. Mutable files always have a trickle layout.
    pub layout: Option<Layout>,
    /// Maximum number of links of an inner node of a file; not of mutable files.
    pub max_file_links: Option<usize>,
    /// Size of a directory in bytes above which it is sharded, at least 1.
    pub sharding_threshold_bytes: Option<usize>,
    /// The size that is compared with that threshold: `"links"` (of the names and content IDs), `"block"` (of the
    /// block) or `"disabled"` (only the number of entries decides).
    pub directory_size: Option<DirectorySize>,
    /// Maximum number of entries of an unsharded directory; 0 for no limit.
    pub max_directory_links: Option<usize>,
    /// Fan-out of HAMT directory shards.
    pub max_hamt_fanout: Option<u32>,
}

impl ImportConfig {
    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the option and the accepted values.
    pub fn validate(&self) -> Result<()> {
        if self.hash == Some(HashFunction::Identity) {
            let message =
                "import.hash = \"identity\" is only for blocks of up to 128 bytes: name it in single requests";
            return Err(Error::invalid(message));
        }
        let chunker = self.options()?.chunker();
        if chunker.min_chunk_bytes() < MIN_CHUNK_BYTES {
            return Err(Error::invalid(format!(
                "import.chunker = \"{chunker}\" makes chunks of less than {MIN_CHUNK_BYTES} bytes: use a larger size, \
                 or name such a chunker in single requests"
            )));
        }
        Ok(())
    }

    /// Returns the options of imports that set nothing themselves.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the settings contradict each other.
    pub fn options(&self) -> Result<ImportOptions> {
        let options = ImportOptions::new(self.named_profile(), self.overrides());
        options.map_err(|e| Error::invalid(format!("[import]: {e}")))
    }

    /// Returns the profile. The default one is Kubo's behavior without a profile, where CIDv1 implies raw leaves.
    pub(crate) fn named_profile(&self) -> Option<Profile> {
        Some(self.profile).filter(|profile| *profile != Profile::default())
    }

    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            cid_version: self.cid_version,
            raw_leaves: self.raw_leaves,
            chunker: self.chunker,
            hash: self.hash,
            layout: self.layout,
            max_file_links: self.max_file_links,
            sharding_threshold_bytes: self.sharding_threshold_bytes,
            directory_size: self.directory_size,
            max_directory_links: self.max_directory_links,
            hamt_fanout: self.max_hamt_fanout,
            ..Overrides::default()
        }
    }
}

fn parsed<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<Chunker>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(D::Error::custom)
}

fn hash_function<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<HashFunction>, D::Error> {
    let text = String::deserialize(deserializer)?;
    HashFunction::from_name(&text).map(Some).map_err(D::Error::custom)
}

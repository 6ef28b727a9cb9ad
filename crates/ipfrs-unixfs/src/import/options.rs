//! Options that determine the content IDs of an import: profiles (IPIP-499) and their overrides.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_IDENTITY_BYTES;
use ipfrs_core::{Block, Error, Result, codec};
use serde::{Deserialize, Serialize};

use super::chunker::Chunker;
use super::sharding::{DirectorySize, Sharding};
use crate::edit::CidFormat;

/// Most links that a file node may have. Such a node fits into a block even with digests of 64 bytes.
const MAX_FILE_LINKS: usize = 16_384;

/// A named set of import parameters (<https://specs.ipfs.tech/ipips/ipip-0499/>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Profile {
    /// The defaults of Kubo: CIDv0, dag-pb leaves of 256 KiB, 174 links per file node.
    #[default]
    #[serde(rename = "unixfs-v0-2015")]
    UnixfsV0_2015,
    /// CIDv1, raw leaves of 1 MiB, 1,024 links per file node.
    #[serde(rename = "unixfs-v1-2025")]
    UnixfsV1_2025,
}

impl Profile {
    /// Every profile, in the order in which messages list them.
    pub const ALL: [Self; 2] = [Self::UnixfsV0_2015, Self::UnixfsV1_2025];

    /// Returns the name in the specification.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnixfsV0_2015 => "unixfs-v0-2015",
            Self::UnixfsV1_2025 => "unixfs-v1-2025",
        }
    }

    fn options(self) -> ImportOptions {
        match self {
            Self::UnixfsV0_2015 => ImportOptions {
                cid_version: 0,
                raw_leaves: false,
                attributes: false,
                hash: HashFunction::Sha2_256,
                inline_limit: None,
                chunker: Chunker::default(),
                layout: Layout::Balanced,
                max_file_links: 174,
                sharding: Sharding::default(),
            },
            Self::UnixfsV1_2025 => ImportOptions {
                cid_version: 1,
                raw_leaves: true,
                attributes: false,
                hash: HashFunction::Sha2_256,
                inline_limit: None,
                chunker: Chunker::Size(1024 * 1024),
                layout: Layout::Balanced,
                max_file_links: 1024,
                sharding: Sharding { size: DirectorySize::Block, ..Sharding::default() },
            },
        }
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an unknown name. The message lists the known
    /// names.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or_else(|| {
            Error::invalid(format!("unknown import profile {name:?}: use {}", Self::ALL.map(Self::name).join(" or ")))
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arrangement of nodes above the leaves of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// A tree in which all leaves have equal depth.
    #[default]
    Balanced,
    /// A tree whose first leaves are directly below the root and whose later leaves are deeper. Suited to content
    /// that is read from its beginning.
    Trickle,
}

impl Layout {
    /// Returns the layout that Kubo's option `trickle` selects.
    #[must_use]
    pub fn of_trickle(is_trickle: bool) -> Self {
        if is_trickle { Self::Trickle } else { Self::Balanced }
    }
}

/// Options of a request that override its profile. `None` keeps the value of the profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Version of the CIDs: 0 or 1.
    pub cid_version: Option<u64>,
    /// Whether leaves are raw blocks instead of dag-pb.
    pub raw_leaves: Option<bool>,
    /// Hash function of every CID. Any function except sha2-256 makes the CID version 1.
    pub hash: Option<HashFunction>,
    /// Largest block, in bytes and at most 128, that is inlined into its CID. Such a CID is an identity CID of
    /// version 1, and the block is not stored.
    pub inline_limit: Option<usize>,
    /// Whether the imported content may have attributes. As in Kubo, leaves are then never raw, because raw leaves
    /// cannot hold attributes.
    pub attributes: bool,
    /// Chunker for files.
    pub chunker: Option<Chunker>,
    /// Arrangement of the nodes above the leaves.
    pub layout: Option<Layout>,
    /// Most links of a file node, or most leaves of a node in the trickle layout: 2 to 16,384.
    pub max_file_links: Option<usize>,
    /// Number of entries above which a directory is sharded whatever its size; 0 means no limit.
    pub max_directory_links: Option<usize>,
    /// Fan-out of directory shards: a power of two from 8 to 1,024.
    pub hamt_fanout: Option<u32>,
    /// Size in bytes, at least 1, above which a directory is sharded.
    pub sharding_threshold_bytes: Option<usize>,
    /// The size of a directory that is compared with that threshold.
    pub directory_size: Option<DirectorySize>,
}

/// The options that determine the content IDs of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportOptions {
    pub(crate) cid_version: u64,
    pub(crate) raw_leaves: bool,
    pub(crate) attributes: bool,
    pub(crate) hash: HashFunction,
    pub(crate) inline_limit: Option<usize>,
    pub(crate) chunker: Chunker,
    pub(crate) layout: Layout,
    pub(crate) max_file_links: usize,
    pub(crate) sharding: Sharding,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Profile::default().options()
    }
}

impl ImportOptions {
    /// Returns the options of `profile` with `overrides`, by Kubo's rules.
    ///
    /// Without a profile, the options are those of the default profile, except that `cid_version` 1 implies raw
    /// leaves unless `raw_leaves` says otherwise. An explicit profile defines its leaves itself.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid option; the message names the option
    /// and its accepted values. Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a hash function that
    /// imports cannot use.
    pub fn new(profile: Option<Profile>, overrides: Overrides) -> Result<Self> {
        let base = profile.unwrap_or_default().options();
        let hash = overrides.hash.unwrap_or(base.hash);
        let cid_version = cid_version(overrides.cid_version, base.cid_version, hash)?;
        let implied_raw_leaves = profile.is_none() && cid_version > 0;
        Ok(Self {
            cid_version,
            raw_leaves: raw_leaves(&overrides, base.raw_leaves || implied_raw_leaves)?,
            attributes: overrides.attributes,
            hash,
            inline_limit: overrides.inline_limit.map(inline_limit).transpose()?,
            chunker: overrides.chunker.unwrap_or(base.chunker).check()?,
            layout: overrides.layout.unwrap_or(base.layout),
            max_file_links: max_file_links(overrides.max_file_links.unwrap_or(base.max_file_links))?,
            sharding: Sharding {
                size: overrides.directory_size.unwrap_or(base.sharding.size),
                threshold_bytes: overrides.sharding_threshold_bytes.unwrap_or(base.sharding.threshold_bytes),
                max_links: overrides.max_directory_links.filter(|links| *links > 0),
                fanout: overrides.hamt_fanout.unwrap_or(base.sharding.fanout),
            }
            .check()?,
        })
    }

    /// Returns the CID version of nodes. Raw leaves always have version 1.
    #[must_use]
    pub fn cid_version(&self) -> u64 {
        self.cid_version
    }

    /// Returns whether leaves are raw blocks.
    #[must_use]
    pub fn raw_leaves(&self) -> bool {
        self.raw_leaves
    }

    /// Returns the hash function of content IDs.
    #[must_use]
    pub fn hash(&self) -> HashFunction {
        self.hash
    }

    /// Returns the arrangement of the nodes of a file.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the maximum number of links of a file node.
    #[must_use]
    pub fn max_file_links(&self) -> usize {
        self.max_file_links
    }

    /// Returns when and how directories are sharded.
    #[must_use]
    pub fn sharding(&self) -> Sharding {
        self.sharding
    }

    /// Returns the format of the content IDs of nodes.
    #[must_use]
    pub fn cid_format(&self) -> CidFormat {
        CidFormat::from_parts(self.cid_version, self.hash)
    }

    /// Creates the block of `data`, with the CID that these options define.
    pub(crate) fn block(&self, codec: u64, data: Bytes) -> Result<Block> {
        if self.inline_limit.is_some_and(|limit| data.len() <= limit) {
            return Block::hash(1, codec, HashFunction::Identity, data);
        }
        Block::hash(self.version_of(codec), codec, self.hash, data)
    }

    /// Creates a block for each of `data`, like [`Self::block`].
    pub(crate) fn blocks(&self, codec: u64, data: Vec<Bytes>) -> Result<Vec<Block>> {
        match self.inline_limit {
            // The size of each block decides whether it is inlined.
            Some(_) => data.into_iter().map(|data| self.block(codec, data)).collect(),
            None => Block::hash_all(self.version_of(codec), codec, self.hash, data),
        }
    }

    fn version_of(&self, codec: u64) -> u64 {
        if codec == codec::RAW { 1 } else { self.cid_version }
    }

    /// Returns the chunker for files.
    #[must_use]
    pub fn chunker(&self) -> Chunker {
        self.chunker
    }
}

fn raw_leaves(overrides: &Overrides, base: bool) -> Result<bool> {
    match overrides.raw_leaves {
        Some(true) if overrides.attributes => {
            Err(Error::invalid("raw-leaves can't be used with UnixFS metadata like mode or modification time"))
        }
        _ if overrides.attributes => Ok(false),
        requested => Ok(requested.unwrap_or(base)),
    }
}

fn cid_version(requested: Option<u64>, base: u64, hash: HashFunction) -> Result<u64> {
    match requested {
        None if hash != HashFunction::Sha2_256 => Ok(1),
        None => Ok(base),
        Some(0) if hash != HashFunction::Sha2_256 => {
            Err(Error::invalid(format!("CIDv0 only supports sha2-256: use CID version 1 with {}", hash.name())))
        }
        Some(version @ (0 | 1)) => Ok(version),
        Some(other) => Err(Error::invalid(format!("unknown CID version: {other}: use 0 or 1"))),
    }
}

fn inline_limit(limit: usize) -> Result<usize> {
    if limit > MAX_IDENTITY_BYTES {
        return Err(Error::invalid(format!(
            "inline-limit {limit} exceeds maximum allowed size of {MAX_IDENTITY_BYTES} bytes"
        )));
    }
    Ok(limit)
}

fn max_file_links(links: usize) -> Result<usize> {
    if !(2..=MAX_FILE_LINKS).contains(&links) {
        return Err(Error::invalid(format!("max-file-links {links} is not within 2 to {MAX_FILE_LINKS}")));
    }
    Ok(links)
}

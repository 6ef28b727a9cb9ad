//! Global limits. Each limit is enforced where bytes enter the process.

/// Largest block that is made or accepted, in bytes: 2 MiB, the size that every peer accepts (Bitswap specification,
/// "Block Sizes").
pub const MAX_BLOCK_BYTES: usize = 2 * 1024 * 1024;

/// Largest block that is stored, in bytes, if the user explicitly allows big blocks: 4 MiB. Many peers accept no block
/// over [`MAX_BLOCK_BYTES`], and none a Bitswap message over 4 MiB.
pub const MAX_BIG_BLOCK_BYTES: usize = 4 * 1024 * 1024;

/// Largest digest of an identity multihash, in bytes: 128, as in Kubo and boxo (`verifcid`).
pub const MAX_IDENTITY_BYTES: usize = 128;

/// Largest chunk that a chunker may produce, in bytes: 2 MiB less 256 bytes, as in boxo. A dag-pb leaf with its
/// framing then stays within [`MAX_BLOCK_BYTES`].
pub const MAX_CHUNK_BYTES: usize = MAX_BLOCK_BYTES - 256;

/// Most segments of a content path (`/ipfs/{cid}/a/b/c` has three).
pub const MAX_PATH_SEGMENTS: usize = 256;

/// Most distinct blocks that one walk over a DAG visits: 4 TiB of blocks of 256 KiB, which takes about 600 MB of
/// memory.
pub const MAX_DAG_BLOCKS: usize = 16 * 1024 * 1024;

/// Most links of one block. A block of [`MAX_BLOCK_BYTES`] cannot hold as many links with digests of 32 bytes, so
/// only blocks that were crafted to be expensive exceed this limit.
pub const MAX_BLOCK_LINKS: usize = 65_536;

/// Deepest nesting of lists and maps in one block of dag-cbor or dag-json. Common parsers of both formats have the
/// same limit.
pub const MAX_BLOCK_NESTING: usize = 127;

//! Bounds that hold everywhere. Each is enforced where bytes enter the process.

/// Largest block that is stored or accepted: 2 MiB, the size that public peers accept (Bitswap specification, "Block
/// Sizes").
pub const MAX_BLOCK_BYTES: usize = 2 * 1024 * 1024;

/// Largest digest of an identity multihash, as in Kubo and boxo (`verifcid`): 128 bytes.
pub const MAX_IDENTITY_BYTES: usize = 128;

/// Largest chunk that a chunker may make, so that a dag-pb leaf with its framing stays within
/// [`MAX_BLOCK_BYTES`]: 2 MiB less 256 bytes, as in boxo.
pub const MAX_CHUNK_BYTES: usize = MAX_BLOCK_BYTES - 256;

/// Most segments of a content path (`/ipfs/{cid}/a/b/c` has three).
pub const MAX_PATH_SEGMENTS: usize = 256;

/// Most different blocks that one walk over a DAG visits: 4 TiB of blocks of 256 KiB, for some 600 MB of memory.
pub const MAX_DAG_BLOCKS: usize = 16 * 1024 * 1024;

/// Most links of one block: more than [`MAX_BLOCK_BYTES`] hold of links with digests of 32 bytes, so that only blocks that
/// were made to be expensive are over it.
pub const MAX_BLOCK_LINKS: usize = 65_536;

/// Deepest nesting of lists and maps in one block of dag-cbor or dag-json: what the usual parsers of both read.
pub const MAX_BLOCK_NESTING: usize = 127;

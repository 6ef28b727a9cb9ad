//! Hash functions of content IDs, by multicodec code.
//!
//! The SHA functions come from aws-lc-rs, which uses the SHA extensions or vector units of the machine. The blake3
//! and blake2 crates also use vector units. SHA2-256 of many messages, the main cost of imports, is computed in
//! several lanes if that is faster.

#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod simd;

use aws_lc_rs::digest::{Algorithm, SHA3_256, SHA256, SHA512};
use sha3::Digest as _;

use crate::limits::MAX_IDENTITY_BYTES;
use crate::{Cid, Error, Multihash, Result};

/// Multicodec code of SHA2-256.
pub const SHA2_256: u64 = 0x12;
/// Multicodec code of the identity multihash, whose digest is the data itself.
pub const IDENTITY: u64 = 0x00;

/// A hash function that content IDs may use here. To add a function, add a variant, a row of `properties` and an arm of
/// [`digest`].
///
/// [`digest`]: HashFunction::digest
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashFunction {
    /// SHA2-256, the default.
    #[default]
    Sha2_256,
    /// SHA2-512.
    Sha2_512,
    /// SHA3-256, as in FIPS 202.
    Sha3_256,
    /// Keccak-256 with the padding from before FIPS 202, as used by Ethereum.
    Keccak256,
    /// BLAKE2b with a digest of 32 bytes.
    Blake2b256,
    /// BLAKE3 with a digest of 32 bytes.
    Blake3,
    /// The data itself, for at most [`MAX_IDENTITY_BYTES`] bytes.
    Identity,
}

impl HashFunction {
    /// Every function, in the order in which messages list them.
    pub const ALL: [Self; 7] = [
        Self::Sha2_256,
        Self::Sha2_512,
        Self::Sha3_256,
        Self::Keccak256,
        Self::Blake2b256,
        Self::Blake3,
        Self::Identity,
    ];

    /// Returns the multicodec code, the name (<https://github.com/multiformats/multicodec/blob/master/table.csv>),
    /// and the digest length in bytes.
    const fn properties(self) -> (u64, &'static str, Option<usize>) {
        match self {
            Self::Sha2_256 => (SHA2_256, "sha2-256", Some(32)),
            Self::Sha2_512 => (0x13, "sha2-512", Some(64)),
            Self::Sha3_256 => (0x16, "sha3-256", Some(32)),
            Self::Keccak256 => (0x1b, "keccak-256", Some(32)),
            Self::Blake2b256 => (0xb220, "blake2b-256", Some(32)),
            Self::Blake3 => (0x1e, "blake3", Some(32)),
            Self::Identity => (IDENTITY, "identity", None),
        }
    }

    /// Returns the multicodec code.
    #[must_use]
    pub fn code(self) -> u64 {
        self.properties().0
    }

    /// Returns the multicodec name, in the spelling of `--hash` and `mhtype`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.properties().1
    }

    /// Returns the digest length in bytes, or `None` for identity, whose digests have the length of the data.
    #[must_use]
    pub fn digest_bytes(self) -> Option<usize> {
        self.properties().2
    }

    /// Returns the function with this multicodec code.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind) for a code that is not one of [`Self::ALL`].
    pub fn from_code(code: u64) -> Result<Self> {
        Self::ALL.into_iter().find(|function| function.code() == code).ok_or_else(|| {
            Error::unsupported(format!("hash function 0x{code:x} is not supported: use {}", supported_names()))
        })
    }

    /// Returns the function with this multicodec name, ignoring case.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](crate::ErrorKind) for an unknown function. The message names it and lists
    /// the known ones.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|function| function.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::unsupported(format!("hash function {name:?} is not supported: use {}", supported_names()))
        })
    }

    /// Returns the multihash of `data`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](crate::ErrorKind) for an identity hash of more than [`MAX_IDENTITY_BYTES`]
    /// bytes.
    pub fn digest(self, data: &[u8]) -> Result<Multihash> {
        match self {
            Self::Sha2_256 => Ok(sha2_256(data)),
            Self::Sha2_512 => wrap(self.code(), sha(&SHA512, data).as_ref()),
            Self::Sha3_256 => wrap(self.code(), sha(&SHA3_256, data).as_ref()),
            Self::Keccak256 => wrap(self.code(), &sha3::Keccak256::digest(data)),
            Self::Blake2b256 => wrap(self.code(), &blake2::Blake2b256::digest(data)),
            Self::Blake3 => wrap(self.code(), blake3::hash(data).as_bytes()),
            Self::Identity if data.len() > MAX_IDENTITY_BYTES => Err(Error::too_large(format!(
                "an identity multihash holds at most {MAX_IDENTITY_BYTES} bytes, not {}",
                data.len()
            ))),
            Self::Identity => wrap(IDENTITY, data),
        }
    }

    /// Returns the multihashes of several messages, in order, like [`Self::digest`] for each. For several messages of
    /// similar length, SHA2-256 is several times as fast as separate calls.
    ///
    /// # Errors
    /// Returns the first error, as in [`Self::digest`].
    pub fn digests(self, messages: &[&[u8]]) -> Result<Vec<Multihash>> {
        match self {
            Self::Sha2_256 => sha2_256_digests(messages).iter().map(|digest| wrap(SHA2_256, digest)).collect(),
            other => messages.iter().map(|message| other.digest(message)).collect(),
        }
    }
}

fn supported_names() -> String {
    HashFunction::ALL.map(HashFunction::name).join(", ")
}

fn wrap(code: u64, digest: &[u8]) -> Result<Multihash> {
    Multihash::wrap(code, digest).map_err(|e| Error::internal("a digest does not fit in its multihash").with_source(e))
}

fn sha(algorithm: &'static Algorithm, data: &[u8]) -> aws_lc_rs::digest::Digest {
    aws_lc_rs::digest::digest(algorithm, data)
}

/// A SHA2-256 digest.
type Digest = [u8; 32];

fn sha2_256_digest(data: &[u8]) -> Digest {
    let mut digest = [0; 32];
    digest.copy_from_slice(sha(&SHA256, data).as_ref());
    digest
}

#[cfg(target_arch = "x86_64")]
use lanes::digests as sha2_256_digests;

#[cfg(not(target_arch = "x86_64"))]
fn sha2_256_digests(messages: &[&[u8]]) -> Vec<Digest> {
    messages.iter().map(|message| sha2_256_digest(message)).collect()
}

/// Returns the SHA2-256 multihash of `data`.
#[must_use]
pub fn sha2_256(data: &[u8]) -> Multihash {
    // A digest of 32 bytes always fits a multihash of up to 128.
    wrap(SHA2_256, &sha2_256_digest(data)).unwrap_or_default()
}

/// Checks that `data` matches `cid`.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) if the hash differs (the message contains both content IDs),
/// and [`ErrorKind::Unsupported`](crate::ErrorKind) for an unknown hash function.
pub fn verify(cid: &Cid, data: &[u8]) -> Result<()> {
    match HashFunction::from_code(cid.hash().code())? {
        HashFunction::Identity if cid.hash().digest() == data => Ok(()),
        HashFunction::Identity => Err(Error::invalid(format!("the data is not the payload of {cid}"))),
        other => expect(cid, other.digest(data)?),
    }
}

/// Calls [`verify`] for each of several blocks, in order. Faster than separate calls if [`HashFunction::digests`] is.
#[must_use]
pub fn verify_all(blocks: &[(Cid, &[u8])]) -> Vec<Result<()>> {
    let is_sha2_256 = |cid: &Cid| cid.hash().code() == SHA2_256;
    let messages: Vec<&[u8]> = blocks.iter().filter(|(cid, _)| is_sha2_256(cid)).map(|(_, data)| *data).collect();
    let mut found = sha2_256_digests(&messages).into_iter();
    let verified = blocks.iter().map(|(cid, data)| match is_sha2_256(cid).then(|| found.next()).flatten() {
        Some(digest) => expect(cid, wrap(SHA2_256, &digest)?),
        None => verify(cid, data),
    });
    verified.collect()
}

fn expect(cid: &Cid, found: Multihash) -> Result<()> {
    if found == *cid.hash() {
        return Ok(());
    }
    let actual = match cid.version() {
        cid::Version::V0 => Cid::new_v0(found).unwrap_or_else(|_| Cid::new_v1(cid.codec(), found)),
        cid::Version::V1 => Cid::new_v1(cid.codec(), found),
    };
    Err(Error::mismatch(format!("the data does not match its content ID: expected {cid}, but the data has {actual}")))
}

//! Hash functions of content IDs, by multicodec code.
//!
//! The functions of the SHA family come from aws-lc-rs, which uses the machine's SHA extensions or vector units; so do
//! the blake3 and blake2 crates for theirs. SHA2-256 of many messages, which every import comes down to, is computed side
//! by side where that is faster.

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
/// Multicodec code of the identity multihash: the digest is the data.
pub const IDENTITY: u64 = 0x00;

/// A hash function that content IDs may use here. A further one is a variant, a row of `facts` and an arm of
/// [`digest`].
///
/// [`digest`]: HashFunction::digest
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashFunction {
    /// SHA2-256, the default everywhere.
    #[default]
    Sha2_256,
    /// SHA2-512.
    Sha2_512,
    /// SHA3-256, as in FIPS 202.
    Sha3_256,
    /// Keccak-256 with the padding from before FIPS 202, as Ethereum uses it.
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

    /// Multicodec code and name (<https://github.com/multiformats/multicodec/blob/master/table.csv>), and bytes of a
    /// digest.
    const fn facts(self) -> (u64, &'static str, Option<usize>) {
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

    /// The multicodec code.
    #[must_use]
    pub fn code(self) -> u64 {
        self.facts().0
    }

    /// The multicodec name, as `--hash` and `mhtype` spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().1
    }

    /// Bytes of every digest; `None` for identity, whose digests are as long as the data.
    #[must_use]
    pub fn digest_bytes(self) -> Option<usize> {
        self.facts().2
    }

    /// The function with this multicodec code.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) for a code that is not one of [`Self::ALL`].
    pub fn from_code(code: u64) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|function| function.code() == code)
            .ok_or_else(|| Error::unsupported(format!("hash function 0x{code:x} is not supported: use {}", known())))
    }

    /// The function with this multicodec name, in letters of either case.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) names the function and lists the known ones.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|function| function.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::unsupported(format!("hash function {name:?} is not supported: use {}", known())))
    }

    /// The multihash of `data`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind) for an identity hash of more than [`MAX_IDENTITY_BYTES`] bytes.
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

    /// The multihashes of several messages, in their order: what [`Self::digest`] gives for each. For SHA2-256 that is several
    /// times as fast, from some messages of similar lengths on.
    ///
    /// # Errors
    /// As [`Self::digest`], for the first message that has one.
    pub fn digests(self, messages: &[&[u8]]) -> Result<Vec<Multihash>> {
        match self {
            Self::Sha2_256 => sha2_256_digests(messages).iter().map(|digest| wrap(SHA2_256, digest)).collect(),
            other => messages.iter().map(|message| other.digest(message)).collect(),
        }
    }
}

fn known() -> String {
    HashFunction::ALL.map(HashFunction::name).join(", ")
}

fn wrap(code: u64, digest: &[u8]) -> Result<Multihash> {
    Multihash::wrap(code, digest).map_err(|e| Error::internal("a digest did not fit its multihash").with_source(e))
}

fn sha(algorithm: &'static Algorithm, data: &[u8]) -> aws_lc_rs::digest::Digest {
    aws_lc_rs::digest::digest(algorithm, data)
}

/// Of SHA2-256.
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

/// The SHA2-256 multihash of `data`.
#[must_use]
pub fn sha2_256(data: &[u8]) -> Multihash {
    // 32 bytes always fit a multihash of up to 128.
    wrap(SHA2_256, &sha2_256_digest(data)).unwrap_or_default()
}

/// Checks that `data` is what `cid` names.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind) when the hash differs (the message gives both content IDs),
/// [`ErrorKind::Unsupported`](crate::ErrorKind) for a hash function that is not known here.
pub fn verify(cid: &Cid, data: &[u8]) -> Result<()> {
    match HashFunction::from_code(cid.hash().code())? {
        HashFunction::Identity if cid.hash().digest() == data => Ok(()),
        HashFunction::Identity => Err(Error::invalid(format!("the data is not the payload of {cid}"))),
        other => expect(cid, other.digest(data)?),
    }
}

/// [`verify`] for each of several blocks, in their order; faster than one after the other where [`HashFunction::digests`] is.
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
    let is = match cid.version() {
        cid::Version::V0 => Cid::new_v0(found).unwrap_or_else(|_| Cid::new_v1(cid.codec(), found)),
        cid::Version::V1 => Cid::new_v1(cid.codec(), found),
    };
    Err(Error::invalid(format!("the data does not match its content ID: {cid} was given, the data is {is}")))
}

//! Hash functions of content IDs, by multicodec code.
//!
//! The SHA functions come from aws-lc-rs, which uses the SHA extensions or vector units of the machine. The blake3
//! and blake2 crates also use vector units. SHA2-256 of many messages, the main cost of imports, is computed in
//! several lanes if that is faster.

#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod simd;

use std::borrow::Cow;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA3_256, SHA3_384, SHA3_512, SHA256, SHA512};
use blake2::digest::consts;
use sha3::Digest as _;
use shake::{ExtendableOutput as _, Update as _};

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
    /// SHA-1, which git uses. It is not collision resistant.
    Sha1,
    /// SHA2-256 of a SHA2-256 digest, as Bitcoin uses it.
    DblSha2_256,
    /// SHA3-224, as in FIPS 202.
    Sha3_224,
    /// SHA3-384, as in FIPS 202.
    Sha3_384,
    /// SHA3-512, as in FIPS 202.
    Sha3_512,
    /// SHAKE256 with a digest of 64 bytes.
    Shake256,
    /// Keccak-512 with the padding from before FIPS 202.
    Keccak512,
    /// BLAKE2s with a digest of 32 bytes.
    Blake2s256,
    /// BLAKE2b with a digest of this many bytes: 20 to 64, except 32.
    Blake2b(u8),
}

/// Number of sizes of [`HashFunction::Blake2b`].
const BLAKE2B_SIZES: usize = 44;

/// Minimum length of a truncated digest, in bytes, as in Kubo.
pub const MIN_DIGEST_BYTES: usize = 20;

impl HashFunction {
    /// Every function, in the order in which messages list them.
    pub const ALL: [Self; 15 + BLAKE2B_SIZES] = {
        let mut all = [Self::Identity; 15 + BLAKE2B_SIZES];
        let named = [
            Self::Sha2_256,
            Self::Sha2_512,
            Self::Sha3_256,
            Self::Keccak256,
            Self::Blake2b256,
            Self::Blake3,
            Self::Identity,
            Self::Sha1,
            Self::DblSha2_256,
            Self::Sha3_224,
            Self::Sha3_384,
            Self::Sha3_512,
            Self::Shake256,
            Self::Keccak512,
            Self::Blake2s256,
        ];
        let mut at = 0;
        while at < named.len() {
            all[at] = named[at];
            at += 1;
        }
        let mut size = 20;
        while size <= 64 {
            if size != 32 {
                all[at] = Self::Blake2b(size);
                at += 1;
            }
            size += 1;
        }
        all
    };

    /// Returns the multicodec code, the name (<https://github.com/multiformats/multicodec/blob/master/table.csv>),
    /// and the digest length in bytes. Those of [`Self::Blake2b`] depend on its size.
    const fn properties(self) -> (u64, &'static str, Option<usize>) {
        match self {
            Self::Sha2_256 => (SHA2_256, "sha2-256", Some(32)),
            Self::Sha2_512 => (0x13, "sha2-512", Some(64)),
            Self::Sha3_256 => (0x16, "sha3-256", Some(32)),
            Self::Keccak256 => (0x1b, "keccak-256", Some(32)),
            Self::Blake2b256 => (0xb220, "blake2b-256", Some(32)),
            Self::Blake3 => (0x1e, "blake3", Some(32)),
            Self::Identity => (IDENTITY, "identity", None),
            Self::Sha1 => (0x11, "sha1", Some(20)),
            Self::DblSha2_256 => (0x56, "dbl-sha2-256", Some(32)),
            Self::Sha3_224 => (0x17, "sha3-224", Some(28)),
            Self::Sha3_384 => (0x15, "sha3-384", Some(48)),
            Self::Sha3_512 => (0x14, "sha3-512", Some(64)),
            Self::Shake256 => (0x19, "shake-256", Some(64)),
            Self::Keccak512 => (0x1d, "keccak-512", Some(64)),
            Self::Blake2s256 => (0xb260, "blake2s-256", Some(32)),
            Self::Blake2b(_) => (0xb200, "", None),
        }
    }

    /// Returns the multicodec code.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Self::Blake2b(size) => self.properties().0 + u64::from(size),
            _ => self.properties().0,
        }
    }

    /// Returns the multicodec name, in the spelling of `--hash` and `mhtype`.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Blake2b(size) => format!("blake2b-{}", u32::from(size) * 8).into(),
            _ => self.properties().1.into(),
        }
    }

    /// Returns the digest length in bytes, or `None` for identity, whose digests have the length of the data.
    #[must_use]
    pub fn digest_bytes(self) -> Option<usize> {
        match self {
            Self::Blake2b(size) => Some(size.into()),
            _ => self.properties().2,
        }
    }

    /// Returns the maximum digest length in bytes: that of the digest, which for blake3 is a choice.
    #[must_use]
    pub fn max_digest_bytes(self) -> Option<usize> {
        if self == Self::Blake3 { Some(MAX_IDENTITY_BYTES) } else { self.digest_bytes() }
    }

    /// Whether a digest of `bytes` bytes is not truncated.
    #[must_use]
    pub fn is_whole(self, bytes: usize) -> bool {
        match (self.digest_bytes(), self.max_digest_bytes()) {
            (Some(least), Some(most)) => (least..=most).contains(&bytes),
            _ => bytes <= MAX_IDENTITY_BYTES,
        }
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
        // Its older name in Kubo.
        let wanted = if name.eq_ignore_ascii_case("sha3") { "sha3-512" } else { name };
        Self::ALL.into_iter().find(|function| function.name().eq_ignore_ascii_case(wanted)).ok_or_else(|| {
            let known = supported_names();
            Error::unsupported(format!("unrecognized hash function: {name:?}: use {known}"))
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
                "digest too large: identity digest got {} bytes, maximum {MAX_IDENTITY_BYTES}",
                data.len()
            ))),
            Self::Identity => wrap(IDENTITY, data),
            Self::Sha1 => wrap(self.code(), sha(&SHA1_FOR_LEGACY_USE_ONLY, data).as_ref()),
            Self::DblSha2_256 => wrap(self.code(), &sha2_256_digest(&sha2_256_digest(data))),
            Self::Sha3_224 => wrap(self.code(), &sha3::Sha3_224::digest(data)),
            Self::Sha3_384 => wrap(self.code(), sha(&SHA3_384, data).as_ref()),
            Self::Sha3_512 => wrap(self.code(), sha(&SHA3_512, data).as_ref()),
            Self::Shake256 => {
                let mut digest = [0; 64];
                let mut function = shake::Shake256::default();
                function.update(data);
                function.finalize_xof_into(&mut digest);
                wrap(self.code(), &digest)
            }
            Self::Keccak512 => wrap(self.code(), &sha3::Keccak512::digest(data)),
            Self::Blake2s256 => wrap(self.code(), &blake2::Blake2s256::digest(data)),
            Self::Blake2b(size) => wrap(self.code(), &blake2b(size, data)?),
        }
    }

    /// Returns the multihash of `data` with the longest digest of this function, of which shorter ones are the
    /// beginning, if one of `bytes` bytes is asked for. A digest of blake3 has any length.
    fn whole_digest(self, data: &[u8], bytes: usize) -> Result<Multihash> {
        match self {
            Self::Blake3 if bytes > blake3::OUT_LEN => {
                let mut digest = [0; MAX_IDENTITY_BYTES];
                blake3::Hasher::new().update(data).finalize_xof().fill(&mut digest);
                wrap(self.code(), &digest)
            }
            _ => self.digest(data),
        }
    }

    /// Returns the multihash of `data` with the first `bytes` bytes of the digest.
    ///
    /// # Errors
    /// As [`Self::digest`]; [`ErrorKind::InvalidInput`](crate::ErrorKind) for a length that is below 20 bytes or above
    /// that of the digest, which is 128 bytes for blake3.
    pub fn truncated_digest(self, data: &[u8], bytes: usize) -> Result<Multihash> {
        let whole = self.whole_digest(data, bytes)?;
        if bytes == usize::from(whole.size()) {
            return Ok(whole);
        }
        if bytes > usize::from(whole.size()) {
            let most = whole.size();
            let why = format!("requested length was too large for digest: {bytes} bytes of at most {most}");
            return Err(Error::invalid(why));
        }
        if bytes < MIN_DIGEST_BYTES || self == Self::Identity {
            let name = self.name();
            let why = format!("digest too small: {name} digest got {bytes} bytes, minimum {MIN_DIGEST_BYTES}");
            return Err(Error::invalid(why));
        }
        wrap(self.code(), &whole.digest()[..bytes])
    }

    /// Whether `hash`, which has the code of this function, is the multihash of `data`, possibly with a truncated
    /// digest.
    ///
    /// # Errors
    /// As [`Self::digest`].
    pub fn matches(self, hash: &Multihash, data: &[u8]) -> Result<bool> {
        if self == Self::Identity {
            return Ok(hash.digest() == data);
        }
        let size = usize::from(hash.size());
        let whole = self.whole_digest(data, size)?;
        let is_long_enough = size == usize::from(whole.size()) || size >= MIN_DIGEST_BYTES;
        Ok(is_long_enough && whole.digest().starts_with(hash.digest()))
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
    let named = HashFunction::ALL.into_iter().filter(|function| !matches!(function, HashFunction::Blake2b(_)));
    let names: Vec<_> = named.map(HashFunction::name).collect();
    format!("{}, blake2b-160 to blake2b-512", names.join(", "))
}

/// Returns a BLAKE2b digest of `size` bytes.
fn blake2b(size: u8, data: &[u8]) -> Result<Vec<u8>> {
    macro_rules! sized {
        ($($bytes:literal $kind:ident),*) => {
            match size {
                $($bytes => Ok(blake2::Blake2b::<consts::$kind>::digest(data).to_vec()),)*
                other => Err(Error::unsupported(format!("BLAKE2b digests of {other} bytes are not supported"))),
            }
        };
    }
    sized!(
        20 U20, 21 U21, 22 U22, 23 U23, 24 U24, 25 U25, 26 U26, 27 U27, 28 U28, 29 U29, 30 U30, 31 U31, 32 U32, 33 U33,
        34 U34, 35 U35, 36 U36, 37 U37, 38 U38, 39 U39, 40 U40, 41 U41, 42 U42, 43 U43, 44 U44, 45 U45, 46 U46, 47 U47,
        48 U48, 49 U49, 50 U50, 51 U51, 52 U52, 53 U53, 54 U54, 55 U55, 56 U56, 57 U57, 58 U58, 59 U59, 60 U60, 61 U61,
        62 U62, 63 U63, 64 U64
    )
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
        other if other.matches(cid.hash(), data)? => Ok(()),
        other => expect(cid, other.digest(data)?),
    }
}

/// Calls [`verify`] for each of several blocks, in order. Faster than separate calls if [`HashFunction::digests`] is.
#[must_use]
pub fn verify_all(blocks: &[(Cid, &[u8])]) -> Vec<Result<()>> {
    let is_sha2_256 = |cid: &Cid| cid.hash().code() == SHA2_256 && cid.hash().size() == 32;
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

//! Hash functions of content IDs, by multicodec code.
//!
//! SHA-256 comes from aws-lc-rs, which uses the machine's SHA extensions or vector units.

use crate::limits::MAX_IDENTITY_BYTES;
use crate::{Cid, Error, Multihash, Result};

/// Multicodec code of SHA2-256.
pub const SHA2_256: u64 = 0x12;
/// Multicodec code of the identity multihash: the digest is the data.
pub const IDENTITY: u64 = 0x00;

/// A hash function that content IDs may use here. A further one is a variant, a name and an arm of [`digest`].
///
/// [`digest`]: HashFunction::digest
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HashFunction {
    /// SHA2-256, the default everywhere.
    #[default]
    Sha2_256,
    /// The data itself, for at most [`MAX_IDENTITY_BYTES`] bytes.
    Identity,
}

impl HashFunction {
    /// Every function, in the order in which messages list them.
    pub const ALL: [Self; 2] = [Self::Sha2_256, Self::Identity];

    /// The multicodec code.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Self::Sha2_256 => SHA2_256,
            Self::Identity => IDENTITY,
        }
    }

    /// The multicodec name, as `--hash` and `mhtype` spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha2_256 => "sha2-256",
            Self::Identity => "identity",
        }
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

    /// The function with this multicodec name.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) names the function and lists the known ones.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|function| function.name() == name)
            .ok_or_else(|| Error::unsupported(format!("hash function {name:?} is not supported: use {}", known())))
    }

    /// The multihash of `data`.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](crate::ErrorKind) for an identity hash of more than [`MAX_IDENTITY_BYTES`] bytes.
    pub fn digest(self, data: &[u8]) -> Result<Multihash> {
        match self {
            Self::Sha2_256 => Ok(sha2_256(data)),
            Self::Identity if data.len() > MAX_IDENTITY_BYTES => Err(Error::too_large(format!(
                "an identity multihash holds at most {MAX_IDENTITY_BYTES} bytes, not {}",
                data.len()
            ))),
            Self::Identity => wrap(IDENTITY, data),
        }
    }
}

fn known() -> String {
    HashFunction::ALL.map(HashFunction::name).join(", ")
}

fn wrap(code: u64, digest: &[u8]) -> Result<Multihash> {
    Multihash::wrap(code, digest).map_err(|e| Error::internal("a digest did not fit its multihash").with_source(e))
}

/// The SHA2-256 multihash of `data`.
#[must_use]
pub fn sha2_256(data: &[u8]) -> Multihash {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, data);
    // 32 bytes always fit a multihash of up to 128.
    wrap(SHA2_256, digest.as_ref()).unwrap_or_default()
}

/// Checks that `data` is what `cid` names.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind) when the hash differs (the message gives both content IDs),
/// [`ErrorKind::Unsupported`](crate::ErrorKind) for a hash function that is not known here.
pub fn verify(cid: &Cid, data: &[u8]) -> Result<()> {
    let function = HashFunction::from_code(cid.hash().code())?;
    let found = match function {
        HashFunction::Identity if cid.hash().digest() == data => return Ok(()),
        HashFunction::Identity => return Err(Error::invalid(format!("the data is not the payload of {cid}"))),
        other => other.digest(data)?,
    };
    if found == *cid.hash() {
        return Ok(());
    }
    let is = match cid.version() {
        cid::Version::V0 => Cid::new_v0(found).unwrap_or_else(|_| Cid::new_v1(cid.codec(), found)),
        cid::Version::V1 => Cid::new_v1(cid.codec(), found),
    };
    Err(Error::invalid(format!("the data does not match its content ID: {cid} was given, the data is {is}")))
}

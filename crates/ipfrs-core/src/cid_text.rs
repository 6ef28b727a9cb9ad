//! Content IDs: parsing by the rules of public gateways, and formatting in the bases that they use.

use multibase::Base;

use crate::base58::{self, NO_DIGIT, values_of};
use crate::hash::{HashFunction, IDENTITY, MIN_DIGEST_BYTES, SHA2_256};
use crate::multiformats::BASES;
use crate::{Cid, Error, Multihash, Result, codec};

/// Longest text that can be a content ID, in bytes: an identity CID of 128 bytes in base16, with a margin.
const MAX_TEXT_BYTES: usize = 512;

/// Length of a SHA2-256 digest, in bytes.
const SHA2_256_BYTES: u8 = 32;

/// Parses a content ID from text: CIDv0 (`Qm...`), or CIDv1 in base58btc, base32 (either case), base36, base16 or
/// base64url.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) for an invalid text. The message contains the text and the
/// fault.
///
/// ```
/// let cid = ipfrs_core::parse_cid("QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH")?;
/// assert_eq!(cid.codec(), ipfrs_core::codec::DAG_PB);
/// assert!(ipfrs_core::parse_cid("Qm").is_err());
/// # Ok::<(), ipfrs_core::Error>(())
/// ```
pub fn parse_cid(text: &str) -> Result<Cid> {
    if let Some(cid) = ordinary_text(text) {
        return Ok(cid);
    }
    let invalid = |why: &str| Error::invalid(format!("invalid CID {:?}: {why}", shorten(text)));
    if text.len() < 2 {
        return Err(invalid("too short"));
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(invalid("too long"));
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=')) {
        return Err(invalid("it contains a character that CIDs never contain"));
    }
    let is_v0 = text.len() == 46 && text.starts_with("Qm");
    if !is_v0 && text.starts_with("Qm") {
        return Err(invalid("a CIDv0 has 46 characters"));
    }
    if !is_v0 && !matches!(text.as_bytes()[0], b'z' | b'b' | b'B' | b'k' | b'K' | b'f' | b'F' | b'u') {
        return Err(invalid("the multibase is not one of base58btc, base32, base36, base16, base64url"));
    }
    let decoded = if is_v0 { Base::Base58Btc.decode(text) } else { multibase::decode(text).map(|(_, bytes)| bytes) };
    let bytes = decoded.map_err(|e| invalid(&cid::Error::from(e).to_string()))?;
    let mut rest = bytes.as_slice();
    let cid = Cid::read_bytes(&mut rest).map_err(|e| invalid(&e.to_string()))?;
    if !rest.is_empty() {
        return Err(invalid(&format!("it has {} extra bytes at the end", rest.len())));
    }
    check(cid).map_err(|e| invalid(e.message()))
}

/// Parses a content ID from its binary form, which must be all of `bytes`.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) for a malformed content ID or trailing bytes.
pub fn cid_from_bytes(bytes: &[u8]) -> Result<Cid> {
    if let Some(cid) = ordinary(bytes) {
        return Ok(cid);
    }
    let mut rest = bytes;
    let cid = Cid::read_bytes(&mut rest).map_err(|e| Error::invalid(format!("invalid binary CID: {e}")))?;
    if !rest.is_empty() {
        return Err(Error::invalid(format!("invalid binary CID: {} extra bytes at the end", rest.len())));
    }
    check(cid)
}

/// Parses the most common content IDs on a fast path: SHA2-256, either as CIDv0 or as CIDv1 with a one-byte codec.
fn ordinary(bytes: &[u8]) -> Option<Cid> {
    const SHA2_256_BYTE: u8 = SHA2_256 as u8;
    let (version_1, multihash) = match bytes {
        [1, codec @ ..0x80, multihash @ ..] => (Some(*codec), multihash),
        _ => (None, bytes),
    };
    let [SHA2_256_BYTE, SHA2_256_BYTES, digest @ ..] = multihash else { return None };
    if digest.len() != usize::from(SHA2_256_BYTES) {
        return None;
    }
    let multihash = Multihash::wrap(SHA2_256, digest).ok()?;
    match version_1 {
        Some(codec) => Some(Cid::new_v1(u64::from(codec), multihash)),
        None => Cid::new_v0(multihash).ok(),
    }
}

/// Values of the lower-case base32 characters (RFC 4648, section 6).
const BASE32: [u8; 256] = values_of(b"abcdefghijklmnopqrstuvwxyz234567");

/// Parses an [`ordinary`] CIDv0 (`Qm...`) or CIDv1 in lower-case base32.
fn ordinary_text(text: &str) -> Option<Cid> {
    match <&[u8; base58::DIGITS]>::try_from(text.as_bytes()) {
        Ok(digits) if digits.starts_with(b"Qm") => ordinary(&base58::decode(digits)?),
        _ => in_base32(text),
    }
}

/// Parses an [`ordinary`] CIDv1 in lower-case base32: 36 bytes in 58 digits, of which the last two bits are zero.
fn in_base32(text: &str) -> Option<Cid> {
    const DIGITS: usize = 58;
    let digits: &[u8; DIGITS] = text.strip_prefix('b')?.as_bytes().try_into().ok()?;
    let mut bytes = [0; 36];
    let mut seen = 0;
    // Eight digits encode five bytes, and the last two digits encode one more.
    for (digits, bytes) in digits.chunks(8).zip(bytes.chunks_mut(5)) {
        let mut bits = 0_u64;
        for digit in digits {
            let value = BASE32[usize::from(*digit)];
            seen |= value;
            bits = bits << 5 | u64::from(value & 0x1f);
        }
        let bits = bits << (64 - 5 * digits.len());
        bytes.copy_from_slice(&bits.to_be_bytes()[..bytes.len()]);
        if bytes.len() == 1 {
            seen |= if bits << 8 == 0 { 0 } else { NO_DIGIT };
        }
    }
    // Any value that is not a digit's has a higher bit set.
    if seen > 0x1f { None } else { ordinary(&bytes) }
}

/// Rejects digests that are too long, or truncated to less than [`MIN_DIGEST_BYTES`]. Unknown hash functions are
/// accepted here and rejected by the code that computes the hash.
fn check(cid: Cid) -> Result<Cid> {
    let Ok(function) = HashFunction::from_code(cid.hash().code()) else { return Ok(cid) };
    let size = usize::from(cid.hash().size());
    match (function.digest_bytes(), function.max_digest_bytes()) {
        (Some(expected), Some(most)) if size > most || size < expected.min(MIN_DIGEST_BYTES) => {
            Err(Error::invalid(format!("its {} digest has {size} bytes instead of {expected}", function.name())))
        }
        _ => Ok(cid),
    }
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Creates a content ID of `version` 0 or 1 from its parts.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) for a CIDv0 that is not dag-pb with sha2-256, and for any
/// other version.
pub fn new_cid(version: u64, codec: u64, hash: Multihash) -> Result<Cid> {
    match version {
        0 if codec != codec::DAG_PB || hash.code() != SHA2_256 => {
            Err(Error::invalid("CIDv0 supports only dag-pb with sha2-256: use CID version 1"))
        }
        0 => Cid::new_v0(hash).map_err(|e| Error::invalid(format!("not a CIDv0: {e}"))),
        1 => Ok(Cid::new_v1(codec, hash)),
        other => Err(Error::invalid(format!("CID version {other} does not exist: use 0 or 1"))),
    }
}

/// Formats `cid` as `Display` does, which takes longer: a CIDv0 in base58btc, a CIDv1 in base32.
#[must_use]
pub fn cid_text(cid: &Cid) -> String {
    if cid.version() != cid::Version::V0 {
        return cid.to_string();
    }
    let mut bytes = [0; base58::BYTES];
    match cid.hash().write(bytes.as_mut_slice()) {
        Ok(base58::BYTES) => base58::encode(&bytes).iter().map(|digit| char::from(*digit)).collect(),
        _ => cid.to_string(),
    }
}

/// Formats `cid` as text in `base`. A CIDv0 is defined only in base58btc; in any other base, it becomes the
/// equivalent CIDv1.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) if the base cannot represent the CID.
pub fn cid_to_string(cid: &Cid, base: Base) -> Result<String> {
    let is_v0 = cid.version() == cid::Version::V0;
    let rendered = if is_v0 && base != Base::Base58Btc {
        Cid::new_v1(cid.codec(), *cid.hash()).to_string_of_base(base)
    } else {
        cid.to_string_of_base(base)
    };
    rendered.map_err(|e| Error::invalid(format!("{cid} cannot be encoded in {base:?}: {e}")))
}

/// Returns the multibase with this name, in the spelling of `--cid-base` and `cid-base=`.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](crate::ErrorKind) for an unknown base. The message names it and lists the
/// known ones.
pub fn to_base(name: &str) -> Result<Base> {
    // The identity base is no text.
    let known = BASES.iter().find(|(known, base)| *known == name && *base != Base::Identity);
    known.map(|(_, base)| *base).ok_or_else(|| {
        Error::invalid(format!(
            "unknown multibase {name:?}: use base58btc, base32, base36, base16, base64url or another of `cid bases`"
        ))
    })
}

/// Returns the payload that an identity CID contains, or `None` for every other CID.
#[must_use]
pub fn identity_payload(cid: &Cid) -> Option<&[u8]> {
    (cid.hash().code() == IDENTITY).then(|| cid.hash().digest())
}

//! IPNS names (<https://specs.ipfs.tech/ipns/ipns-record/#ipns-name>).

use std::fmt;
use std::str::FromStr;

use ipfrs_core::hash::{self, IDENTITY, SHA2_256};
use ipfrs_core::{Base, Cid, Error, Multihash, Result, codec, parse_cid};

use crate::PublicKey;

/// Longest public key that a name contains, in bytes. For a longer key, the name contains its SHA2-256 (libp2p peer
/// ID specification).
const MAX_INLINE_KEY_BYTES: usize = 42;

/// Longest text that can be a peer ID in base58, in bytes: a multihash of 44 bytes, with a margin.
const MAX_PEER_ID_BYTES: usize = 128;

/// The name of a key: the multihash of its public half, which is also the libp2p peer ID of the key.
///
/// ```
/// let name = ipfrs_ipns::Name::parse("12D3KooWLQzUv2FHWGVPXTXSZpdHs7oHbXub2G5WC8Tx4NQhyd2d")?;
/// assert_eq!(name.to_string(), "k51qzi5uqu5dk3v4rmjber23h16xnr23bsggmqqil9z2gduiis5se8dht36dam");
/// assert!(ipfrs_ipns::Name::parse("en.wikipedia-on-ipfs.org").is_err());
/// # Ok::<(), ipfrs_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Multihash);

impl Name {
    /// Parses a name: a CIDv1 of the codec `libp2p-key` in any base (`k51...`, `bafz...`), or a peer ID in base58
    /// (`12D3KooW...`, `Qm...`).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid text. The message contains the text
    /// and the fault.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with('1') || text.starts_with("Qm") {
            let invalid = |why: &str| Error::invalid(format!("invalid IPNS name: a peer ID in base58 {why}"));
            if text.len() > MAX_PEER_ID_BYTES {
                return Err(invalid("must have at most 128 characters"));
            }
            let bytes = Base::Base58Btc.decode(text).map_err(|_| invalid("must contain only base58 characters"))?;
            let multihash = Multihash::from_bytes(&bytes).map_err(|_| invalid("must be a multihash"))?;
            return Self::from_multihash(multihash);
        }
        let cid = parse_cid(text).map_err(|e| Error::invalid(format!("invalid IPNS name: {e}")))?;
        Self::from_cid(&cid)
    }

    /// Returns the name for a CIDv1 of the codec `libp2p-key`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for another codec, with the CID that was probably
    /// meant, and for hashes that no key has.
    pub fn from_cid(cid: &Cid) -> Result<Self> {
        let name = Self::from_multihash(*cid.hash())?;
        if cid.codec() == codec::LIBP2P_KEY {
            return Ok(name);
        }
        Err(Error::invalid(format!(
            "invalid IPNS name {cid}: the CID of a key has the codec libp2p-key; if it is a key, use {name}"
        )))
    }

    /// Returns the name with this multihash of a public key.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for hashes that no key has.
    pub fn from_multihash(multihash: Multihash) -> Result<Self> {
        match (multihash.code(), multihash.digest().len()) {
            (SHA2_256, 32) | (IDENTITY, 1..=MAX_INLINE_KEY_BYTES) => Ok(Self(multihash)),
            _ => Err(Error::invalid(
                "invalid IPNS name: a name is the SHA2-256 of a public key, or a public key of at most 42 bytes",
            )),
        }
    }

    /// Returns the name of a key.
    #[must_use]
    pub fn of(key: &PublicKey) -> Self {
        let bytes = key.to_protobuf();
        if bytes.len() > MAX_INLINE_KEY_BYTES {
            return Self(hash::sha2_256(&bytes));
        }
        // 42 bytes always fit a multihash.
        Self(Multihash::wrap(IDENTITY, &bytes).unwrap_or_default())
    }

    /// Returns the key, if the name contains it.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        (self.0.code() == IDENTITY).then(|| PublicKey::from_protobuf(self.0.digest()).ok()).flatten()
    }

    /// Returns the name as a CIDv1 of the codec `libp2p-key`.
    #[must_use]
    pub fn cid(&self) -> Cid {
        Cid::new_v1(codec::LIBP2P_KEY, self.0)
    }

    /// Returns the multihash of the public key.
    #[must_use]
    pub fn multihash(&self) -> &Multihash {
        &self.0
    }

    /// Returns the name as a libp2p peer ID in base58: `12D3KooW...`, `Qm...`.
    #[must_use]
    pub fn peer_id(&self) -> String {
        Base::Base58Btc.encode(self.0.to_bytes())
    }
}

impl fmt::Display for Name {
    /// Writes the form that the specification prefers, the CID in base36, which fits a DNS label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cid = self.cid();
        f.write_str(&cid.to_string_of_base(Base::Base36Lower).unwrap_or_else(|_| cid.to_string()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

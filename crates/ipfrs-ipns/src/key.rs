//! Keys of IPNS names: the four key types of libp2p
//! (<https://github.com/libp2p/specs/blob/master/peer-ids/peer-ids.md>), in its protobuf messages and in PKCS#8.

mod der;
mod pem;
mod private;
mod protobuf;

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::PublicKey as RsaPublicKey;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256K1_SHA256_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    UnparsedPublicKey, VerificationAlgorithm,
};
use ipfrs_core::{Error, ErrorKind, Result};

pub use private::PrivateKey;

/// Accepted size of an RSA modulus, in bits, as in libp2p.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// The bytes before the coordinates in the PKIX form of a P-256 public key: the algorithm, the curve, and the tag of
/// an uncompressed point (RFC 5480).
const P256_PKIX_HEAD: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// The type of a key, which determines its signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Ed25519 (RFC 8032): small, fast, and the default.
    Ed25519,
    /// RSA of 2,048 to 8,192 bits, with PKCS#1 v1.5 signatures over SHA-256.
    Rsa,
    /// ECDSA with the curve secp256k1 and SHA-256.
    Secp256k1,
    /// ECDSA with the curve P-256 and SHA-256.
    Ecdsa,
}

impl KeyType {
    /// Returns the value of `Type` in the protobuf messages.
    fn number(self) -> u8 {
        match self {
            Self::Rsa => 0,
            Self::Ed25519 => 1,
            Self::Secp256k1 => 2,
            Self::Ecdsa => 3,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Rsa),
            1 => Some(Self::Ed25519),
            2 => Some(Self::Secp256k1),
            3 => Some(Self::Ecdsa),
            _ => None,
        }
    }

    /// Returns the name in lower case: `ed25519`, `rsa`, `secp256k1`, `ecdsa`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa",
            Self::Secp256k1 => "secp256k1",
            Self::Ecdsa => "ecdsa",
        }
    }

    fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Self::Ed25519 => &ED25519,
            Self::Rsa => &RSA_PKCS1_2048_8192_SHA256,
            Self::Secp256k1 => &ECDSA_P256K1_SHA256_ASN1,
            Self::Ecdsa => &ECDSA_P256_SHA256_ASN1,
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Ed25519, Self::Rsa, Self::Secp256k1, Self::Ecdsa]
            .into_iter()
            .find(|known| known.as_str() == text)
            .ok_or_else(|| {
                let known = "use ed25519, rsa or secp256k1";
                Error::invalid(format!("unrecognized key type: {text}: {known}"))
            })
    }
}

/// A public key, which verifies signatures. Names and peer IDs are hashes of its protobuf message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    key_type: KeyType,
    /// `Data` of the message: 32 bytes (Ed25519), 33 bytes (secp256k1, compressed) or PKIX (RSA, ECDSA).
    data: Vec<u8>,
}

impl PublicKey {
    /// Parses a `PublicKey` message. Only the deterministic encoding is accepted, because any other message would
    /// give the same key a second name.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`] if the message is malformed or does not contain a valid key of its type.
    pub fn from_protobuf(message: &[u8]) -> Result<Self> {
        let (key_type, data) = protobuf::decode("public key", message)?;
        let is_valid = match key_type {
            KeyType::Ed25519 => data.len() == 32,
            KeyType::Secp256k1 => data.len() == 33,
            KeyType::Ecdsa => data.len() == 91 && data.starts_with(&P256_PKIX_HEAD),
            KeyType::Rsa => is_rsa_pkix(data),
        };
        if !is_valid || ParsedPublicKey::new(key_type.verification(), data).is_err() {
            return Err(Error::invalid(format!("not a valid {key_type} public key")));
        }
        Ok(Self { key_type, data: data.to_vec() })
    }

    /// Returns the deterministic `PublicKey` message.
    #[must_use]
    pub fn to_protobuf(&self) -> Vec<u8> {
        protobuf::encode(self.key_type, &self.data)
    }

    /// Returns the type of the key.
    #[must_use]
    pub fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Checks that the private key of this public key created `signature` over `message`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Corrupt`] if the signature does not match.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<()> {
        UnparsedPublicKey::new(self.key_type.verification(), &self.data).verify(message, signature).map_err(|_| {
            Error::new(ErrorKind::Corrupt, format!("the signature is not valid for this {} key", self.key_type))
        })
    }
}

/// Returns whether `data` is an RSA public key of an accepted size in its canonical PKIX encoding.
fn is_rsa_pkix(data: &[u8]) -> bool {
    let Ok(key) = RsaPublicKey::from_der(data) else { return false };
    let bits = der::rsa_modulus_bits(key.as_ref());
    let pkix: Result<PublicKeyX509Der<'_>, _> = key.as_der();
    bits.is_some_and(|bits| RSA_BITS.contains(&bits)) && pkix.is_ok_and(|pkix| pkix.as_ref() == data)
}

//! Private keys: generation, signing, and the two formats in which they are stored.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::encoding::{AsBigEndian, AsDer, EcPublicKeyCompressedBin, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256K1_SHA256_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
};
use ipfrs_core::{Error, Result};
use zeroize::Zeroizing;

use super::{KeyType, PublicKey, der, pem, protobuf};

/// Default size of an RSA key, in bits.
const DEFAULT_RSA_BITS: u32 = 2_048;

/// Size of a key of any other type, in bits.
const FIXED_BITS: u32 = 256;

/// Content of the `AlgorithmIdentifier` of a PKCS#8 document for each type (RFC 8410, RFC 8017, RFC 5480, SEC 2).
const ALGORITHMS: [(KeyType, &[u8]); 4] = [
    (KeyType::Ed25519, &[0x06, 0x03, 0x2b, 0x65, 0x70]),
    (KeyType::Rsa, &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00]),
    (
        KeyType::Secp256k1,
        &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a],
    ),
    (
        KeyType::Ecdsa,
        &[
            0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01,
            0x07,
        ],
    ),
];

/// The bytes of a secp256k1 `ECPrivateKey` (RFC 5915) before the 32 bytes of the key, and the curve after them.
const SECP256K1_SEC1: ([u8; 7], [u8; 9]) =
    ([0x30, 0x2e, 0x02, 0x01, 0x01, 0x04, 0x20], [0xa0, 0x07, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a]);

/// Half of the order of secp256k1, rounded down.
const SECP256K1_HALF_ORDER: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e,
    0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// Most attempts to create a signature with a low `s`. Each attempt succeeds with a probability of one half.
const LOW_S_ATTEMPTS: usize = 128;

/// A private key with its public key. Clones share the key. The `Debug` output does not contain the secret.
#[derive(Clone)]
pub struct PrivateKey {
    pair: Arc<Pair>,
    public: PublicKey,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    Secp256k1(EcdsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// Generates a key. `bits` is the size of an RSA key: 2,048 (the default for `None`), 3,072, 4,096 or 8,192. Keys
    /// of the other types have 256 bits. Generating a large RSA key takes seconds.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an unsupported size.
    pub fn generate(key_type: KeyType, bits: Option<u32>) -> Result<Self> {
        if let Some(bits) = bits.filter(|bits| key_type != KeyType::Rsa && *bits != FIXED_BITS) {
            let why = format!("{} keys are always {FIXED_BITS} bits", key_type);
            return Err(Error::invalid(format!("invalid key size {bits}: {why}")));
        }
        let pair = match key_type {
            KeyType::Rsa => Pair::Rsa(RsaKeyPair::generate(rsa_size(bits)?).map_err(failed)?),
            KeyType::Ed25519 => Pair::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
            KeyType::Secp256k1 => {
                Pair::Secp256k1(EcdsaKeyPair::generate(&ECDSA_P256K1_SHA256_ASN1_SIGNING).map_err(failed)?)
            }
            KeyType::Ecdsa => Pair::Ecdsa(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?),
        };
        Self::new(pair)
    }

    fn new(pair: Pair) -> Result<Self> {
        let (key_type, data) = match &pair {
            Pair::Ed25519(pair) => (KeyType::Ed25519, pair.public_key().as_ref().to_vec()),
            Pair::Rsa(pair) => (KeyType::Rsa, pkix(pair.public_key().as_der())?),
            Pair::Ecdsa(pair) => (KeyType::Ecdsa, pkix(pair.public_key().as_der())?),
            Pair::Secp256k1(pair) => {
                let point: EcPublicKeyCompressedBin<'_> = pair.public_key().as_be_bytes().map_err(failed)?;
                (KeyType::Secp256k1, point.as_ref().to_vec())
            }
        };
        Ok(Self { pair: Arc::new(pair), public: PublicKey { key_type, data } })
    }

    /// Parses a `PrivateKey` message of libp2p. Its data is the seed and the public key (Ed25519), PKCS#1 (RSA), 32
    /// bytes (secp256k1) or an `ECPrivateKey` (ECDSA, P-256).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the message is malformed or does not contain a
    /// valid key of its type. The error message reveals nothing about the key.
    pub fn from_protobuf(message: &[u8]) -> Result<Self> {
        if pem::is_pem(message) {
            let remedy = "try again with format=pem-pkcs8-cleartext";
            return Err(Error::invalid(format!("unexpected PEM block for format=libp2p-protobuf-cleartext: {remedy}")));
        }
        let (key_type, data) = protobuf::decode("private key", message)?;
        let pair = match key_type {
            KeyType::Ed25519 => ed25519(data).map(Pair::Ed25519),
            KeyType::Rsa => RsaKeyPair::from_der(data).map(Pair::Rsa),
            KeyType::Secp256k1 => secp256k1(data).map(Pair::Secp256k1),
            KeyType::Ecdsa => {
                ec(EcdsaKeyPair::from_private_key_der, &ECDSA_P256_SHA256_ASN1_SIGNING, data).map(Pair::Ecdsa)
            }
        };
        Self::new(pair.map_err(|e| rejected(key_type, &e))?)
    }

    /// Returns the `PrivateKey` message of libp2p.
    ///
    /// # Errors
    /// Returns an error if memory allocation fails.
    pub fn to_protobuf(&self) -> Result<Zeroizing<Vec<u8>>> {
        let data = match &*self.pair {
            Pair::Ed25519(pair) => {
                let seed = pair.seed().and_then(|seed| seed.as_be_bytes()).map_err(failed)?;
                Zeroizing::new([seed.as_ref(), &self.public.data].concat())
            }
            Pair::Rsa(_) => {
                let pkcs8 = self.to_pkcs8()?;
                let (_, pkcs1) = der::pkcs8(&pkcs8).ok_or_else(|| failed(Unspecified))?;
                Zeroizing::new(pkcs1.to_vec())
            }
            Pair::Secp256k1(pair) => {
                Zeroizing::new(pair.private_key().as_be_bytes().map_err(failed)?.as_ref().to_vec())
            }
            Pair::Ecdsa(pair) => Zeroizing::new(sec1(pair)?),
        };
        Ok(Zeroizing::new(protobuf::encode(self.key_type(), &data)))
    }

    /// Parses unencrypted PKCS#8 in DER (RFC 5208, RFC 5958).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the document is malformed or its key type is not
    /// allowed for names.
    pub fn from_pkcs8(document: &[u8]) -> Result<Self> {
        let (algorithm, _) = der::pkcs8(document).ok_or_else(|| Error::invalid("not a valid PKCS#8 private key"))?;
        let known = ALGORITHMS.iter().find(|(_, bytes)| *bytes == algorithm);
        let (key_type, _) = known.ok_or_else(|| {
            Error::invalid("IPNS names do not support the algorithm of this key: use Ed25519, RSA, secp256k1 or P-256")
        })?;
        let pair = match key_type {
            KeyType::Ed25519 => Ed25519KeyPair::from_pkcs8(document).map(Pair::Ed25519),
            KeyType::Rsa => RsaKeyPair::from_pkcs8(document).map(Pair::Rsa),
            KeyType::Secp256k1 => {
                ec(EcdsaKeyPair::from_pkcs8, &ECDSA_P256K1_SHA256_ASN1_SIGNING, document).map(Pair::Secp256k1)
            }
            KeyType::Ecdsa => ec(EcdsaKeyPair::from_pkcs8, &ECDSA_P256_SHA256_ASN1_SIGNING, document).map(Pair::Ecdsa),
        };
        Self::new(pair.map_err(|e| rejected(*key_type, &e))?)
    }

    /// Returns PKCS#8 in DER, version 1.
    ///
    /// # Errors
    /// Returns an error if memory allocation fails.
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>> {
        let bytes = match &*self.pair {
            Pair::Ed25519(pair) => pair.to_pkcs8v1().map(|document| document.as_ref().to_vec()),
            Pair::Rsa(pair) => pair.as_der().map(|document: Pkcs8V1Der<'_>| document.as_ref().to_vec()),
            Pair::Secp256k1(pair) | Pair::Ecdsa(pair) => pair.to_pkcs8v1().map(|document| document.as_ref().to_vec()),
        };
        bytes.map(Zeroizing::new).map_err(failed)
    }

    /// Parses the first PEM block of a text, which must be `PRIVATE KEY` (unencrypted PKCS#8).
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the text contains no such block, and the errors
    /// of [`from_pkcs8`](Self::from_pkcs8).
    pub fn from_pem(text: &[u8]) -> Result<Self> {
        Self::from_pkcs8(&pem::decode(text)?)
    }

    /// Returns PKCS#8 as PEM.
    ///
    /// # Errors
    /// Returns an error if memory allocation fails.
    pub fn to_pem(&self) -> Result<Zeroizing<String>> {
        Ok(pem::encode(&self.to_pkcs8()?))
    }

    /// Signs `message`. A large RSA key takes milliseconds.
    ///
    /// # Errors
    /// Returns an error if the system cannot provide random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let random = SystemRandom::new();
        match &*self.pair {
            Pair::Ed25519(pair) => pair.try_sign(message).map(|signature| signature.as_ref().to_vec()).map_err(failed),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => {
                pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()).map_err(failed)
            }
            Pair::Secp256k1(pair) => sign_low_s(pair, message),
        }
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Returns the type of the key.
    #[must_use]
    pub fn key_type(&self) -> KeyType {
        self.public.key_type
    }
}

fn rsa_size(bits: Option<u32>) -> Result<KeySize> {
    match bits.unwrap_or(DEFAULT_RSA_BITS) {
        2_048 => Ok(KeySize::Rsa2048),
        3_072 => Ok(KeySize::Rsa3072),
        4_096 => Ok(KeySize::Rsa4096),
        8_192 => Ok(KeySize::Rsa8192),
        0..2_048 => Err(Error::invalid("rsa keys must be >= 2048 bits to be useful")),
        bits => Err(Error::invalid(format!("invalid key size {bits}: RSA keys have 2048, 3072, 4096 or 8192 bits"))),
    }
}

/// Parses the seed and the public key. Older libraries wrote the public key twice.
fn ed25519(data: &[u8]) -> std::result::Result<Ed25519KeyPair, KeyRejected> {
    let (seed, public) = data.split_at_checked(32).unwrap_or_default();
    let public = match public.len() {
        64 if public[..32] == public[32..] => &public[..32],
        _ => public,
    };
    Ed25519KeyPair::from_seed_and_public_key(seed, public)
}

fn secp256k1(data: &[u8]) -> std::result::Result<EcdsaKeyPair, KeyRejected> {
    let (head, tail) = SECP256K1_SEC1;
    let key = if data.len() == 32 { data } else { &[] };
    let sec1 = Zeroizing::new([&head, key, &tail].concat());
    ec(EcdsaKeyPair::from_private_key_der, &ECDSA_P256K1_SHA256_ASN1_SIGNING, &sec1)
}

/// Parses an elliptic-curve key with `read`. For a key that was parsed without its public half, the library also
/// omits it when writing. The pair is therefore rebuilt, so that every key is written in the same form.
fn ec(
    read: fn(&'static EcdsaSigningAlgorithm, &[u8]) -> std::result::Result<EcdsaKeyPair, KeyRejected>,
    algorithm: &'static EcdsaSigningAlgorithm,
    document: &[u8],
) -> std::result::Result<EcdsaKeyPair, KeyRejected> {
    let pair = read(algorithm, document)?;
    let secret = pair.private_key().as_be_bytes()?;
    EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret.as_ref(), pair.public_key().as_ref())
}

/// Returns the key as an `ECPrivateKey`.
fn sec1(pair: &EcdsaKeyPair) -> Result<Vec<u8>> {
    pair.private_key().as_der().map(|document| document.as_ref().to_vec()).map_err(failed)
}

fn pkix(document: std::result::Result<PublicKeyX509Der<'_>, Unspecified>) -> Result<Vec<u8>> {
    document.map(|document| document.as_ref().to_vec()).map_err(failed)
}

/// Signs `message` with a low `s`. Both `(r, s)` and `(r, -s)` are valid signatures. Implementations of secp256k1 use
/// the one with the lower `s` (BIP 62), and some reject the other. The library returns either, so signing is repeated
/// with new random numbers until `s` is low.
fn sign_low_s(pair: &EcdsaKeyPair, message: &[u8]) -> Result<Vec<u8>> {
    let random = SystemRandom::new();
    for _ in 0..LOW_S_ATTEMPTS {
        let signature = pair.sign(&random, message).map_err(failed)?;
        let is_low = der::ecdsa_s(signature.as_ref()).is_some_and(|s| s.len() < 32 || s <= &SECP256K1_HALF_ORDER[..]);
        if is_low {
            return Ok(signature.as_ref().to_vec());
        }
    }
    Err(failed(Unspecified))
}

fn rejected(key_type: KeyType, why: &KeyRejected) -> Error {
    Error::invalid(format!("not a valid {key_type} private key: {why}"))
}

fn failed(e: Unspecified) -> Error {
    Error::internal("the cryptographic library failed: out of memory, or no random numbers available").with_source(e)
}

//! The key that names this node.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use ipfrs_core::{Error, Multihash, Result, hash};

/// Where the key lies in the repo: PKCS#8 (RFC 5958), readable by its owner only.
const FILE: &str = "identity.key";

/// The node's Ed25519 identity: made at first start, kept in the repo.
#[derive(Debug, Clone)]
pub struct Identity {
    public_key: Vec<u8>,
}

impl Identity {
    /// Reads the identity of the repo, or makes one.
    ///
    /// # Errors
    /// When the key cannot be read or written, or is not a key.
    pub fn open(repo: &Path) -> Result<Self> {
        let path = repo.join(FILE);
        match fs::read(&path) {
            Ok(pkcs8) => Self::from_pkcs8(&pkcs8).ok_or_else(|| {
                Error::corrupt(format!(
                    "{} is not an Ed25519 key: restore it, or remove it for a new one",
                    path.display()
                ))
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Self::generate(&path),
            Err(e) => Err(Error::io(format_args!("cannot read {}", path.display()), e)),
        }
    }

    /// Reads the identity of the repo, or makes one that is forgotten at the end.
    ///
    /// # Errors
    /// When the key cannot be read, or is not a key.
    pub fn open_read_only(repo: &Path) -> Result<Self> {
        if repo.join(FILE).exists() {
            return Self::open(repo);
        }
        Self::from_pkcs8(&new_key()?).ok_or_else(no_key)
    }

    fn generate(path: &Path) -> Result<Self> {
        let pkcs8 = new_key()?;
        // Written whole under another name first: a crash never leaves half a key.
        let draft = path.with_extension("key.new");
        let written =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut file| {
                file.write_all(&pkcs8)?;
                file.sync_all()
            });
        written
            .and_then(|()| fs::rename(&draft, path))
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))?;
        Self::from_pkcs8(&pkcs8).ok_or_else(no_key)
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8).ok()?;
        // PublicKey protobuf of the libp2p peer ID specification: Type = Ed25519 (1), Data = 32 bytes.
        let mut public_key = vec![0x08, 0x01, 0x12, 0x20];
        public_key.extend_from_slice(pair.public_key().as_ref());
        Some(Self { public_key })
    }

    /// The libp2p peer ID in base58btc: `12D3KooW...`.
    #[must_use]
    pub fn peer_id(&self) -> String {
        // 36 bytes always fit an identity multihash.
        let id = Multihash::wrap(hash::IDENTITY, &self.public_key).unwrap_or_default();
        ipfrs_core::Base::Base58Btc.encode(id.to_bytes())
    }

    /// The public key as a libp2p PublicKey protobuf.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}

/// A new key, as PKCS#8.
fn new_key() -> Result<Vec<u8>> {
    let pkcs8 = Ed25519KeyPair::generate().and_then(|pair| pair.to_pkcs8()).map_err(|_| no_key())?;
    Ok(pkcs8.as_ref().to_vec())
}

fn no_key() -> Error {
    Error::internal("the system could not make an Ed25519 key")
}

//! Key that identifies this node.

use std::path::Path;

use ipfrs_core::{Error, Result};
use ipfrs_ipns::{KeyType, Name, PrivateKey};

use crate::private_file::{Exposed, read_private, write_private};

/// File of the key in the repo: PKCS#8 (RFC 5958), readable by its owner only.
const FILE: &str = "identity.key";

/// Identity of the node: an Ed25519 key that is generated at the first start and stored in the repo.
#[derive(Debug, Clone)]
pub struct Identity {
    key: PrivateKey,
    /// Public key as a libp2p protobuf message.
    public_key: Vec<u8>,
}

impl Identity {
    /// Reads the identity of the repo, or generates and stores one.
    ///
    /// # Errors
    /// If the key file cannot be read or written, or does not contain a valid key.
    pub fn open(repo: &Path) -> Result<Self> {
        if let Some(identity) = Self::read(repo)? {
            return Ok(identity);
        }
        let key = PrivateKey::generate(KeyType::Ed25519, None)?;
        let path = repo.join(FILE);
        write_private(&path, &key.to_pkcs8()?)
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))?;
        Ok(Self::new(key))
    }

    /// Reads the identity of the repo, or generates one that is not stored.
    ///
    /// # Errors
    /// If the key file cannot be read, or does not contain a valid key.
    pub fn open_read_only(repo: &Path) -> Result<Self> {
        match Self::read(repo)? {
            Some(identity) => Ok(identity),
            None => PrivateKey::generate(KeyType::Ed25519, None).map(Self::new),
        }
    }

    fn read(repo: &Path) -> Result<Option<Self>> {
        let path = repo.join(FILE);
        // A copy of a repo may have lost its file modes. That only logs a warning, so that a gateway which publishes
        // nothing can still serve.
        let Some(pkcs8) = read_private(&path, Exposed::Warn)? else { return Ok(None) };
        let key = PrivateKey::from_pkcs8(&pkcs8).map_err(|e| {
            Error::corrupt(format!("{} is not a key: {e}: restore it, or remove it for a new one", path.display()))
        })?;
        Ok(Some(Self::new(key)))
    }

    fn new(key: PrivateKey) -> Self {
        Self { public_key: key.public().to_protobuf(), key }
    }

    /// Returns the libp2p peer ID in base58btc: `12D3KooW...`.
    #[must_use]
    pub fn peer_id(&self) -> String {
        self.name().peer_id()
    }

    /// Returns the IPNS name that the key publishes.
    #[must_use]
    pub fn name(&self) -> Name {
        Name::of(self.key.public())
    }

    /// Returns the public key as a libp2p PublicKey protobuf.
    #[must_use]
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    #[cfg(any(feature = "keys", feature = "bitswap"))]
    pub(crate) fn private_key(&self) -> &PrivateKey {
        &self.key
    }
}

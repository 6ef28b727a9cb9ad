//! Key that identifies this node.

use std::fs;
use std::io;
use std::path::Path;

use ipfrs_core::{Error, Result};
use ipfrs_ipns::{KeyType, Name, PrivateKey};

use crate::private_file::{Exposed, read_private, write_private, write_with_mode};

/// File of the key in the repo: PKCS#8 (RFC 5958), readable by its owner only.
const FILE: &str = "identity.key";

/// File with the peer ID of the key, which is public. A lost or damaged key file, which may contain another valid key,
/// would otherwise silently give the node another identity.
const PEER_ID_FILE: &str = "identity.peer-id";

/// Identity of the node: an Ed25519 key that is generated at the first start and stored in the repo.
#[derive(Debug, Clone)]
pub struct Identity {
    key: PrivateKey,
    /// Public key as a libp2p protobuf message.
    public_key: Vec<u8>,
    /// How the key of the repo was lost, with the remedy, if the repo is read nevertheless.
    loss: Option<String>,
}

impl Identity {
    /// Reads the identity of the repo, or generates and stores one.
    ///
    /// # Errors
    /// If the key file cannot be read or written, does not contain a valid key, or is missing or another one although
    /// the repo has an identity.
    pub fn open(repo: &Path) -> Result<Self> {
        let found = Self::read(repo)?;
        let noted = read_peer_id(repo, found.as_ref())?;
        if let Some(loss) = noted.as_ref().and_then(|noted| loss_of(noted, found.as_ref())) {
            return Err(Error::corrupt(format!("{}: {loss}", repo.display())));
        }
        let identity = match found {
            Some(identity) => identity,
            None => {
                let key = PrivateKey::generate(KeyType::Ed25519, None)?;
                let path = repo.join(FILE);
                write_private(&path, &key.to_pkcs8()?)
                    .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))?;
                Self::new(key)
            }
        };
        // After the key, so that a crash in between is no loss. If the disk is full, the next start tries again.
        if noted.is_none() {
            let text = format!("{}\n", identity.peer_id());
            if let Err(error) = write_with_mode(&repo.join(PEER_ID_FILE), text.as_bytes(), 0o644) {
                tracing::warn!(%error, "cannot write {PEER_ID_FILE}");
            }
        }
        Ok(identity)
    }

    /// Reads the identity of the repo, or generates one that is not stored.
    ///
    /// # Errors
    /// If the key file cannot be read, or does not contain a valid key.
    pub fn open_read_only(repo: &Path) -> Result<Self> {
        let found = Self::read(repo)?;
        let noted = read_peer_id(repo, found.as_ref())?;
        let loss = noted.and_then(|noted| loss_of(&noted, found.as_ref()));
        if let Some(loss) = &loss {
            tracing::error!(repo = %repo.display(), "{loss}");
        }
        let identity = match found {
            Some(identity) => identity,
            None => PrivateKey::generate(KeyType::Ed25519, None).map(Self::new)?,
        };
        Ok(Self { loss, ..identity })
    }

    /// Returns how the key of the repo was lost, with the remedy.
    pub(crate) fn loss(&self) -> Option<&str> {
        self.loss.as_deref()
    }

    fn read(repo: &Path) -> Result<Option<Self>> {
        let path = repo.join(FILE);
        // A copy of a repo may have lost its file modes. That only logs a warning, so that a gateway which publishes
        // nothing can still serve.
        let Some(pkcs8) = read_private(&path, Exposed::Warn)? else { return Ok(None) };
        let key = PrivateKey::from_pkcs8(&pkcs8).map_err(|e| {
            let remedy = format!("restore it, or remove it and {PEER_ID_FILE} for a new one");
            Error::corrupt(format!("{} is not a key: {e}: {remedy}", path.display()))
        })?;
        Ok(Some(Self::new(key)))
    }

    fn new(key: PrivateKey) -> Self {
        Self { public_key: key.public().to_protobuf(), key, loss: None }
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

/// Returns the peer ID that the repo notes, if it does. If there is a key, a damaged note counts as none, and one that
/// this user may not read as that of the key.
fn read_peer_id(repo: &Path, found: Option<&Identity>) -> Result<Option<String>> {
    let path = repo.join(PEER_ID_FILE);
    match (fs::read(&path), found) {
        (Ok(text), _) => {
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            if found.is_some() && Name::parse(&text).is_err() {
                tracing::warn!(path = %path.display(), "the file has no peer ID: that of {FILE} replaces it");
                return Ok(None);
            }
            Ok(Some(text))
        }
        (Err(e), _) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        (Err(e), Some(found)) if e.kind() == io::ErrorKind::PermissionDenied => {
            let path = path.display();
            tracing::warn!(%path, error = %e, "another {FILE} would not be noticed: let this user read the peer ID");
            Ok(Some(found.peer_id()))
        }
        (Err(e), _) => Err(Error::io(format_args!("cannot read {}", path.display()), e)),
    }
}

/// Returns how the key of a repo was lost, with the remedy, unless it is that of the peer ID `noted`.
fn loss_of(noted: &str, found: Option<&Identity>) -> Option<String> {
    let what = match found.map(Identity::peer_id) {
        Some(id) if id == noted => return None,
        Some(id) => format!("has the key of {id}"),
        None => "is missing".to_owned(),
    };
    Some(format!(
        "{FILE} {what}, but the identity of this repo is {noted}: restore {FILE} from a backup; or, to accept a new \
         identity, with which nobody can publish under the old name, remove {PEER_ID_FILE}"
    ))
}

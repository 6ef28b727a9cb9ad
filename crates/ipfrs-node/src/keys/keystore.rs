//! Keys that names are published with: the identity, which is called `self`, and the keys in `<repo>/keystore/`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{Name, PrivateKey};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use super::files::KeyFiles;

/// Name of the identity.
pub(super) const SELF: &str = "self";

/// Maximum length of the name of a new key, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Maximum length of a key name that fits a file name, in bytes. A keystore copied from Kubo may have such names.
const MAX_FILED_NAME_BYTES: usize = 155;

/// Maximum number of keys in a repo.
pub(super) const MAX_KEYS: usize = 10_000;

/// Prefix of signed messages, so that the signature of a message is never that of a record.
pub(super) const SIGNED_MESSAGE: &[u8] = b"libp2p-key signed message:";

/// Named keys of a repo.
#[derive(Debug)]
pub(crate) struct Keystore {
    pub(super) files: KeyFiles,
    /// Held while keys are changed.
    pub(super) changing: Arc<Mutex<()>>,
    /// Held while a name is published.
    pub(crate) publishing: Mutex<()>,
}

impl Keystore {
    pub(crate) fn new(repo: &Path) -> Self {
        Self { files: KeyFiles::new(repo), changing: Arc::default(), publishing: Mutex::default() }
    }

    /// Removes keys whose creation a crash ended. Blocks on the disk.
    pub(crate) fn remove_drafts(repo: &Path) {
        KeyFiles::new(repo).remove_drafts();
    }
}

/// Key with its local name and its ID, which is the IPNS name that it publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// Local name: `self` for the identity; empty for a key that is not in this repo.
    pub name: String,
    /// The IPNS name, or peer ID, of the key.
    pub id: Name,
}

impl NamedKey {
    pub(super) fn new(name: &str, key: &PrivateKey) -> Self {
        Self { name: name.to_owned(), id: Name::of(key.public()) }
    }
}

/// Formats of a key outside the keystore. Neither is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyFormat {
    /// The `PrivateKey` message of libp2p, `libp2p-protobuf-cleartext`.
    #[default]
    Protobuf,
    /// PKCS#8 in PEM, `pem-pkcs8-cleartext`.
    Pem,
}

impl KeyFormat {
    /// Returns the name that Kubo uses for the format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "libp2p-protobuf-cleartext",
            Self::Pem => "pem-pkcs8-cleartext",
        }
    }
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Protobuf, Self::Pem].into_iter().find(|format| format.as_str() == text).ok_or_else(|| {
            let accepted = "use libp2p-protobuf-cleartext or pem-pkcs8-cleartext";
            Error::invalid(format!("unrecognized key format: {text}: {accepted}"))
        })
    }
}

/// Reads a key of the repo at `repo` for export. It takes no lock, so a daemon may have the repo open.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no such key, [`ErrorKind::InvalidInput`] for the identity, which is never
/// exported, and [`ErrorKind::Internal`] if other users have access to the file.
pub fn export_key(repo: &Path, name: &str, format: KeyFormat) -> Result<Zeroizing<Vec<u8>>> {
    check_known_name("export", name)?;
    let key = KeyFiles::new(repo).read(name)?.ok_or_else(|| no_key(name))?;
    match format {
        KeyFormat::Protobuf => key.to_protobuf(),
        KeyFormat::Pem => key.to_pem().map(|text| Zeroizing::new(text.as_bytes().to_vec())),
    }
}

/// Returns the ID of a key in the format of libp2p: the IPNS name that it publishes.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if `bytes` are no such key.
pub fn key_id(bytes: &[u8]) -> Result<Name> {
    PrivateKey::from_protobuf(bytes).map(|key| Name::of(key.public()))
}

/// Checks whether a key of this name may exist. `action` is the attempted operation, for the error message.
pub(super) fn check_known_name(action: &str, name: &str) -> Result<()> {
    match name {
        SELF => Err(not_self(action)),
        _ if name.is_empty() || name.len() > MAX_FILED_NAME_BYTES => Err(no_key(name)),
        _ => Ok(()),
    }
}

/// Checks the name of a new key.
pub(super) fn check_new_name(action: &str, name: &str) -> Result<()> {
    let problem = match name {
        SELF => return Err(not_self(action)),
        "" => return Err(Error::invalid("key name must be at least one character")),
        _ if name.len() > MAX_NAME_BYTES => "it has more than 128 bytes",
        _ if name.contains('/') => "it contains a slash",
        _ if name.contains(char::is_control) => "it contains a control character",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("{name:?} is not a valid key name: {problem}")))
}

fn not_self(action: &str) -> Error {
    Error::invalid(format!("cannot {action} key with name 'self'"))
}

pub(super) fn no_key(name: &str) -> Error {
    Error::not_found(format!("no key named {name} was found"))
}

pub(super) fn exists(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("key with name '{name}' already exists"))
}

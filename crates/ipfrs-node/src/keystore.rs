//! Keys that names are published with: the identity, which is called `self`, and the keys in `<repo>/keystore/`.

mod files;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{KeyType, Name, PrivateKey};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::Node;
use files::KeyFiles;
pub(crate) use files::{Exposed, read_private, write_private};

/// Name of the identity.
const SELF: &str = "self";

/// Maximum length of the name of a new key, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// Maximum length of a key name that fits a file name, in bytes. A keystore copied from Kubo may have such names.
const MAX_FILED_NAME_BYTES: usize = 155;

/// Maximum number of keys in a repo.
const MAX_KEYS: usize = 10_000;

/// Prefix of signed messages, so that the signature of a message is never that of a record.
const SIGNED_MESSAGE: &[u8] = b"libp2p-key signed message:";

/// Named keys of a repo.
#[derive(Debug)]
pub(crate) struct Keystore {
    files: KeyFiles,
    /// Held while keys are changed.
    changing: Arc<Mutex<()>>,
    /// Held while a name is published.
    pub(crate) publishing: Mutex<()>,
}

impl Keystore {
    pub(crate) fn new(repo: &Path) -> Self {
        Self { files: KeyFiles::new(repo), changing: Arc::default(), publishing: Mutex::default() }
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
    fn new(name: &str, key: &PrivateKey) -> Self {
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
            let accepted = "accepted are libp2p-protobuf-cleartext and pem-pkcs8-cleartext";
            Error::invalid(format!("unrecognized key format: {text}: {accepted}"))
        })
    }
}

/// Reads a key of the repo at `repo` for export. It takes no lock, so a daemon may have the repo open.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no such key, [`ErrorKind::InvalidInput`] for the identity, which is never
/// exported, and [`ErrorKind::Forbidden`] if other users have access to the file.
pub fn export_key(repo: &Path, name: &str, format: KeyFormat) -> Result<Zeroizing<Vec<u8>>> {
    check_known_name("export", name)?;
    let key = KeyFiles::new(repo).read(name)?.ok_or_else(|| no_key(name))?;
    match format {
        KeyFormat::Protobuf => key.to_protobuf(),
        KeyFormat::Pem => key.to_pem().map(|text| Zeroizing::new(text.as_bytes().to_vec())),
    }
}

impl Node {
    /// Returns all keys: the identity first, the others by name. A key that cannot be read is skipped with a warning
    /// in the log.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub async fn keys(&self) -> Result<Vec<NamedKey>> {
        let identity = NamedKey::new(SELF, self.identity().private_key());
        let files = self.inner.keystore.files.clone();
        off_workers(move || {
            let mut keys = vec![identity];
            for name in files.names()? {
                match files.read(&name) {
                    Ok(Some(key)) => keys.push(NamedKey::new(&name, &key)),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(name, %error, "a key is left out"),
                }
            }
            Ok(keys)
        })
        .await
    }

    /// Generates a key and stores it durably. `bits` is the size of an RSA key; see [`PrivateKey::generate`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid name, a key type that is not generated (ECDSA) or an invalid size;
    /// [`ErrorKind::Conflict`] if a key of this name exists; [`ErrorKind::Forbidden`] if the repo is read-only.
    pub async fn generate_key(&self, name: &str, key_type: KeyType, bits: Option<u32>) -> Result<NamedKey> {
        check_new_name("create", name)?;
        if key_type == KeyType::Ecdsa {
            return Err(Error::invalid("unrecognized key type: ecdsa: generated are ed25519, rsa and secp256k1"));
        }
        self.keep(name, move || PrivateKey::generate(key_type, bits)).await
    }

    /// Imports a key and stores it durably. ECDSA keys are accepted only with `takes_any_type`, because few
    /// implementations support them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid name or an invalid key; otherwise as
    /// [`generate_key`](Self::generate_key).
    pub async fn import_key(
        &self,
        name: &str,
        key: Zeroizing<Vec<u8>>,
        format: KeyFormat,
        takes_any_type: bool,
    ) -> Result<NamedKey> {
        check_new_name("import", name)?;
        self.keep(name, move || {
            let key = match format {
                KeyFormat::Protobuf => PrivateKey::from_protobuf(&key)?,
                KeyFormat::Pem => PrivateKey::from_pem(&key)?,
            };
            if key.key_type() == KeyType::Ecdsa && !takes_any_type {
                let remedy = "use allow-any-key-type if you are sure of what you are doing";
                return Err(Error::invalid(format!(
                    "key type ecdsa is not allowed to be imported, only RSA, Ed25519 or Secp256k1; {remedy}"
                )));
            }
            Ok(key)
        })
        .await
    }

    async fn keep(&self, name: &str, make: impl FnOnce() -> Result<PrivateKey> + Send + 'static) -> Result<NamedKey> {
        let name = name.to_owned();
        self.change_keys(move |files| {
            if files.has(&name)? {
                return Err(exists(&name));
            }
            if files.names()?.len() >= MAX_KEYS {
                return Err(Error::too_large(format!(
                    "there are {MAX_KEYS} keys, and cannot be more: remove one first"
                )));
            }
            let key = make()?;
            files.write(&name, &key)?;
            Ok(NamedKey::new(&name, &key))
        })
        .await
    }

    /// Renames a key durably. With `replaces`, an existing key of the new name is removed; the second value says
    /// whether there was one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key, [`ErrorKind::Conflict`] if the new name is taken,
    /// [`ErrorKind::InvalidInput`] for `self` and for invalid names, [`ErrorKind::Forbidden`] if the repo is
    /// read-only.
    pub async fn rename_key(&self, from: &str, to: &str, replaces: bool) -> Result<(NamedKey, bool)> {
        check_known_name("rename", from)?;
        check_new_name("overwrite", to)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        self.change_keys(move |files| {
            let key = files.read(&from)?.ok_or_else(|| no_key(&from))?;
            let key = NamedKey::new(&to, &key);
            if from == to {
                return Ok((key, false));
            }
            let is_taken = files.has(&to)?;
            if is_taken && !replaces {
                return Err(exists(&to));
            }
            files.rename(&from, &to)?;
            Ok((key, is_taken))
        })
        .await
    }

    /// Removes keys. If one of them does not exist, none is removed. Records that the keys have published stay until
    /// they expire.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key, [`ErrorKind::InvalidInput`] for `self`,
    /// [`ErrorKind::Forbidden`] if the repo is read-only.
    pub async fn remove_keys(&self, names: &[String]) -> Result<Vec<NamedKey>> {
        names.iter().try_for_each(|name| check_known_name("remove", name))?;
        let mut seen = HashSet::new();
        let names: Vec<_> = names.iter().filter(|name| seen.insert(*name)).cloned().collect();
        self.change_keys(move |files| {
            let find =
                |name: &String| files.read(name)?.map(|key| NamedKey::new(name, &key)).ok_or_else(|| no_key(name));
            let keys = names.iter().map(find).collect::<Result<Vec<_>>>()?;
            names.iter().try_for_each(|name| files.remove(name))?;
            Ok(keys)
        })
        .await
    }

    /// Signs a message with a key, which is given by name or by ID. The signature covers `libp2p-key signed message:`
    /// followed by the message.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key.
    pub async fn sign_message(&self, key: &str, message: &[u8]) -> Result<(NamedKey, Vec<u8>)> {
        let (named, key) = self.private_key(key).await?;
        let message = [SIGNED_MESSAGE, message].concat();
        let signature = off_workers(move || key.sign(&message)).await?;
        Ok((named, signature))
    }

    /// Verifies a signature that [`sign_message`](Self::sign_message) made over a message. The key is one of this
    /// node or, if its ID contains the public key, any other.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key.
    pub async fn verify_message(&self, key: &str, message: &[u8], signature: &[u8]) -> Result<(NamedKey, bool)> {
        let (named, public) = match self.private_key(key).await {
            Ok((named, key)) => (named, key.public().clone()),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let id = Name::parse(key).map_err(|_| e)?;
                let public = id.public_key().ok_or_else(|| {
                    Error::not_found(format!("{id} does not hold its public key: only its owner can verify with it"))
                })?;
                (NamedKey { name: String::new(), id }, public)
            }
            Err(e) => return Err(e),
        };
        let (message, signature) = ([SIGNED_MESSAGE, message].concat(), signature.to_vec());
        let is_valid = off_workers(move || Ok(public.verify(&message, &signature).is_ok())).await?;
        Ok((named, is_valid))
    }

    /// Returns the key with this name or this ID (an IPNS name or a peer ID).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none.
    pub(crate) async fn private_key(&self, key: &str) -> Result<(NamedKey, PrivateKey)> {
        let identity = self.identity().private_key().clone();
        if key == SELF {
            return Ok((NamedKey::new(SELF, &identity), identity));
        }
        let files = self.inner.keystore.files.clone();
        let wanted = key.to_owned();
        off_workers(move || {
            if check_known_name("use", &wanted).is_ok()
                && let Some(key) = files.read(&wanted)?
            {
                return Ok((NamedKey::new(&wanted, &key), key));
            }
            let none = || Error::not_found(format!("no key by the given name or PeerID was found: {wanted}"));
            let id = Name::parse(&wanted).map_err(|_| none())?;
            if Name::of(identity.public()) == id {
                return Ok((NamedKey::new(SELF, &identity), identity));
            }
            for name in files.names()? {
                match files.read(&name) {
                    Ok(Some(key)) if Name::of(key.public()) == id => return Ok((NamedKey::new(&name, &key), key)),
                    _ => {}
                }
            }
            Err(none())
        })
        .await
    }

    /// Runs one change of the keys at a time, so that a check in `work` stays valid until the change is complete.
    async fn change_keys<T: Send + 'static>(
        &self,
        work: impl FnOnce(&KeyFiles) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_writable()?;
        let keystore = &self.inner.keystore;
        let (files, turn) = (keystore.files.clone(), keystore.changing.clone().lock_owned().await);
        off_workers(move || {
            let _turn = turn;
            work(&files)
        })
        .await
    }
}

/// Runs blocking work on files or keys on a blocking thread.
async fn off_workers<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal("a task that works with keys failed").with_source(e))?
}

/// Checks whether a key of this name may exist. `action` is the attempted operation, for the error message.
fn check_known_name(action: &str, name: &str) -> Result<()> {
    match name {
        SELF => Err(not_self(action)),
        _ if name.is_empty() || name.len() > MAX_FILED_NAME_BYTES => Err(no_key(name)),
        _ => Ok(()),
    }
}

/// Checks the name of a new key.
fn check_new_name(action: &str, name: &str) -> Result<()> {
    let wrong = match name {
        SELF => return Err(not_self(action)),
        "" => "it is empty",
        _ if name.len() > MAX_NAME_BYTES => "it has more than 128 bytes",
        _ if name.contains('/') => "it has a slash in it",
        _ if name.contains(char::is_control) => "it has a control character in it",
        _ => return Ok(()),
    };
    Err(Error::invalid(format!("{name:?} is no name for a key: {wrong}")))
}

fn not_self(action: &str) -> Error {
    Error::invalid(format!("cannot {action} key with name 'self': it is the identity of this node"))
}

fn no_key(name: &str) -> Error {
    Error::not_found(format!("no key named {name} was found"))
}

fn exists(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("key with name '{name}' already exists"))
}

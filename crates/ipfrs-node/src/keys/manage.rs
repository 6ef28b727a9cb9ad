//! Management of keys, and signatures with them.

use std::collections::HashSet;

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{KeyType, Name, PrivateKey};
use zeroize::Zeroizing;

use super::files::KeyFiles;
use super::keystore::{
    KeyFormat, MAX_KEYS, NamedKey, SELF, SIGNED_MESSAGE, check_known_name, check_new_name, exists, no_key,
};
use crate::off_workers;
use crate::{Node, current_client};

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
                    Err(error) => tracing::warn!(name, %error, "a key cannot be read and is omitted"),
                }
            }
            Ok(keys)
        })
        .await
    }

    /// Returns the errors of keys that cannot be used, because they are damaged or other users can access them.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) async fn unusable_keys(&self) -> Result<Vec<String>> {
        let files = self.inner.keystore.files.clone();
        off_workers(move || files.errors()).await
    }

    /// Generates a key and stores it durably. `bits` is the size of an RSA key; see [`PrivateKey::generate`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid name, a key type that is not generated (ECDSA) or an invalid size;
    /// [`ErrorKind::Conflict`] if a key of this name exists; [`ErrorKind::Forbidden`] if the repo is read-only.
    pub async fn generate_key(&self, name: &str, key_type: KeyType, bits: Option<u32>) -> Result<NamedKey> {
        check_new_name("create", name)?;
        if key_type == KeyType::Ecdsa {
            return Err(Error::invalid("unrecognized key type: ecdsa: use ed25519, rsa or secp256k1"));
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
        let check = |files: &KeyFiles, name: &str| {
            if files.has(name)? {
                return Err(exists(name));
            }
            if files.names()?.len() >= MAX_KEYS {
                return Err(Error::too_large(format!(
                    "there are already {MAX_KEYS} keys, which is the limit: remove one first"
                )));
            }
            Ok(())
        };
        let wanted = name.clone();
        self.change_keys(move |files| check(files, &wanted)).await?;
        // A large RSA key takes minutes, in which others use the keystore.
        let turn = self.inner.making_keys.take(current_client()).await;
        let key = off_workers(move || {
            let _turn = turn;
            make()
        })
        .await?;
        self.change_keys(move |files| {
            check(files, &name)?;
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
                let why = format!("key by that name already exists, refusing to overwrite: {to}");
                return Err(Error::new(ErrorKind::Conflict, why));
            }
            files.rename(&from, &to)?;
            Ok((key, is_taken))
        })
        .await
    }

    /// Removes keys. If one of them does not exist, or is named twice, none is removed. Records that the keys have
    /// published stay until they expire.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such key, [`ErrorKind::InvalidInput`] for `self`,
    /// [`ErrorKind::Forbidden`] if the repo is read-only.
    pub async fn remove_keys(&self, names: &[String]) -> Result<Vec<NamedKey>> {
        names.iter().try_for_each(|name| check_known_name("remove", name))?;
        let mut seen = HashSet::new();
        // As if one was removed after the other.
        if let Some(again) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(no_key(again));
        }
        let names = names.to_vec();
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
                let unknown = |_| {
                    let why = format!("'{key:?}' is not a known key, an IPNS Name, or a valid PeerID");
                    Error::not_found(why).with_source(e)
                };
                let id = Name::parse(key.strip_prefix("/ipns/").unwrap_or(key)).map_err(unknown)?;
                let public = id.public_key().ok_or_else(|| {
                    Error::not_found(format!("{id} does not contain its public key: only its owner can verify with it"))
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
            let id = Name::parse(wanted.strip_prefix("/ipns/").unwrap_or(&wanted)).map_err(|_| none())?;
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
        let (files, change_lock) = (keystore.files.clone(), keystore.changing.clone().lock_owned().await);
        off_workers(move || {
            let _change_lock = change_lock;
            work(&files)
        })
        .await
    }
}

//! API keys: random tokens, of which the repo has keyed hashes (`auth/keys.json`).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipfrs_core::{Cid, Error, ErrorKind, Result, parse_cid, timestamp};
use ipfrs_node::Node;
use ipfrs_node::off_workers;
use ipfrs_node::private_file::{Exposed, MAX_FILE_BYTES, read_private, write_private};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::metrics::Outcome;
use super::principal::Principal;
use super::scope::{Scope, Scopes};

/// Beginning of every token, by which scanners find leaked ones.
const PREFIX: &str = "ipfrs_";
/// Length of the ID of a key.
const ID_CHARACTERS: usize = 8;
/// Characters of IDs, which are easy to tell apart.
const ID_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Length of a secret, in bytes.
const SECRET_BYTES: usize = 32;
/// Maximum number of keys.
const MAX_KEYS: usize = 10_000;
/// Maximum length of the name of a key, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// Maximum number of roots of a key.
const MAX_ROOTS: usize = 1_000;

/// A new API key.
#[derive(Debug, Clone, Default)]
pub struct NewKey {
    /// Purpose of the key, for its owner.
    pub name: String,
    /// Scopes; at least one.
    pub scopes: Vec<Scope>,
    /// Roots below which it may read content; empty for no restriction.
    pub roots: Vec<Cid>,
    /// Time after which it is no longer valid.
    pub valid_for: Option<Duration>,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// ID of the key, which its token contains.
    pub id: String,
    /// Purpose of the key, for its owner.
    pub name: String,
    /// Scopes.
    pub scopes: Vec<Scope>,
    /// Roots below which it may read content; empty for no restriction.
    pub roots: Vec<Cid>,
    /// When it was created.
    pub created: SystemTime,
    /// When it is no longer valid.
    pub expires: Option<SystemTime>,
}

/// A key that was just created.
pub struct CreatedKey {
    /// The token, which is shown once.
    pub token: zeroize::Zeroizing<String>,
    /// The key.
    pub info: KeyInfo,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Contents of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    /// Key of the hashes, in base64url.
    hash_key: String,
    keys: Vec<StoredKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredKey {
    id: String,
    name: String,
    /// HMAC-SHA256 of the token, in base64url.
    hash: String,
    scopes: Vec<Scope>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roots: Vec<String>,
    /// Seconds since 1970.
    created: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

/// The keys of a repo.
pub(super) struct Keys {
    node: Node,
    /// Changes happen one after another.
    changing: Arc<tokio::sync::Mutex<()>>,
    loaded: RwLock<Option<Loaded>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// Keys that were read again. Nothing changes them until they are used or dropped.
pub(super) struct ReadAgain {
    loaded: Loaded,
    _changing: tokio::sync::OwnedMutexGuard<()>,
}

#[derive(Clone)]
struct Loaded {
    hash_key: Arc<hmac::Key>,
    /// The same in base64url, for the file.
    hash_key_text: Arc<zeroize::Zeroizing<String>>,
    /// The keys, in the order of their creation.
    keys: BTreeMap<u64, StoredKey>,
    by_id: HashMap<String, Known>,
}

#[derive(Clone)]
struct Known {
    number: u64,
    hash: Vec<u8>,
    principal: Arc<Principal>,
}

/// Returns whether a token has the form of an API key.
pub(super) fn is_key(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// Returns 256 random bits in base64url.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn random_text() -> Result<String> {
    let mut secret = zeroize::Zeroizing::new([0; SECRET_BYTES]);
    fill(&mut *secret)?;
    Ok(URL_SAFE_NO_PAD.encode(*secret))
}

/// Returns a new token with its ID.
pub(super) fn new_token() -> Result<(String, zeroize::Zeroizing<String>)> {
    let mut id = [0; ID_CHARACTERS];
    fill(&mut id)?;
    let id: String = id.iter().map(|byte| char::from(ID_ALPHABET[usize::from(byte % 32)])).collect();
    let token = zeroize::Zeroizing::new(format!("{PREFIX}{id}_{}", random_text()?));
    Ok((id, token))
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    SystemRandom::new().fill(bytes).map_err(|_| Error::internal("the system has no random numbers"))
}

fn id_of(token: &str) -> Option<&str> {
    token.strip_prefix(PREFIX)?.split_once('_').map(|(id, _)| id)
}

fn path(repo: &Path) -> PathBuf {
    repo.join("auth").join("keys.json")
}

/// Reads the file. Returns `None` if there is none. Blocks on the disk.
fn read_file(path: &Path) -> Result<Option<Loaded>> {
    let Some(bytes) = read_private(path, Exposed::Refuse)? else { return Ok(None) };
    let damaged = |why: String| {
        Error::corrupt(format!("{}: {why}. Restore it from a backup, or remove it: all keys end", path.display()))
    };
    let file: KeyFile = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
    Loaded::of(file).map(Some).map_err(|e| damaged(e.to_string()))
}

/// Checks the API keys of a repo. Blocks on the disk.
///
/// # Errors
/// The file is damaged, or other users can access it.
pub fn check_api_keys(repo: &Path) -> Result<()> {
    read_file(&path(repo)).map(drop)
}

impl Keys {
    pub(super) fn new(node: &Node) -> Self {
        Self { node: node.clone(), changing: Arc::default(), loaded: RwLock::default() }
    }

    fn path(&self) -> PathBuf {
        path(self.node.repo())
    }

    /// Reads the file, unless that was done before.
    pub(super) async fn load(&self) -> Result<()> {
        if self.loaded.read().is_some() {
            return Ok(());
        }
        let loaded = match self.read().await? {
            Some(loaded) => loaded,
            None => Loaded::of(KeyFile { hash_key: random_text()?, keys: Vec::new() })?,
        };
        self.loaded.write().get_or_insert(loaded);
        Ok(())
    }

    /// Reads the file. Returns `None` if there is none.
    async fn read(&self) -> Result<Option<Loaded>> {
        let path = self.path();
        off_workers(move || read_file(&path)).await
    }

    /// Reads the file again, which an operator may have edited or restored.
    ///
    /// # Errors
    /// The file cannot be used, or is missing although there are keys.
    pub(super) async fn read_again(&self) -> Result<ReadAgain> {
        let changing = Arc::clone(&self.changing).lock_owned().await;
        self.load().await?;
        let known = self.loaded.read().clone();
        let loaded = match (self.read().await?, known) {
            (Some(loaded), _) => loaded,
            (None, Some(known)) if known.keys.is_empty() => known,
            (None, _) => {
                let path = self.path();
                let remedy = "restore it, or restart the daemon, which then has no keys";
                return Err(Error::new(ErrorKind::Conflict, format!("{} is missing: {remedy}", path.display())));
            }
        };
        Ok(ReadAgain { loaded, _changing: changing })
    }

    /// Uses keys that were read again, and revokes the earlier ones that are no longer there, or have other rights.
    /// Returns the IDs of these.
    pub(super) fn take_over(&self, ReadAgain { loaded: mut new, _changing }: ReadAgain) -> Vec<String> {
        let mut loaded = self.loaded.write();
        let mut ended = Vec::new();
        for (id, old) in loaded.iter().flat_map(|loaded| &loaded.by_id) {
            let is_same = |new: &Loaded, known: &Known| {
                let before =
                    loaded.as_ref().filter(|before| before.hash_key_text.as_str() == new.hash_key_text.as_str());
                before.is_some_and(|before| before.keys.get(&old.number) == new.keys.get(&known.number))
            };
            let is_kept = new.by_id.get(id).is_some_and(|known| is_same(&new, known));
            match new.by_id.get_mut(id).filter(|_| is_kept) {
                // Connections wait for the end of this principal.
                Some(known) => known.principal = Arc::clone(&old.principal),
                None => {
                    old.principal.revoked.cancel();
                    ended.push(id.clone());
                }
            }
        }
        *loaded = Some(new);
        ended
    }

    /// Returns the principal with this token. A comparison takes the same time wherever the token is wrong.
    pub(super) fn find(&self, token: &str, now: SystemTime) -> std::result::Result<Arc<Principal>, Outcome> {
        let loaded = self.loaded.read();
        let loaded = loaded.as_ref().ok_or(Outcome::Unknown)?;
        let known = id_of(token).and_then(|id| loaded.by_id.get(id)).ok_or(Outcome::Unknown)?;
        hmac::verify(&loaded.hash_key, token.as_bytes(), &known.hash).map_err(|_| Outcome::Unknown)?;
        valid(&known.principal, now)
    }

    /// Whether there is a key with this ID.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.loaded.read().as_ref().is_some_and(|loaded| loaded.by_id.contains_key(id))
    }

    /// Returns the principal with the key of this ID.
    pub(super) fn of_id(&self, id: &str, now: SystemTime) -> std::result::Result<Arc<Principal>, Outcome> {
        let loaded = self.loaded.read();
        let known = loaded.as_ref().and_then(|loaded| loaded.by_id.get(id)).ok_or(Outcome::Unknown)?;
        valid(&known.principal, now)
    }

    pub(super) async fn list(&self) -> Result<Vec<KeyInfo>> {
        self.load().await?;
        let loaded = self.loaded.read();
        loaded.iter().flat_map(|loaded| loaded.keys.values()).map(StoredKey::info).collect()
    }

    pub(super) async fn create(&self, new: NewKey) -> Result<CreatedKey> {
        check(&new)?;
        let now = seconds(SystemTime::now());
        let expires = new.valid_for.map(|time| now.saturating_add(time.as_secs()));
        let (id, token) = new_token()?;
        let stored_id = id.clone();
        let hashed = token.clone();
        let info = self
            .change(move |loaded| {
                if loaded.keys.len() >= MAX_KEYS {
                    let text = format!("there are {MAX_KEYS} API keys, the maximum: revoke some");
                    return Err(Error::new(ErrorKind::Conflict, text));
                }
                let key = StoredKey {
                    id: stored_id,
                    name: new.name,
                    hash: URL_SAFE_NO_PAD.encode(hmac::sign(&loaded.hash_key, hashed.as_bytes())),
                    scopes: Scopes::from_iter(new.scopes).iter().collect(),
                    roots: new.roots.iter().map(Cid::to_string).collect(),
                    created: now,
                    expires,
                };
                let info = key.info()?;
                loaded.add(key)?;
                Ok(info)
            })
            .await?;
        tracing::info!(id, name = info.name, "created an API key");
        Ok(CreatedKey { token, info })
    }

    pub(super) async fn revoke(&self, id: &str) -> Result<KeyInfo> {
        let wanted = id.to_owned();
        let mut revoked = None;
        let info = self
            .change(|loaded| {
                let known = loaded
                    .by_id
                    .remove(&wanted)
                    .ok_or_else(|| Error::not_found(format!("no API key has the ID {wanted:?}")))?;
                revoked = Some(known.principal);
                let key = loaded.keys.remove(&known.number).ok_or_else(|| Error::internal("a key has no entry"))?;
                key.info()
            })
            .await;
        // Even if the change may not be durable.
        if let Some(principal) = revoked.filter(|_| !self.knows(id)) {
            principal.revoked.cancel();
        }
        let info = info?;
        tracing::info!(id, name = info.name, "revoked an API key");
        Ok(info)
    }

    /// Changes the keys, in the file first.
    async fn change<T>(&self, change: impl FnOnce(&mut Loaded) -> Result<T>) -> Result<T> {
        self.node.check_writable()?;
        let _changing = self.changing.lock().await;
        self.load().await?;
        let mut changed = self.loaded.read().clone().ok_or_else(|| Error::internal("the API keys are not loaded"))?;
        let outcome = change(&mut changed)?;
        let file =
            KeyFile { hash_key: changed.hash_key_text.to_string(), keys: changed.keys.values().cloned().collect() };
        let bytes = serde_json::to_vec_pretty(&file)
            .map_err(|e| Error::internal("the API keys cannot be written").with_source(e))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let text = format!("all keys together would take more than {MAX_FILE_BYTES} bytes: revoke some");
            return Err(Error::new(ErrorKind::Conflict, text));
        }
        let path = self.path();
        let written = off_workers(move || {
            let written = path
                .parent()
                .map_or(Ok(()), |directory| fs::DirBuilder::new().recursive(true).mode(0o700).create(directory));
            written
                .and_then(|()| write_private(&path, &bytes))
                .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
        })
        .await;
        if let Err(error) = written {
            // The file may have been replaced although it may not be durable, and it is what a restart reads.
            let read = self.read().await.ok().flatten();
            if read.is_some_and(|read| {
                read.by_id.len() == changed.by_id.len() && read.by_id.keys().all(|id| changed.by_id.contains_key(id))
            }) {
                *self.loaded.write() = Some(changed);
            }
            return Err(error);
        }
        *self.loaded.write() = Some(changed);
        Ok(outcome)
    }
}

impl Loaded {
    fn of(file: KeyFile) -> Result<Self> {
        let secret = URL_SAFE_NO_PAD.decode(&file.hash_key).map(zeroize::Zeroizing::new);
        let secret = secret.ok().filter(|secret| secret.len() == SECRET_BYTES);
        let secret = secret.ok_or_else(|| Error::corrupt("hash_key is not 32 bytes in base64url"))?;
        let mut loaded = Self {
            hash_key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)),
            hash_key_text: Arc::new(zeroize::Zeroizing::new(file.hash_key)),
            keys: BTreeMap::new(),
            by_id: HashMap::new(),
        };
        file.keys.into_iter().try_for_each(|key| loaded.add(key))?;
        Ok(loaded)
    }

    fn add(&mut self, key: StoredKey) -> Result<()> {
        let hash = URL_SAFE_NO_PAD
            .decode(&key.hash)
            .map_err(|_| Error::corrupt(format!("the hash of the key {} is not base64url", key.id)))?;
        let info = key.info()?;
        let principal = Principal {
            name: format!("key:{}", key.id),
            key: Some(key.id.clone()),
            is_local: false,
            scopes: Scopes::from_iter(info.scopes),
            roots: (!info.roots.is_empty()).then(|| info.roots.into_boxed_slice()),
            expires: info.expires,
            commands: None,
            revoked: CancellationToken::new(),
        };
        let number = self.keys.last_key_value().map_or(0, |(last, _)| last + 1);
        let known = Known { number, hash, principal: Arc::new(principal) };
        if self.by_id.insert(key.id.clone(), known).is_some() {
            return Err(Error::corrupt(format!("two keys have the ID {}", key.id)));
        }
        self.keys.insert(number, key);
        Ok(())
    }
}

impl StoredKey {
    fn info(&self) -> Result<KeyInfo> {
        Ok(KeyInfo {
            id: self.id.clone(),
            name: self.name.clone(),
            scopes: self.scopes.clone(),
            roots: self.roots.iter().map(|root| parse_cid(root)).collect::<Result<_>>()?,
            created: time(self.created)?,
            expires: self.expires.map(time).transpose()?,
        })
    }
}

fn check(new: &NewKey) -> Result<()> {
    if new.scopes.is_empty() {
        return Err(Error::invalid("a key needs at least one scope: read, write, pin, names or admin"));
    }
    if new.name.len() > MAX_NAME_BYTES || new.name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the name of a key has at most {MAX_NAME_BYTES} bytes, and no control characters"
        )));
    }
    if new.roots.len() > MAX_ROOTS {
        return Err(Error::invalid(format!("a key has at most {MAX_ROOTS} roots")));
    }
    if !new.roots.is_empty() && new.scopes != [Scope::Read] {
        return Err(Error::invalid("a key that is restricted to roots can only read: give it the scope read alone"));
    }
    let most = Duration::from_secs(100 * 366 * 86_400);
    if new.valid_for.is_some_and(|time| time.as_secs() == 0 || time > most) {
        return Err(Error::invalid("a key is valid for at least a second and at most 100 years"));
    }
    Ok(())
}

fn valid(principal: &Arc<Principal>, now: SystemTime) -> std::result::Result<Arc<Principal>, Outcome> {
    if principal.is_expired(now) { Err(Outcome::Expired) } else { Ok(Arc::clone(principal)) }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> Result<SystemTime> {
    let shown = i64::try_from(seconds).ok().and_then(|seconds| timestamp::format(seconds, 0));
    shown.ok_or_else(|| Error::corrupt(format!("no time has {seconds} seconds since 1970")))?;
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;

//! JSON Web Tokens (RFC 7519) of one issuer, whose keys come from a file or a URL (RFC 7517).

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_node::off_workers;
use jsonwebtoken::errors::ErrorKind as TokenError;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::config::AuthConfig;
use super::metrics::Outcome;
use super::principal::Principal;
use super::scope::Scopes;

/// Maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1_024;
/// Minimum length of a secret for HS256 in base64url: 32 bytes.
const MIN_SECRET_CHARACTERS: usize = 43;
/// Maximum length of a key set, in bytes.
const MAX_KEY_SET_BYTES: usize = 1024 * 1024;
/// Maximum length of `sub` in the name of a caller, in bytes. A longer one is cut, and its hash follows, so that each
/// subject is a caller of its own.
const MAX_SUBJECT_BYTES: usize = 128;
const HASH_BYTES: usize = 16;
/// Beginning of the name of a caller with a token. A token without a subject has nothing else.
pub const PREFIX: &str = "jwt:";
/// Seconds by which the clocks of issuer and daemon may differ.
const LEEWAY_SECONDS: u64 = 30;
/// Time limit of a request for the key set.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two readings because of a token with an unknown key.
const MIN_PAUSE: Duration = Duration::from_secs(10);
/// Time after which a file is read again. A key that was removed from it is valid for at most that long.
const FILE_AGE: Duration = Duration::from_secs(10);
/// The same for a URL.
const URL_AGE: Duration = Duration::from_secs(300);
/// Time for which keys are used although their source cannot be read.
const MAX_AGE: Duration = Duration::from_secs(24 * 3_600);

/// Verifies tokens.
pub(super) struct JwtVerifier {
    source: Source,
    scope_claim: String,
    issuer: String,
    audience: String,
    keys: RwLock<KeySet>,
    /// One reading at a time, until its keys are used; the end of the last one.
    reading: Arc<Mutex<Option<Instant>>>,
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

enum Source {
    File(PathBuf),
    Url(String, reqwest::Client),
}

/// A key of the issuer.
struct IssuerKey {
    algorithm: Algorithm,
    key: DecodingKey,
    /// The key as it was read.
    jwk: Jwk,
    /// Cancelled when the issuer withdraws the key: connections whose caller it has verified end.
    withdrawn: CancellationToken,
}

/// Keys by `kid`; a key without one has the name "".
type IssuerKeys = HashMap<String, Vec<IssuerKey>>;

#[derive(Default)]
struct KeySet {
    keys: IssuerKeys,
    /// When the keys were read.
    read: Option<Instant>,
}

/// A key set that was parsed.
#[derive(Default)]
struct Parsed {
    keys: IssuerKeys,
    /// Number of keys in the set, also of those that are not used.
    listed: usize,
}

impl Parsed {
    /// Refuses a set that has keys but none for the tokens of an issuer, which is a mistake of the configuration.
    fn check(&self) -> Result<()> {
        match self.keys.is_empty() && self.listed > 0 {
            true => Err(Error::invalid("auth.jwt_keys: the set has no key for HS256, EdDSA, ES256 or RS256")),
            false => Ok(()),
        }
    }
}

impl JwtVerifier {
    /// Reads the keys. Returns `None` if no tokens are accepted. Keys at a URL may become available later.
    pub(super) async fn open(config: &AuthConfig) -> Result<Option<Self>> {
        if config.jwt_keys.is_empty() {
            return Ok(None);
        }
        let is_url = ["http://", "https://"].iter().any(|scheme| config.jwt_keys.starts_with(scheme));
        let source = match is_url {
            true => Source::Url(config.jwt_keys.clone(), http_client()?),
            false => Source::File(PathBuf::from(&config.jwt_keys)),
        };
        let this = Self {
            source,
            scope_claim: config.jwt_scope_claim.clone(),
            issuer: config.jwt_issuer.clone(),
            audience: config.jwt_audience.clone(),
            keys: RwLock::default(),
            reading: Arc::default(),
        };
        match this.read().await {
            Err(error) if !is_url => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "no token can be verified until the keys of their issuer are available")
            }
            Ok(()) => {}
        }
        Ok(Some(this))
    }

    /// Returns the principal of a token.
    pub(super) async fn verify(self: &Arc<Self>, token: &str) -> std::result::Result<Arc<Principal>, Outcome> {
        let header = (token.len() <= MAX_TOKEN_BYTES).then(|| decode_header(token).ok()).flatten();
        // A token that names critical extensions must be refused, because this program knows none (RFC 7515, 4.1.11).
        let header = header.filter(|_| !has_critical(token)).ok_or(Outcome::Malformed)?;
        // Tokens for other purposes have other types, such as `logout+jwt` (RFC 8725, 3.11).
        if !header.typ.as_deref().is_none_or(is_access_type) {
            return Err(Outcome::Malformed);
        }
        let kid = header.kid.unwrap_or_default();
        let max_age = if matches!(self.source, Source::File(_)) { FILE_AGE } else { URL_AGE };
        let (age, is_known) = self.state(&kid);
        if age.is_none_or(|age| age > max_age) || !is_known {
            self.read_again(&kid, max_age).await;
        }
        let (age, _) = self.state(&kid);
        if age.is_none_or(|age| age > MAX_AGE) {
            return Err(Outcome::Unavailable);
        }
        let named: Vec<(DecodingKey, CancellationToken)> = {
            let keys = self.keys.read();
            let named = keys.keys.get(&kid).into_iter().flatten().filter(|key| key.algorithm == header.alg);
            named.map(|key| (key.key.clone(), key.withdrawn.clone())).collect()
        };
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // Keys may share a name, as those without one do.
        let mut verified = None;
        for (key, withdrawn) in named {
            match decode::<Map<String, Value>>(token, &key, &validation) {
                Ok(decoded) => {
                    verified = Some((decoded.claims, withdrawn));
                    break;
                }
                Err(e) if matches!(e.kind(), TokenError::ExpiredSignature | TokenError::ImmatureSignature) => {
                    return Err(Outcome::Expired);
                }
                Err(_) => {}
            }
        }
        let (claims, withdrawn) = verified.ok_or(Outcome::Unknown)?;
        // The library also takes a list of issuers, which is no JSON Web Token (RFC 7519, 4.1.1).
        if !claims.get("iss").is_some_and(Value::is_string) {
            return Err(Outcome::Malformed);
        }
        Ok(Arc::new(self.principal(&claims, withdrawn).ok_or(Outcome::Malformed)?))
    }

    /// Returns the caller with these claims, who has rights until `revoked` is cancelled.
    fn principal(&self, claims: &Map<String, Value>, revoked: CancellationToken) -> Option<Principal> {
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        let seconds = claims.get("exp").and_then(Value::as_f64).filter(|seconds| *seconds >= 0.0)?;
        let expires = Duration::try_from_secs_f64(seconds).ok().and_then(|time| UNIX_EPOCH.checked_add(time))?;
        let roots: Option<Vec<Cid>> = match claims.get("roots") {
            None => None,
            // A restriction that cannot be read must not become none.
            Some(roots) => {
                Some(roots.as_array()?.iter().map(|it| parse_cid(it.as_str()?).ok()).collect::<Option<_>>()?)
            }
        };
        Some(Principal {
            name: format!("{PREFIX}{}", shortened(subject)),
            key: None,
            is_local: false,
            scopes: scopes(claims.get(&self.scope_claim)),
            roots: roots.map(Vec::into_boxed_slice),
            expires: SystemTime::checked_add(&expires, Duration::from_secs(LEEWAY_SECONDS)),
            commands: None,
            revoked,
        })
    }

    /// Returns the age of the keys, and whether one has this name.
    fn state(&self, kid: &str) -> (Option<Duration>, bool) {
        let keys = self.keys.read();
        (keys.read.map(|read| read.elapsed()), keys.keys.contains_key(kid))
    }

    /// Reads the keys again, unless another request has just done so.
    async fn read_again(self: &Arc<Self>, kid: &str, max_age: Duration) {
        let (age, is_known) = self.state(kid);
        // A source that does not respond delays tokens with known keys one by one. Others wait for the reading that is
        // in progress, which may bring their key, and do not begin another one.
        let mut last = match Arc::clone(&self.reading).try_lock_owned() {
            Ok(last) => last,
            Err(_) if is_known && age.is_some_and(|age| age <= MAX_AGE) => return,
            Err(_) => Arc::clone(&self.reading).lock_owned().await,
        };
        let (age, is_known) = self.state(kid);
        // A source that does not respond must not delay every token whose key is known.
        let pause = if is_known { max_age } else { MIN_PAUSE };
        if age.is_some_and(|age| age <= max_age) && is_known || last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        let this = Arc::clone(self);
        let reading = async move {
            if let Err(error) = this.read().await {
                tracing::warn!(%error, "the keys of the issuer of tokens could not be read again");
            }
            *last = Some(Instant::now());
        };
        // Completed even if the client leaves: otherwise the next one would begin another.
        drop(tokio::spawn(reading.in_current_span()).await);
    }

    async fn read(&self) -> Result<()> {
        self.apply(self.read_keys().await?);
        Ok(())
    }

    /// Reads the keys, which are used once the result is called. No other reading begins before: it could be applied
    /// first, and the older keys would then replace the newer ones.
    pub(super) async fn reload(self: Arc<Self>) -> Result<impl FnOnce() + use<>> {
        let reading = Arc::clone(&self.reading).lock_owned().await;
        let keys = self.read_keys().await?;
        Ok(move || {
            self.apply(keys);
            drop(reading);
        })
    }

    /// Reads the keys, which are then to be [applied](Self::apply).
    async fn read_keys(&self) -> Result<Parsed> {
        let bytes = match &self.source {
            Source::File(path) => {
                let path = path.clone();
                off_workers(move || read_file(&path)).await?
            }
            Source::Url(url, client) => fetch(url, client).await?,
        };
        let parsed = parse(&bytes, matches!(self.source, Source::File(_)))?;
        // Later, such a set revokes the keys before.
        if self.keys.read().read.is_none() {
            parsed.check()?;
        }
        Ok(parsed)
    }

    /// Whether the keys are at a URL, which is read again whenever a token needs it.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.source, Source::Url(..))
    }

    /// Uses these keys from now on. What callers do whose keys are no longer in the set ends.
    fn apply(&self, mut parsed: Parsed) {
        if parsed.keys.is_empty() {
            tracing::warn!("auth.jwt_keys: the set has no key for HS256, EdDSA, ES256 or RS256, so no token is valid");
        }
        let mut current = self.keys.write();
        for (kid, old) in
            current.keys.drain().flat_map(|(kid, keys)| keys.into_iter().map(move |key| (kid.clone(), key)))
        {
            let new = parsed.keys.get_mut(&kid).into_iter().flatten();
            match new.into_iter().find(|new| new.jwk == old.jwk) {
                Some(new) => new.withdrawn = old.withdrawn,
                None => old.withdrawn.cancel(),
            }
        }
        *current = KeySet { keys: parsed.keys, read: Some(Instant::now()) };
    }
}

/// Checks a file with the keys of an issuer. Blocks on the disk.
///
/// # Errors
/// The file cannot be read, or is no key set.
pub fn check_key_set(path: &Path) -> Result<()> {
    parse(&read_file(path)?, true)?.check()
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::io(format_args!("auth.jwt_keys: cannot read {}", path.display()), e))
}

fn http_client() -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder().timeout(FETCH_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    builder.build().map_err(|e| Error::internal("cannot create an HTTP client").with_source(e))
}

/// Returns a subject of any length as the name of a caller.
fn shortened(subject: &str) -> Cow<'_, str> {
    if subject.len() <= MAX_SUBJECT_BYTES {
        return subject.into();
    }
    let end = subject.floor_char_boundary(MAX_SUBJECT_BYTES);
    let hash = sha2_256(subject.as_bytes());
    let hash: String = hash.digest().iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}#{hash}", &subject[..end]).into()
}

/// Whether tokens of this type give access: `JWT`, or that of RFC 9068, 2.1.
fn is_access_type(typ: &str) -> bool {
    let typ = typ.to_ascii_lowercase();
    matches!(typ.strip_prefix("application/").unwrap_or(&typ), "jwt" | "at+jwt")
}

/// Whether a token says that some of its header must be understood.
fn has_critical(token: &str) -> bool {
    let header = token.split('.').next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok()).unwrap_or_default();
    let header: Map<String, Value> = serde_json::from_slice(&header).unwrap_or_default();
    header.contains_key("crit")
}

/// Returns the text of a failed request with its cause, such as a certificate that is not trusted.
fn described(error: reqwest::Error) -> String {
    let error = error.without_url();
    let first = std::error::Error::source(&error);
    match std::iter::successors(first, |cause| cause.source()).last() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

async fn fetch(url: &str, client: &reqwest::Client) -> Result<Vec<u8>> {
    let failed = |why: String| {
        Error::new(ipfrs_core::ErrorKind::Unavailable, format!("auth.jwt_keys: no keys from {url}: {why}"))
    };
    let mut response = client.get(url).send().await.map_err(|e| failed(described(e)))?;
    if response.status() != http::StatusCode::OK {
        return Err(failed(format!("status {}", response.status())));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|e| failed(described(e)))? {
        if bytes.len() + piece.len() > MAX_KEY_SET_BYTES {
            return Err(failed(format!("more than {MAX_KEY_SET_BYTES} bytes")));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Reads a key set. It may be empty, because an issuer revokes its only key this way. Keys of other kinds and keys for
/// encryption are left out. A shared secret is used only from a file.
fn parse(bytes: &[u8], allows_secrets: bool) -> Result<Parsed> {
    let invalid = |why: String| Error::invalid(format!("auth.jwt_keys: this is no JSON Web Key Set: {why}"));
    let set: JwkSet = serde_json::from_slice(bytes).map_err(|e| invalid(e.to_string()))?;
    let mut keys = IssuerKeys::new();
    for jwk in &set.keys {
        let common = &jwk.common;
        let is_for_signatures = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|it| it.contains(&KeyOperations::Verify));
        let Some(algorithm) = algorithm(jwk, allows_secrets).filter(|_| is_for_signatures) else { continue };
        if let AlgorithmParameters::OctetKey(secret) = &jwk.algorithm
            && secret.value.len() < MIN_SECRET_CHARACTERS
        {
            return Err(invalid("a secret for HS256 needs 256 bits (RFC 7518, 3.2)".to_owned()));
        }
        let key = DecodingKey::from_jwk(jwk).map_err(|e| invalid(e.to_string()))?;
        let key = IssuerKey { algorithm, key, jwk: jwk.clone(), withdrawn: CancellationToken::new() };
        let named = keys.entry(jwk.common.key_id.clone().unwrap_or_default()).or_default();
        if named.iter().all(|other| other.jwk != key.jwk) {
            named.push(key);
        }
    }
    Ok(Parsed { keys, listed: set.keys.len() })
}

/// Returns the one algorithm for which a key is used, so that a token cannot choose another.
fn algorithm(jwk: &Jwk, allows_secrets: bool) -> Option<Algorithm> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::OctetKey(_) if allows_secrets => Algorithm::HS256,
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        _ => return None,
    };
    let declared = jwk.common.key_algorithm.map(|declared| declared.to_string());
    declared.is_none_or(|declared| declared == format!("{algorithm:?}")).then_some(algorithm)
}

/// Reads scopes. Others, which the issuer may have for other services, are left out.
fn scopes(claim: Option<&Value>) -> Scopes {
    match claim {
        Some(Value::String(text)) => text.split(' ').filter_map(|scope| scope.parse().ok()).collect(),
        Some(Value::Array(list)) => list.iter().filter_map(|scope| scope.as_str()?.parse().ok()).collect(),
        _ => Scopes::default(),
    }
}

#[cfg(test)]
mod tests;

//! Users of single commands of the Kubo RPC, as in Kubo's `API.Authorizations`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::{Error, Result};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::credentials::Credential;
use super::keys;
use super::principal::Principal;
use super::scope::Scopes;

/// A user of `auth.rpc`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RpcUserConfig {
    /// `bearer:TOKEN`, `basic:USER:PASSWORD`, `basic:BASE64`, or a token alone.
    pub secret: String,
    /// Paths of commands, or of groups of them.
    #[serde(default)]
    pub paths: Vec<String>,
}

impl fmt::Debug for RpcUserConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcUserConfig").field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// The users.
#[derive(Debug)]
pub(super) struct RpcUsers(Vec<RpcUser>);

#[derive(Debug)]
struct RpcUser {
    scheme: Scheme,
    /// Hash of the token, or of `USER:PASSWORD`. Hashes have the same length, so a comparison tells nothing.
    hash: Digest,
    principal: Arc<Principal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Bearer,
    Basic,
}

impl RpcUsers {
    /// Reads the configuration.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a secret or a path in another form, or for two users with
    /// one secret.
    pub(super) fn new(config: &BTreeMap<String, RpcUserConfig>) -> Result<Self> {
        let mut users: Vec<RpcUser> = Vec::with_capacity(config.len());
        for (name, RpcUserConfig { secret, paths }) in config {
            let invalid = |text: &str| Error::invalid(format!("auth.rpc.{name}: {text}"));
            let (scheme, secret) = read_secret(secret).ok_or_else(|| {
                invalid("secret must be bearer:TOKEN, basic:USER:PASSWORD or basic:BASE64 (of USER:PASSWORD)")
            })?;
            let token = match scheme {
                Scheme::Bearer => &*secret,
                Scheme::Basic => secret.splitn(2, |byte| *byte == b':').nth(1).unwrap_or_default(),
            };
            if std::str::from_utf8(token).is_ok_and(keys::is_key) {
                return Err(invalid("secret must not look like an API key"));
            }
            let commands = paths.iter().map(|path| path.trim_end_matches('/').to_owned());
            let commands: Box<[_]> = commands.collect();
            if let Some(path) = commands.iter().find(|path| *path != "/api/v0" && !path.starts_with("/api/v0/")) {
                return Err(invalid(&format!("paths: {path:?} is no command: /api/v0 is all, /api/v0/files a group")));
            }
            let hash = digest(&SHA256, &secret);
            if users.iter().any(|user| user.scheme == scheme && user.hash.as_ref() == hash.as_ref()) {
                return Err(invalid("another user has the same secret"));
            }
            let principal = Arc::new(Principal {
                name: format!("rpc:{name}"),
                key: None,
                is_local: false,
                scopes: Scopes::default(),
                roots: None,
                commands: Some(commands),
                expires: None,
                revoked: CancellationToken::new(),
            });
            users.push(RpcUser { scheme, hash, principal });
        }
        Ok(Self(users))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the user with this credential.
    pub(super) fn find(&self, credential: &Credential) -> Option<Arc<Principal>> {
        let (scheme, secret) = match credential {
            Credential::Token(token) => (Scheme::Bearer, token.as_bytes()),
            Credential::Basic { pair, .. } => (Scheme::Basic, pair.as_slice()),
            Credential::Session(_) => return None,
        };
        let hash = digest(&SHA256, secret);
        let is_same = |user: &&RpcUser| {
            verify_slices_are_equal(user.hash.as_ref(), hash.as_ref()).is_ok() && user.scheme == scheme
        };
        self.0.iter().find(is_same).map(|user| Arc::clone(&user.principal))
    }
}

/// Reads a secret in the forms of Kubo. Returns `None` for another type, or one that no client can send.
fn read_secret(text: &str) -> Option<(Scheme, Vec<u8>)> {
    let (scheme, secret) = match text.split_once(':') {
        None => (Scheme::Bearer, text.as_bytes().to_vec()),
        Some(("bearer", token)) => (Scheme::Bearer, token.as_bytes().to_vec()),
        Some(("basic", pair)) if pair.contains(':') => (Scheme::Basic, pair.as_bytes().to_vec()),
        Some(("basic", base64)) => (Scheme::Basic, STANDARD.decode(base64).ok().filter(|pair| pair.contains(&b':'))?),
        Some(_) => return None,
    };
    let is_sendable = match scheme {
        Scheme::Bearer => secret.iter().all(u8::is_ascii_graphic),
        Scheme::Basic => std::str::from_utf8(&secret).is_ok(),
    };
    (!secret.is_empty() && is_sendable).then_some((scheme, secret))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::auth::Proof;

    fn users(all: &[(&str, &str)]) -> Result<RpcUsers> {
        let config = |secret: &str| RpcUserConfig { secret: secret.to_owned(), paths: vec!["/api/v0/id/".to_owned()] };
        RpcUsers::new(&all.iter().map(|(name, secret)| ((*name).to_owned(), config(secret))).collect())
    }

    fn found(users: &RpcUsers, header: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", header.parse().unwrap());
        let credential = Credential::read(&headers, Proof::Header).ok().flatten()?;
        users.find(&credential).map(|principal| principal.name.clone())
    }

    #[test]
    fn secrets_have_the_forms_of_kubo() {
        let all =
            users(&[("a", "plain"), ("b", "bearer:with:colon"), ("c", "basic:u:p:q"), ("d", "basic:dXNlcjpwYXNz")]);
        let all = all.unwrap();
        for (header, name) in [
            ("Bearer plain", Some("rpc:a")),
            ("bearer with:colon", Some("rpc:b")),
            ("Basic dTpwOnE=", Some("rpc:c")),
            ("Basic dXNlcjpwYXNz", Some("rpc:d")),
            ("Bearer u:p:q", None),
            ("Basic OnBsYWlu", None),
            ("Bearer plai", None),
        ] {
            assert_eq!(found(&all, header).as_deref(), name, "{header}");
        }
        for secret in
            ["", "bearer:", "basic:x", "basic:%%%", "digest:x", "two words", "ipfrs_abc_def", "basic:a:ipfrs_abc_def"]
        {
            let error = users(&[("a", secret)]).unwrap_err().to_string();
            assert!(error.contains("auth.rpc.a") && (secret.is_empty() || !error.contains("%%%")), "{secret}: {error}");
        }
        assert!(users(&[("a", "x"), ("b", "bearer:x")]).unwrap_err().to_string().contains("same secret"));
    }
}

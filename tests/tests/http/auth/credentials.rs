//! Tokens of every kind, for tests that try all of them.

use std::fs;

use ipfrs_interface::Config;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tokens::{SECRET, claims, key_set, token, trust};
use super::{Guarded, id_of};
use crate::harness::TestGateway;

/// All scopes. The last one includes the others.
const SCOPES: [&str; 5] = ["read", "write", "pin", "names", "admin"];

/// A gateway that authenticates its callers, and tokens of every kind.
pub(super) struct Credentials {
    pub(super) guarded: Guarded,
    /// A JSON Web Token, and a key of each scope. The last one is the administrator's.
    pub(super) keys: Vec<(&'static str, String)>,
    /// Key with the scope `read` for content below a root only.
    pub(super) rooted: String,
    /// Invalid tokens, each with the reason.
    pub(super) invalid: Vec<(&'static str, String)>,
    /// Directory with the keys of the issuer of JSON Web Tokens.
    _issuer: TempDir,
}

impl Credentials {
    pub(super) async fn start(change: impl Fn(&mut Config)) -> Self {
        let issuer = tempfile::tempdir().unwrap();
        let key_file = issuer.path().join("jwks.json");
        fs::write(&key_file, key_set("one", SECRET)).unwrap();
        let configure = |config: &mut Config| {
            config.auth.enabled = true;
            trust(config, key_file.to_str().unwrap().to_owned());
            config.auth.max_failures_per_minute = 60_000;
            change(config);
        };
        let guarded = Guarded::over(TestGateway::start_with(configure).await);
        let jwt = |change: fn(&mut Value)| token("one", Algorithm::HS256, &claims(change));
        let mut keys = vec![("read", jwt(|_| {}))];
        for scope in SCOPES {
            keys.push((scope, guarded.key(&[scope]).await));
        }
        let revoked = guarded.key(&SCOPES).await;
        guarded.revoke(&revoked).await;
        let expired = guarded.key(&SCOPES).await;
        let rooted = guarded.key_of(json!({ "scopes": ["read"], "roots": ["bafkqaaa"] })).await;
        let repo = guarded.gateway.stop().await;
        let file = repo.path().join("auth/keys.json");
        let mut stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for key in stored["keys"].as_array_mut().unwrap() {
            if key["id"] == id_of(&expired) {
                key["expires"] = json!(1_000_000_000);
            }
        }
        fs::write(&file, stored.to_string()).unwrap();
        let guarded = Guarded::over(TestGateway::start_on(repo, configure).await);
        let invalid = vec![
            ("a revoked key", revoked),
            ("an expired key", expired),
            ("an unknown key", "ipfrs_abcdefgh_x".to_owned()),
            ("no JSON Web Token", "a.b.c".to_owned()),
            ("an expired JSON Web Token", jwt(|claims| claims["exp"] = json!(1_000_000_000))),
        ];
        Self { guarded, keys, rooted, invalid, _issuer: issuer }
    }

    /// Returns the keys with whether they have the scope `wanted`.
    pub(super) fn keys_for<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = (&'a str, &'a str, bool)> {
        self.keys.iter().map(move |(scope, token)| (*scope, &**token, *scope == wanted || *scope == "admin"))
    }
}

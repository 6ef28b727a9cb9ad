//! Tokens of every kind, for tests that try all of them.

use std::fs;

use ipfrs_interface::Config;
use serde_json::{Value, json};

use super::{Guarded, id_of};
use crate::harness::TestGateway;

/// All scopes. The last one includes the others.
const SCOPES: [&str; 5] = ["read", "write", "pin", "names", "admin"];

/// A gateway that authenticates its callers, and tokens of every kind.
pub(super) struct Credentials {
    pub(super) guarded: Guarded,
    /// A key of each scope.
    pub(super) keys: Vec<(&'static str, String)>,
    /// Tokens that authenticate nobody, and why.
    pub(super) invalid: Vec<(&'static str, String)>,
}

impl Credentials {
    pub(super) async fn start(change: impl Fn(&mut Config)) -> Self {
        let configure = |config: &mut Config| {
            config.auth.enabled = true;
            config.auth.max_failures_per_minute = 60_000;
            change(config);
        };
        let guarded = Guarded::over(TestGateway::start_with(configure).await);
        let mut keys = Vec::new();
        for scope in SCOPES {
            keys.push((scope, guarded.key(&[scope]).await));
        }
        let revoked = guarded.key(&SCOPES).await;
        guarded.revoke(&revoked).await;
        let expired = guarded.key(&SCOPES).await;
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
        ];
        Self { guarded, keys, invalid }
    }

    /// Returns the keys with whether they have the scope `wanted`.
    pub(super) fn keys_for<'a>(&'a self, wanted: &'a str) -> impl Iterator<Item = (&'a str, &'a str, bool)> {
        self.keys.iter().map(move |(scope, token)| (*scope, &**token, *scope == wanted || *scope == "admin"))
    }
}

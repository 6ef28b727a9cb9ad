//! The `[auth]` section.

use std::collections::BTreeMap;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use serde::Deserialize;

use super::rpc_users::{RpcUserConfig, RpcUsers};

/// `[auth]`: who may use the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Whether callers must authenticate, except for public content and health.
    pub enabled: bool,
    /// Whether content needs the scope `read` too.
    pub private_gateway: bool,
    /// Number of attempts with wrong credentials that one address may make in a minute.
    pub max_failures_per_minute: u32,
    /// Seconds after which a session of the console ends.
    pub session_seconds: u64,
    /// JSON Web Key Set (RFC 7517) of the issuer of tokens: a file or a URL; empty if no tokens are accepted.
    pub jwt_keys: String,
    /// Value that `iss` must have.
    pub jwt_issuer: String,
    /// Value that `aud` must have or contain.
    pub jwt_audience: String,
    /// Claim with the scopes: a text with spaces between them, or a list.
    pub jwt_scope_claim: String,
    /// Users of single commands of the Kubo RPC, by name (Kubo's `API.Authorizations`).
    pub rpc: BTreeMap<String, RpcUserConfig>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            private_gateway: false,
            max_failures_per_minute: 20,
            session_seconds: 43_200,
            jwt_keys: String::new(),
            jwt_issuer: String::new(),
            jwt_audience: String::new(),
            jwt_scope_claim: "scope".to_owned(),
            rpc: BTreeMap::new(),
        }
    }
}

impl AuthConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        for (key, given, least, most) in [
            ("max_failures_per_minute", u64::from(self.max_failures_per_minute), 1, 60_000),
            ("session_seconds", self.session_seconds, 60, 2_592_000),
        ] {
            if !(least..=most).contains(&given) {
                return Err(Error::invalid(format!("auth.{key} = {given}: accepted values are {least} to {most}")));
            }
        }
        if self.private_gateway && !self.enabled {
            return Err(Error::invalid("auth.private_gateway = true needs auth.enabled = true"));
        }
        RpcUsers::new(&self.rpc)?;
        if !self.rpc.is_empty() && !self.enabled {
            let text = "auth.rpc needs auth.enabled = true: else everything but the RPC would be open to anyone";
            return Err(Error::invalid(text));
        }
        if self.jwt_keys.is_empty() {
            let unused = [("jwt_issuer", &self.jwt_issuer), ("jwt_audience", &self.jwt_audience)];
            return match unused.iter().find(|(_, value)| !value.is_empty()) {
                Some((key, _)) => Err(Error::invalid(format!("auth.{key} needs auth.jwt_keys"))),
                None => Ok(()),
            };
        }
        if !self.enabled {
            return Err(Error::invalid("auth.jwt_keys needs auth.enabled = true"));
        }
        if self.jwt_issuer.is_empty() || self.jwt_audience.is_empty() || self.jwt_scope_claim.is_empty() {
            let text = "auth.jwt_keys needs auth.jwt_issuer, auth.jwt_audience and auth.jwt_scope_claim: without them, \
                        tokens that the issuer made for others would be accepted";
            return Err(Error::invalid(text));
        }
        let url = self.jwt_keys.parse::<http::Uri>().ok();
        if url.as_ref().and_then(http::Uri::authority).is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(Error::invalid("auth.jwt_keys: a key set is public, so its URL has no user and password"));
        }
        let is_plain = url.as_ref().is_some_and(|url| url.scheme_str() == Some("http"));
        let is_local = url.and_then(|url| url.host().map(|host| ["127.0.0.1", "[::1]", "localhost"].contains(&host)));
        if is_plain && is_local != Some(true) {
            return Err(Error::invalid(format!(
                "auth.jwt_keys = {:?}: keys need https, because who can change them can sign tokens",
                self.jwt_keys
            )));
        }
        Ok(())
    }

    pub(super) fn session(&self) -> Duration {
        Duration::from_secs(self.session_seconds)
    }
}

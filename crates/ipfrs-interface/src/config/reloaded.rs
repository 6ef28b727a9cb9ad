//! Keys that a running daemon takes over when it reloads its configuration.

use ipfrs_core::Result;
use serde_json::Value;

use super::Config;
use crate::TlsConfig;

/// Keys, and whole sections, that a reload applies.
const RELOADED: [&str; 12] = [
    "auth.max_failures_per_minute",
    "gateway.denylists",
    "gateway.max_concurrent_requests",
    "gateway.max_requests_per_client",
    "grpc.max_calls_per_client",
    "grpc.max_concurrent_calls",
    "log.level",
    "rate_limit",
    "retrieval.bitswap.bootstrap",
    "server.max_connections",
    "websocket.max_connections",
    "websocket.max_connections_per_client",
];

/// How a running daemon applies a changed key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliedBy {
    /// A reload.
    Reload,
    /// A reload, if the daemon was started with denylists, and otherwise a restart.
    ReloadOfDenylists,
    /// A reload, if the daemon was started with TLS, and otherwise a restart.
    ReloadOfTls,
    /// A restart.
    Restart,
}

/// Keys that a reload applies if the daemon has TLS already.
const CERTIFICATES: [&str; 3] = ["tls.certificates", "tls.client_ca", "tls.client_scopes"];

/// Key that a reload applies if the daemon has denylists already: otherwise, it does not check what it reads.
const DENYLISTS: &str = "gateway.denylists";

impl Config {
    /// Returns how a running daemon applies a changed key, such as `log.level`.
    #[must_use]
    pub fn applied_by(key: &str) -> AppliedBy {
        let is_in = |all: &&str| key.strip_prefix(*all).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_in(&DENYLISTS) {
            AppliedBy::ReloadOfDenylists
        } else if CERTIFICATES.iter().any(is_in) {
            AppliedBy::ReloadOfTls
        } else if RELOADED.iter().any(is_in) {
            AppliedBy::Reload
        } else {
            AppliedBy::Restart
        }
    }

    /// Takes over the keys of `next` that a reload applies, and `tls` if the certificates can be reloaded.
    ///
    /// # Errors
    /// Never for a configuration that was read from [`Sources`](super::Sources).
    pub(crate) fn take_over(&mut self, next: &Self, tls: Option<&TlsConfig>, with_denylists: bool) -> Result<()> {
        self.auth.max_failures_per_minute = next.auth.max_failures_per_minute;
        self.gateway.max_concurrent_requests = next.gateway.max_concurrent_requests;
        self.gateway.max_requests_per_client = next.gateway.max_requests_per_client;
        self.grpc.max_concurrent_calls = next.grpc.max_concurrent_calls;
        self.grpc.max_calls_per_client = next.grpc.max_calls_per_client;
        self.log.level.clone_from(&next.log.level);
        self.rate_limit = next.rate_limit.clone();
        #[cfg(feature = "bitswap")]
        self.retrieval.bitswap.bootstrap.clone_from(&next.retrieval.bitswap.bootstrap);
        self.server.max_connections = next.server.max_connections;
        self.websocket.max_connections = next.websocket.max_connections;
        self.websocket.max_connections_per_client = next.websocket.max_connections_per_client;
        if with_denylists {
            self.gateway.denylists.clone_from(&next.gateway.denylists);
        }
        if let Some(tls) = tls {
            self.tls = tls.clone();
        }
        let applied = RELOADED.into_iter().filter(|key| with_denylists || *key != DENYLISTS);
        let certificates = CERTIFICATES.into_iter().filter(|_| tls.is_some());
        self.provenance.take_over(&next.provenance, applied.chain(certificates))
    }

    /// Returns the keys whose values differ from those of another configuration, such as `server.port`. Returns only
    /// the name of a section if the values that differ are not shown, as those of credentials.
    ///
    /// # Errors
    /// Never for configurations that were read from [`Sources`](super::Sources).
    pub(crate) fn differing_keys(&self, other: &Self) -> Result<Vec<String>> {
        let (ours, theirs) = (self.provenance.values()?, other.provenance.values()?);
        let (ours, theirs) = (ours.unwrap_or_default(), theirs.unwrap_or_default());
        let mut keys = Vec::new();
        for section in self.differing(other) {
            let before = keys.len();
            collect_differing(section.to_owned(), &ours[section], &theirs[section], &mut keys);
            if keys.len() == before {
                keys.push(section.to_owned());
            }
        }
        Ok(keys)
    }
}

/// Adds the keys below `key` whose values differ.
fn collect_differing(key: String, ours: &Value, theirs: &Value, keys: &mut Vec<String>) {
    let (Value::Object(all), Value::Object(others)) = (ours, theirs) else {
        if ours != theirs {
            keys.push(key);
        }
        return;
    };
    for name in all.keys().chain(others.keys().filter(|name| !all.contains_key(*name))) {
        // A key that is not set has the value null.
        collect_differing(format!("{key}.{name}"), &ours[name], &theirs[name], keys);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reloaded_key_exists_and_is_taken_over() {
        let whole = ["rate_limit"];
        for key in RELOADED.iter().chain(&CERTIFICATES).filter(|key| !whole.contains(key)) {
            assert!(Config::applied_by(key) != AppliedBy::Restart && Config::description(key).is_some(), "{key}");
        }
        for (key, by) in [
            ("rate_limit.burst_bytes", AppliedBy::Reload),
            ("rate_limits.x", AppliedBy::Restart),
            ("server.port", AppliedBy::Restart),
            ("log.format", AppliedBy::Restart),
            ("gateway.denylists", AppliedBy::ReloadOfDenylists),
            ("tls.client_scopes.x", AppliedBy::ReloadOfTls),
            ("tls.enabled", AppliedBy::Restart),
        ] {
            assert_eq!(Config::applied_by(key), by, "{key}");
        }
        let mut next = Config::default();
        next.auth.max_failures_per_minute += 1;
        next.gateway.denylists = vec!["a.deny".into()];
        next.gateway.max_concurrent_requests += 1;
        next.gateway.max_requests_per_client += 1;
        next.grpc.max_concurrent_calls += 1;
        next.grpc.max_calls_per_client += 1;
        next.log.level = "debug".to_owned();
        next.rate_limit.burst_bytes += 1;
        #[cfg(feature = "bitswap")]
        next.retrieval.bitswap.bootstrap.push("/ip4/192.0.2.1/tcp/4001".parse().unwrap());
        next.server.max_connections += 1;
        next.websocket.max_connections += 1;
        next.websocket.max_connections_per_client += 1;
        let mut current = Config::default();
        current.take_over(&next, None, false).unwrap();
        assert_eq!(current.differing(&next), ["gateway"], "there were no denylists");
        current.take_over(&next, None, true).unwrap();
        assert!(current.differing(&next).is_empty());
    }

    #[test]
    fn differing_keys_are_named_and_hidden_ones_by_section() {
        let mut ours = Config::default();
        let mut theirs = Config::default();
        theirs.server.port += 1;
        theirs.auth.enabled = true;
        assert_eq!(ours.differing_keys(&theirs).unwrap(), ["server", "auth"], "neither is shown");
        let shown = |values: Value| Some(values.to_string());
        ours.provenance.shown = shown(json!({
            "auth": { "key": "hidden" }, "cache": { "max_bytes": 1 },
            "server": { "hosts": { "a": 1 }, "port": 1, "same": [1] },
        }));
        theirs.provenance.shown = shown(json!({
            "auth": { "key": "hidden" }, "cache": { "max_bytes": 2 },
            "server": { "hosts": { "a": 1, "b": 2 }, "same": [1], "workers": 3 },
        }));
        let keys = ["server.hosts.b", "server.port", "server.workers", "auth"];
        assert_eq!(ours.differing_keys(&theirs).unwrap(), keys, "only of sections that differ");
        assert!(ours.differing_keys(&ours).unwrap().is_empty());
    }

    #[test]
    fn shown_configuration_has_the_keys_that_were_taken_over() {
        let shown = |value: Value| {
            let mut config = Config::default();
            config.provenance.shown = Some(value.to_string());
            config
        };
        let of = |bootstrap: &[&str], peers: &[&str]| json!({ "bitswap": { "bootstrap": bootstrap, "peers": peers } });
        let mut current = shown(json!({ "retrieval": of(&[], &["a"]), "rate_limit": 1 }));
        let next = shown(json!({ "retrieval": of(&["b"], &["c"]), "rate_limit": 2 }));
        current.take_over(&next, None, false).unwrap();
        let text = current.provenance.shown.unwrap();
        let merged: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&merged["retrieval"], &merged["rate_limit"]), (&of(&["b"], &["a"]), &json!(2)));
    }
}

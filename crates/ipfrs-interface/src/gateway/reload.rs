//! Applies a changed configuration to a running gateway.

use std::sync::Arc;

use ipfrs_core::Result;
use ipfrs_middleware::RequestPermits;
use ipfrs_middleware::websocket::WebSockets;

use super::Gateway;
use crate::Config;
use crate::conn::Connections;

/// Most keys in one line of the log. Tables of hosts may have any number.
const MAX_LOGGED_KEYS: usize = 30;

/// Limits that can be changed.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) requests: RequestPermits,
    /// Permits of gRPC; `None` if it is disabled.
    pub(super) calls: Option<RequestPermits>,
    pub(super) websockets: WebSockets,
    pub(super) connections: Arc<Connections>,
}

impl Limits {
    /// Applies the limits of `next` that differ from those of `before`.
    fn apply(&self, before: &Config, next: &Config) {
        let (of, to) = (&before.gateway, &next.gateway);
        let limits = (to.max_concurrent_requests, to.max_requests_per_client);
        if (of.max_concurrent_requests, of.max_requests_per_client) != limits {
            self.requests.resize(limits.0, limits.1);
        }
        let (of, to) = (&before.grpc, &next.grpc);
        let limits = (to.max_concurrent_calls, to.max_calls_per_client);
        if let Some(calls) = &self.calls
            && (of.max_concurrent_calls, of.max_calls_per_client) != limits
        {
            calls.resize(limits.0, limits.1);
        }
        let (of, to) = (&before.websocket, &next.websocket);
        let limits = (to.max_connections, to.max_connections_per_client);
        if (of.max_connections, of.max_connections_per_client) != limits {
            self.websockets.resize(limits.0, limits.1);
        }
        if before.server.max_connections != next.server.max_connections {
            self.connections.resize(next.server.max_connections);
        }
    }
}

impl Gateway {
    /// Applies what [`Config::applied_by`] names: the level of the log if it differs, denylists, certificates,
    /// bootstrap peers and limits. Reads the files of denylists, certificates and keys again. Logs which other keys
    /// differ: these need a restart.
    ///
    /// # Errors
    /// `config` is out of range, and nothing has changed; or denylists, keys or certificates cannot be read, and the
    /// old ones stay in use.
    pub async fn reload(&mut self, config: &Config) -> Result<()> {
        config.validate()?;
        let tls = self.tls.as_ref().zip(self.config.tls.reloaded(&config.tls));
        let mut next = self.config.clone();
        next.take_over(config, tls.as_ref().map(|(_, config)| config), self.node.has_denylists())?;
        let others = next.differing(config);
        if !others.is_empty() {
            // Logged before a new level may hide it.
            let sections = others.join(", ");
            let keys = next.differing_keys(config)?;
            let more = keys.len().saturating_sub(MAX_LOGGED_KEYS);
            let keys = keys.into_iter().take(MAX_LOGGED_KEYS).collect::<Vec<_>>().join(", ");
            tracing::warn!(sections, keys, more, "these keys of the configuration differ, and need a restart");
        }
        // Everything is read before anything changes.
        let denylists = self.node.read_denylists(&config.gateway.denylists).await?;
        let apply_keys = self.rules.auth.reload().await?;
        let apply_certificates = match tls {
            Some((tls, config)) => Some(tls.reload(Some(&config)).await?),
            None => None,
        };
        // Compared with those of the node, which a client can change too.
        #[cfg(feature = "bitswap")]
        {
            let addresses = next.retrieval.bitswap.bootstrap.iter().map(ToString::to_string);
            self.node.set_bootstrap_peers(&addresses.collect::<Vec<_>>())?;
        }
        // Otherwise, a level that a client has set stays.
        if next.log.level != self.config.log.level {
            next.log.apply_level()?;
        }
        if let Some(denylists) = denylists {
            self.node.replace_denylists(denylists).await?;
        }
        // Otherwise, clients keep what they have used.
        if config.rate_limit != self.config.rate_limit {
            self.rules.rate_limits.set(&config.rate_limit)?;
        }
        self.rules.auth.set_max_failures(config.auth.max_failures_per_minute);
        self.limits.apply(&self.config, &next);
        apply_keys();
        if let Some(apply) = apply_certificates {
            apply();
        }
        if let Some((shown, text)) = self.shown.as_ref().zip(next.provenance.shown.clone()) {
            shown.replace(text);
        }
        self.config = next;
        Ok(())
    }
}

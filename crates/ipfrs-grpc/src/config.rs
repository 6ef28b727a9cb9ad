//! The `[grpc]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[grpc]`: where gRPC is served. Whether it may be beyond loopback, and what a connection may cost, `[server]` says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// Whether gRPC is served: on a listener of its own, and as gRPC-Web on the main one.
    pub enabled: bool,
    /// Address or name to listen on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one. Left out, it is [`Self::DEFAULT_PORT`], and nobody insists on it: where another
    /// process has that port, the daemon starts without this listener.
    pub port: Option<u16>,
    /// Most calls under way at the same time on this listener. gRPC-Web counts as HTTP.
    pub max_concurrent_calls: usize,
    /// Most calls of one client under way at the same time; 0 for its share of all and no other limit.
    pub max_calls_per_client: usize,
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            host: "127.0.0.1".to_owned(),
            port: None,
            max_concurrent_calls: 4_096,
            max_calls_per_client: 0,
        }
    }
}

impl GrpcConfig {
    /// The port that is tried where none is configured, as in the examples of gRPC.
    pub const DEFAULT_PORT: u16 = 50_051;

    /// Checks what the types do not.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if self.host.trim().is_empty() {
            return Err(Error::invalid("grpc.host = \"\": give an address such as \"127.0.0.1\", or a host name"));
        }
        for (key, given, least) in [
            ("max_concurrent_calls", self.max_concurrent_calls, 1),
            ("max_calls_per_client", self.max_calls_per_client, 0),
        ] {
            if !(least..=1_000_000).contains(&given) {
                return Err(Error::invalid(format!("grpc.{key} = {given}: accepted are {least} to 1000000")));
            }
        }
        Ok(())
    }
}

//! The `[grpc]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[grpc]`: the gRPC listener. `[server]` determines whether it may use addresses other than loopback, and the
/// limits of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// Whether gRPC is enabled: on its own listener, and as gRPC-Web on the main one.
    pub enabled: bool,
    /// Address or name to listen on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one. The default is [`Self::DEFAULT_PORT`]. If another process uses the
    /// default port, the daemon starts without this listener.
    pub port: Option<u16>,
    /// Maximum number of concurrent calls on this listener. gRPC-Web counts as HTTP.
    pub max_concurrent_calls: usize,
    /// Maximum number of concurrent calls of one client; 0 means its share of all calls without another limit.
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
    /// Default port, as in the examples of gRPC. Used if none is configured and it is free.
    pub const DEFAULT_PORT: u16 = 50_051;

    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key, the value and what is
    /// accepted.
    pub fn validate(&self) -> Result<()> {
        if self.host.trim().is_empty() {
            return Err(Error::invalid("grpc.host = \"\": give an address such as \"127.0.0.1\", or a host name"));
        }
        for (key, given, least) in [
            ("max_concurrent_calls", self.max_concurrent_calls, 1),
            ("max_calls_per_client", self.max_calls_per_client, 0),
        ] {
            if !(least..=1_000_000).contains(&given) {
                return Err(Error::invalid(format!("grpc.{key} = {given}: accepted values are {least} to 1000000")));
            }
        }
        Ok(())
    }
}

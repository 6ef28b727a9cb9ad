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
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self { enabled: true, host: "127.0.0.1".to_owned(), port: None }
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
        Ok(())
    }
}

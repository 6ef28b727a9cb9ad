//! The `[public]` section.

use ipfrs_core::{Error, Result};
use serde::Deserialize;

/// `[public]`: a listener with the read-only gateway and nothing else, on any address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PublicConfig {
    /// Whether there is such a listener.
    pub enabled: bool,
    /// Address or name to listen on. A name is resolved, and each of its addresses is bound.
    pub host: String,
    /// TCP port; 0 lets the system choose one.
    pub port: u16,
}

impl Default for PublicConfig {
    fn default() -> Self {
        Self { enabled: false, host: "0.0.0.0".to_owned(), port: 8081 }
    }
}

impl PublicConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key and what is accepted.
    pub fn validate(&self) -> Result<()> {
        if self.host.trim().is_empty() {
            return Err(Error::invalid("public.host = \"\": give an address such as \"0.0.0.0\", or a host name"));
        }
        Ok(())
    }
}

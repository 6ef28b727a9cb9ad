//! The `[tls]` section.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipfrs_core::{Error, Result};
use ipfrs_middleware::auth::Scope;
use serde::Deserialize;

use super::acme::AcmeConfig;
use super::certificates::CertificateFiles;

/// `[tls]`: HTTPS on all listeners.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Whether the listeners take TLS connections, and connections without TLS only from this machine and from trusted
    /// proxies.
    pub enabled: bool,
    /// Certificates. The first one is for clients that name no host, or an unknown one.
    pub certificates: Vec<CertificateFiles>,
    /// A certificate from an authority.
    pub acme: AcmeConfig,
    /// Oldest version of TLS: `1.2` or `1.3`.
    pub min_version: String,
    /// Seconds for which browsers use only HTTPS after a response; 0 for no such header.
    pub hsts_seconds: u64,
    /// Port of a listener that redirects to HTTPS; `None` for no such listener.
    pub redirect_port: Option<u16>,
    /// Port that redirects name; default: that of the listener.
    pub https_port: Option<u16>,
    /// File with the certificates (PEM) of those who issue client certificates; empty to ask for none.
    pub client_ca: PathBuf,
    /// Whether connections without a client certificate are refused.
    pub require_client_certificate: bool,
    /// Scopes of clients, by the name in their certificates.
    pub client_scopes: BTreeMap<String, Vec<Scope>>,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            certificates: Vec::new(),
            acme: AcmeConfig::default(),
            min_version: "1.2".to_owned(),
            hsts_seconds: 0,
            redirect_port: None,
            https_port: None,
            client_ca: PathBuf::new(),
            require_client_certificate: false,
            client_scopes: BTreeMap::new(),
        }
    }
}

impl TlsConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the key and what is accepted.
    pub fn validate(&self) -> Result<()> {
        self.acme.validate()?;
        if self.enabled && self.certificates.is_empty() && !self.acme.is_enabled() {
            return Err(Error::invalid(
                "tls.certificates: HTTPS needs at least one: [{ certificate = \"fullchain.pem\", key = \"privkey.pem\" }], or \
                 domains in [tls.acme]",
            ));
        }
        if !["1.2", "1.3"].contains(&self.min_version.as_str()) {
            let value = &self.min_version;
            return Err(Error::invalid(format!(
                "tls.min_version = {value:?}: accepted values are \"1.2\" and \"1.3\""
            )));
        }
        if self.hsts_seconds > 315_360_000 {
            let value = self.hsts_seconds;
            return Err(Error::invalid(format!("tls.hsts_seconds = {value}: accepted values are 0 to 315360000")));
        }
        for (key, port) in [("redirect_port", self.redirect_port), ("https_port", self.https_port)] {
            if port == Some(0) && key == "https_port" {
                return Err(Error::invalid("tls.https_port = 0: accepted values are 1 to 65535"));
            }
            if port.is_some() && !self.enabled {
                return Err(Error::invalid(format!("tls.{key} needs enabled = true in [tls]")));
            }
        }
        if self.require_client_certificate && !self.enabled {
            return Err(Error::invalid("tls.require_client_certificate needs enabled = true in [tls]"));
        }
        let asks = !self.client_ca.as_os_str().is_empty();
        if !asks && (self.require_client_certificate || !self.client_scopes.is_empty()) {
            return Err(Error::invalid(
                "tls.client_ca: client certificates need a file with the certificates of their issuers",
            ));
        }
        Ok(())
    }

    /// Returns this configuration with the keys of `next` that need no restart: certificates, and issuers and scopes of
    /// clients. Returns `None` if they need its other keys too.
    pub(crate) fn reloaded(&self, next: &Self) -> Option<Self> {
        let reloaded = Self {
            certificates: next.certificates.clone(),
            client_ca: next.client_ca.clone(),
            client_scopes: next.client_scopes.clone(),
            ..self.clone()
        };
        (next.enabled && reloaded.validate().is_ok()).then_some(reloaded)
    }
}

//! How connections are protected against readers on the way.

use std::sync::Arc;

use http::HeaderValue;

use crate::auth::Principal;
use crate::client::Client;

/// How a connection is protected.
#[derive(Debug, Clone, Default)]
pub enum Protection {
    /// Without TLS, which is not required of it.
    #[default]
    Plain,
    /// Without TLS, which is required.
    Missing {
        /// Port for HTTPS.
        https_port: u16,
    },
    /// With TLS.
    Tls(OverTls),
}

/// A connection over TLS. Front-ends attach it to each of its requests as an extension.
#[derive(Debug, Clone)]
pub struct OverTls {
    /// Value of `Strict-Transport-Security` (RFC 6797), if responses have it.
    pub hsts: Option<HeaderValue>,
    /// Client that authenticated with a certificate.
    pub principal: Option<Arc<Principal>>,
    /// Address that the connection comes from, which may be that of a proxy.
    pub peer: Client,
}

impl OverTls {
    /// Returns the client that authenticated with a certificate, and the address that its failed attempts count for.
    #[must_use]
    pub fn certified(&self) -> Option<(Arc<Principal>, Client)> {
        self.principal.clone().map(|principal| (principal, self.peer))
    }
}

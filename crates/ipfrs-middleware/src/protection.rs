//! How connections are protected against readers on the way.

use std::sync::Arc;

use http::HeaderValue;

use crate::auth::Principal;

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
}

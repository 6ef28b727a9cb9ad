//! Clients that authenticate with a certificate (`tls.client_ca`).

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::ORIGIN;
use tokio_util::sync::CancellationToken;

use super::Proof;
use super::metrics::Outcome;
use super::principal::Principal;
use super::scope::{Need, Scopes};

impl Principal {
    /// Returns the principal of a verified client certificate with this name. It has rights until `revoked` is
    /// cancelled.
    #[must_use]
    pub fn of_certificate(name: &str, scopes: Scopes, expires: SystemTime, revoked: CancellationToken) -> Self {
        Self {
            name: format!("cert:{name}"),
            key: None,
            is_local: false,
            scopes,
            roots: None,
            expires: Some(expires),
            commands: None,
            revoked,
        }
    }
}

/// Checks that a certificate has neither expired nor been revoked since its connection began.
pub(super) fn check(principal: &Arc<Principal>) -> Result<Arc<Principal>, Outcome> {
    if principal.revoked.is_cancelled() {
        return Err(Outcome::Unknown);
    }
    if principal.is_expired(SystemTime::now()) { Err(Outcome::Expired) } else { Ok(Arc::clone(principal)) }
}

/// Returns whether the certificate of a connection proves who sends a request with these headers. A browser sends
/// requests of any page over the connection, so where foreign pages can send requests, those of pages may only read
/// content.
pub(super) fn is_proof(headers: &HeaderMap, proof: Proof, need: Need) -> bool {
    let is_of_page = headers.contains_key(ORIGIN) || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"));
    proof == Proof::HeaderOrSession || need == Need::Path || !is_of_page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scope;

    #[test]
    fn foreign_pages_cannot_use_a_certificate() {
        let (plain, mut page) = (HeaderMap::new(), HeaderMap::new());
        page.insert("sec-fetch-site", "cross-site".parse().unwrap());
        let need = Need::Scope(Scope::Write);
        assert!(is_proof(&plain, Proof::Header, need));
        assert!(!is_proof(&page, Proof::Header, need));
        assert!(is_proof(&page, Proof::Header, Need::Path));
        assert!(is_proof(&page, Proof::HeaderOrSession, need));
    }
}

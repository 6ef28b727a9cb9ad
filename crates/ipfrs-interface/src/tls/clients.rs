//! Certificates of clients, and the principals that they stand for.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, Result};
use ipfrs_middleware::auth::{Principal, Scopes};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio_util::sync::CancellationToken;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::certificates::{parse_chain, read};
use super::config::TlsConfig;

/// Returns the verifier of client certificates of `issuers`.
///
/// # Errors
/// `tls.client_ca` contains no certificate of an issuer.
pub(super) fn verifier(
    config: &TlsConfig,
    issuers: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>> {
    if config.client_ca.as_os_str().is_empty() {
        return Ok(WebPkiClientVerifier::no_client_auth());
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(issuers, &config.client_ca)?, Arc::clone(provider));
    let verifier = if config.require_client_certificate { verifier } else { verifier.allow_unauthenticated() };
    verifier.build().map_err(|e| Error::invalid(format!("tls.client_ca = {}: {e}", config.client_ca.display())))
}

/// Returns the file with the issuers; empty if there is none.
///
/// # Errors
/// It cannot be read.
pub(super) fn issuers(config: &TlsConfig) -> Result<Vec<u8>> {
    if config.client_ca.as_os_str().is_empty() { Ok(Vec::new()) } else { read(&config.client_ca) }
}

fn roots(issuers: &[u8], path: &Path) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in parse_chain(issuers, path)? {
        roots.add(certificate).map_err(|e| {
            Error::invalid(format!("tls.client_ca: {} contains a certificate that is no root: {e}", path.display()))
        })?;
    }
    Ok(Arc::new(roots))
}

/// Returns the principal of a verified certificate. Its name is the first one in `tls.client_scopes` of those in the
/// certificate; without any there, it has no scopes. It has rights until its name in `tokens` is cancelled.
pub(super) fn principal(
    certificate: &CertificateDer<'_>,
    config: &TlsConfig,
    tokens: &BTreeMap<String, CancellationToken>,
) -> Option<Principal> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = names(&certificate);
    let known = names.iter().find_map(|name| config.client_scopes.get_key_value(name));
    let (name, scopes) = match known {
        Some((name, scopes)) => (name.as_str(), scopes.iter().copied().collect()),
        None => (names.first().map_or("unnamed", String::as_str), Scopes::default()),
    };
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    let revoked = tokens.get(name).cloned().unwrap_or_default();
    Some(Principal::of_certificate(name, scopes, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), revoked))
}

/// Returns the names in a certificate: DNS names, e-mail addresses and URIs of the subject alternative name, then the
/// common name.
fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
    let named = alternative.filter_map(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        _ => None,
    });
    let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok().map(str::to_owned));
    named.chain(common).collect()
}

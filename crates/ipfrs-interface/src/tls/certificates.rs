//! Certificates of the daemon, chosen by the host that a client names (SNI, RFC 6066).

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipfrs_core::{Error, Result};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Largest file with certificates or a key, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Time before its end at which an expiring certificate is logged.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * 24 * 3600);

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// File with the certificate and those of its issuers (PEM).
    pub certificate: PathBuf,
    /// File with the private key (PEM: PKCS #8, PKCS #1 or SEC 1).
    pub key: PathBuf,
}

/// A set of certificates.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    /// In the order of the configuration.
    all: Vec<Certificate>,
    /// Positions by name, in lower case. Names with a wildcard are without its label.
    exact: HashMap<String, Vec<usize>>,
    wildcard: HashMap<String, Vec<usize>>,
}

#[derive(Debug)]
pub(super) struct Certificate {
    key: Arc<CertifiedKey>,
    /// DNS names, in lower case.
    pub(super) names: Vec<String>,
    /// When it begins to be valid and when it expires, in seconds since 1970.
    begins: i64,
    pub(super) expires: i64,
}

impl Certificates {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, contains no certificate or key, or a key does not belong to its certificate.
    pub(super) fn read(files: &[CertificateFiles], provider: &CryptoProvider) -> Result<Self> {
        let mut this = Self::default();
        for files in files {
            this.add(Certificate::read(files, provider)?);
        }
        Ok(this)
    }

    /// Logs certificates that have expired or soon will.
    pub(super) fn warn_of_expiry(&self) {
        let now = SystemTime::now();
        let soon = now.duration_since(UNIX_EPOCH).unwrap_or_default() + EXPIRES_SOON;
        let is_soon = |it: &&Certificate| it.expires < i64::try_from(soon.as_secs()).unwrap_or(i64::MAX);
        // Some certificates are new and valid for less than a week.
        for certificate in self.iter().filter(is_soon).filter(|it| it.fresh_for(now).is_none()) {
            let names = certificate.names.join(", ");
            tracing::warn!(names, expires = certificate.expires, "a certificate has expired or will within a week");
        }
    }

    fn add(&mut self, certificate: Certificate) {
        let position = self.all.len();
        for name in &certificate.names {
            let (names, name) = match name.strip_prefix("*.") {
                Some(parent) => (&mut self.wildcard, parent),
                None => (&mut self.exact, name.as_str()),
            };
            names.entry(name.to_owned()).or_default().push(position);
        }
        self.all.push(certificate);
    }

    /// Returns the certificates in the order of the configuration.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Certificate> {
        self.all.iter()
    }

    /// Returns the time until one of the certificates for all of `names` should be renewed: when a third of its time is
    /// left. Returns `None` if none is as fresh.
    pub(super) fn fresh_for(&self, names: &[String], now: SystemTime) -> Option<Duration> {
        let covers = |it: &&Certificate| names.iter().all(|name| it.names.contains(&name.to_ascii_lowercase()));
        self.all.iter().filter(covers).filter_map(|certificate| certificate.fresh_for(now)).max()
    }

    /// Returns the certificate for a handshake: one for the host that the client names, else the first one. Of several
    /// it is one whose key the client can verify.
    pub(super) fn choose(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().map(str::to_ascii_lowercase).and_then(|name| {
            let parent = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
            self.exact.get(&name).or_else(parent)
        });
        let fits = |certificate: &&Certificate| certificate.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let named = named.into_iter().flatten().map(|position| &self.all[*position]);
        let chosen = named.clone().find(fits).or_else(|| self.all.iter().find(fits)).or_else(|| self.all.first())?;
        Some(Arc::clone(&chosen.key))
    }
}

impl Certificate {
    /// Reads a certificate and its key. Blocks.
    pub(super) fn read(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Self> {
        let chain = read_chain(&files.certificate)?;
        let path = files.key.display();
        let pem = read(&files.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|e| Error::invalid(format!("tls: {path} contains no private key in PEM: {e}")))?;
        let (names, begins, expires) = {
            let leaf = parsed(&chain[0], &files.certificate)?;
            let validity = leaf.validity();
            (dns_names(&leaf), validity.not_before.timestamp(), validity.not_after.timestamp())
        };
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|e| {
            let certificate = files.certificate.display();
            Error::invalid(format!("tls: the key in {path} cannot be used with the certificate in {certificate}: {e}"))
        })?;
        Ok(Self { key: Arc::new(key), names, begins, expires })
    }

    /// Returns the time until a third of its time is left; `None` if that is past.
    pub(super) fn fresh_for(&self, now: SystemTime) -> Option<Duration> {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        let left = self.expires.saturating_sub(now).saturating_sub((self.expires - self.begins) / 3);
        u64::try_from(left).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }
}

/// Reads a file with at least one certificate.
pub(super) fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    parse_chain(&read(path)?, path)
}

/// Parses the content of a file with at least one certificate.
pub(super) fn parse_chain(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let shown = path.display();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(Error::invalid(format!("tls: {shown} contains no certificate in PEM"))),
        Err(e) => Err(Error::invalid(format!("tls: {shown} cannot be read as PEM: {e}"))),
    }
}

/// Reads a file of the size of certificates and keys.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| Error::io(format_args!("tls: cannot read {}", path.display()), e);
    let bytes = std::fs::metadata(path).map_err(cannot)?.len();
    if bytes > MAX_FILE_BYTES {
        let shown = path.display();
        return Err(Error::invalid(format!("tls: {shown} has {bytes} bytes: certificates and keys are smaller")));
    }
    std::fs::read(path).map_err(cannot)
}

/// Parses a certificate that was read from `path`.
pub(super) fn parsed<'a>(certificate: &'a CertificateDer<'_>, path: &Path) -> Result<X509Certificate<'a>> {
    let parsed = X509Certificate::from_der(certificate);
    parsed.map(|(_, certificate)| certificate).map_err(|e| {
        Error::invalid(format!("tls: the first certificate in {} is not one of X.509: {e}", path.display()))
    })
}

/// Returns the DNS names of a certificate, in lower case (RFC 6125: names in the subject do not count).
fn dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

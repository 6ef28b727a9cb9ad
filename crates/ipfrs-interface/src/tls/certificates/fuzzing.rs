//! Entry point for fuzzing certificates and keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;

use super::super::clients;
use super::super::config::TlsConfig;
use super::{Certificate, CertificateFiles, Certificates, parse_chain};

/// A certificate and its key in PEM, and the key of another one.
static SAMPLE: LazyLock<[String; 3]> = LazyLock::new(|| {
    let generated = || KeyPair::generate().expect("keys can be generated");
    let (key, other) = (generated(), generated());
    let names = vec!["localhost".to_owned(), "*.Example.net".to_owned()];
    let parameters = CertificateParams::new(names).expect("the names are valid");
    let certificate = parameters.self_signed(&key).expect("the certificate can be signed");
    [certificate.pem(), key.serialize_pem(), other.serialize_pem()]
});

/// Returns a text with other bytes at some positions.
fn changed(text: &str, changes: &[(u16, u8)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, byte) in changes {
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *byte;
    }
    bytes
}

/// Reads a changed certificate with its key, which are refused or make a certificate with names in lower case, and with
/// the key of another one, which is always refused. Then it reads `pem` and `der` as a chain and as the certificate of
/// a client.
pub(crate) fn certificate(of_certificate: &[(u16, u8)], of_key: &[(u16, u8)], pem: &[u8], der: &[u8]) {
    let [certificate, key, other] = &*SAMPLE;
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be created");
    let files = CertificateFiles { certificate: directory.path().join("a.pem"), key: directory.path().join("a.key") };
    let provider = aws_lc_rs::default_provider();
    let read = |certificate: &[u8], key: &[u8]| {
        fs::write(&files.certificate, certificate).expect("a temporary file can be written");
        fs::write(&files.key, key).expect("a temporary file can be written");
        Certificate::read(&files, &provider)
    };
    let certificate = changed(certificate, of_certificate);
    let found = read(&certificate, &changed(key, of_key));
    if let Ok(found) = found {
        assert!(
            found.names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())),
            "{:?}",
            found.names
        );
        let _ = found.fresh_for(SystemTime::now());
        Certificates::default().add(found);
    }
    assert!(read(&certificate, other.as_bytes()).is_err(), "the key of another certificate");
    let _ = read(pem, pem);
    let chains = [pem, certificate.as_slice()].map(|pem| parse_chain(pem, Path::new("a.pem")).unwrap_or_default());
    for client in chains.into_iter().flatten().chain([CertificateDer::from(der.to_vec())]) {
        let _ = clients::principal(&client, &TlsConfig::default(), &BTreeMap::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_all_kinds_are_read() {
        let [pem, key, _] = &*SAMPLE;
        let files = tempfile::tempdir().unwrap();
        let files = CertificateFiles { certificate: files.path().join("a.pem"), key: files.path().join("a.key") };
        assert!(Certificate::read(&files, &aws_lc_rs::default_provider()).is_err(), "there are no files");
        for at in (0..pem.len() as u16).step_by(29) {
            certificate(&[(at, b'A')], &[], key.as_bytes(), &pem.as_bytes()[usize::from(at)..]);
            certificate(&[], &[(at, b'B')], b"", b"");
        }
    }
}

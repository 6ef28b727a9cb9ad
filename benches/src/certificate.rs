//! A certificate for servers over loopback.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

/// Files of a self-signed certificate for `localhost` and its key (P-256), in PEM. The names of the fields are those of
/// `tls.certificates`.
#[derive(Debug, Clone, Serialize)]
pub struct Certificate {
    /// File with the certificate.
    pub certificate: PathBuf,
    /// File with the private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Writes a new certificate and its key into `directory`.
    ///
    /// # Errors
    /// Returns an error if they cannot be generated or written.
    pub fn write(directory: &Path) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.context("cannot generate a certificate")?;
        let files = Self { certificate: directory.join("certificate.pem"), key: directory.join("key.pem") };
        fs::write(&files.certificate, made.cert.pem())?;
        fs::write(&files.key, made.signing_key.serialize_pem())?;
        Ok(files)
    }
}

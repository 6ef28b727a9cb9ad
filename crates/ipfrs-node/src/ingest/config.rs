//! The `[ingest]` section.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use ipfrs_core::{Error, Result};
use serde::Deserialize;

use crate::config::ranges::in_range;

/// Least memory for messages beside one of the maximum length, in bytes.
const BESIDE_MESSAGE_BYTES: u64 = 2 * 1024 * 1024;

/// Length of a SHA-256 hash in hexadecimal, in characters.
const HASH_CHARACTERS: usize = 64;

/// `[ingest]`: objects that clients send over a WebSocket, `/ws/ingest`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestConfig {
    /// Whether `/ws/ingest` exists.
    pub enabled: bool,
    /// Maximum number of connections. One client gets at most as many as are free for others.
    pub max_connections: usize,
    /// Maximum length of a message, in bytes.
    pub max_message_bytes: usize,
    /// Maximum size of all messages that have arrived and are not stored, in bytes.
    pub max_memory_bytes: usize,
    /// Maximum size of an object, in bytes.
    pub max_object_bytes: u64,
    /// Maximum size of all objects in the file system, in bytes.
    pub max_files_bytes: u64,
    /// Seconds without a message after which the object ends.
    pub idle_seconds: u64,
    /// User that clients must authenticate as; empty for no authentication.
    pub user: String,
    /// SHA-256 of the user's password, in hexadecimal.
    pub password_sha256: String,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_connections: 32,
            max_message_bytes: 16 * 1024 * 1024,
            max_memory_bytes: 512 * 1024 * 1024,
            max_object_bytes: 64 << 30,
            max_files_bytes: 10 << 30,
            idle_seconds: 300,
            user: String::new(),
            password_sha256: String::new(),
        }
    }
}

impl IngestConfig {
    /// Checks the values that the types do not restrict.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the key, the value and the accepted range.
    pub fn validate(&self) -> Result<()> {
        in_range("ingest.max_connections", self.max_connections as u64, 1, 10_000)?;
        in_range("ingest.max_message_bytes", self.max_message_bytes as u64, 1_024, 256 << 20)?;
        let least = self.max_message_bytes as u64 + BESIDE_MESSAGE_BYTES;
        in_range("ingest.max_memory_bytes", self.max_memory_bytes as u64, least, 1 << 40)?;
        in_range("ingest.max_object_bytes", self.max_object_bytes, 1_024, 1 << 50)?;
        in_range("ingest.max_files_bytes", self.max_files_bytes, 0, 1 << 50)?;
        in_range("ingest.idle_seconds", self.idle_seconds, 1, 86_400)?;
        if self.user.is_empty() != self.password_sha256.is_empty() {
            return Err(Error::invalid("ingest.user and ingest.password_sha256: set both or none"));
        }
        if self.user.contains(':') {
            return Err(Error::invalid("ingest.user: a user name for basic authentication has no \":\""));
        }
        let is_hash = self.password_sha256.len() == HASH_CHARACTERS
            && self.password_sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !self.password_sha256.is_empty() && !is_hash {
            return Err(Error::invalid(format!(
                "ingest.password_sha256: it must have {HASH_CHARACTERS} hexadecimal digits, as `sha256sum` prints them"
            )));
        }
        Ok(())
    }

    /// Returns whether clients must authenticate.
    #[must_use]
    pub fn needs_password(&self) -> bool {
        !self.user.is_empty()
    }

    /// Returns whether a user and a password are the configured ones. The duration does not depend on where they
    /// differ.
    #[must_use]
    pub fn is_authentic(&self, user: &[u8], password: &[u8]) -> bool {
        let hash = |bytes: &[u8]| digest::digest(&digest::SHA256, bytes);
        let hexadecimal: String = hash(password).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = self.password_sha256.to_ascii_lowercase();
        let is_user = verify_slices_are_equal(hash(user).as_ref(), hash(self.user.as_bytes()).as_ref()).is_ok();
        let is_password = verify_slices_are_equal(hexadecimal.as_bytes(), expected.as_bytes()).is_ok();
        self.needs_password() && (is_user & is_password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_checked_against_its_hash() {
        let hash = "5E884898DA28047151D0E56F8DC6292773603D0D6AABBDD62A11EF721D1542D8";
        let config = IngestConfig { user: "u".into(), password_sha256: hash.into(), ..IngestConfig::default() };
        config.validate().unwrap();
        assert!(config.is_authentic(b"u", b"password"));
        assert!(!config.is_authentic(b"u", b"passwort"));
        assert!(!config.is_authentic(b"v", b"password"));
        assert!(!IngestConfig::default().is_authentic(b"", b""));
        let error = IngestConfig { password_sha256: "password".into(), ..config }.validate().unwrap_err();
        assert!(!error.to_string().contains("password\""), "{error}");
    }
}

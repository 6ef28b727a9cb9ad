//! Authenticated callers.

use std::time::SystemTime;

use ipfrs_core::Cid;
use tokio_util::sync::CancellationToken;

use super::scope::Scopes;

/// An authenticated caller, with its rights.
#[derive(Debug)]
pub struct Principal {
    /// Name in the audit log: `key:3f7kq2mz`, `jwt:alice`.
    pub(super) name: String,
    /// ID of the API key, if that is the proof.
    pub(super) key: Option<String>,
    /// Whether the token of the repo is the proof.
    pub(super) is_local: bool,
    pub(super) scopes: Scopes,
    /// Roots below which content may be read; `None` for all content, and for routes that are not about one root.
    pub(super) roots: Option<Box<[Cid]>>,
    /// RPC commands, as beginnings of their paths, that may be used without a scope; `None` for a caller with scopes.
    pub(super) commands: Option<Box<[String]>>,
    /// When the credentials expire.
    pub(super) expires: Option<SystemTime>,
    /// Cancelled when the credentials are revoked.
    pub(super) revoked: CancellationToken,
}

impl Principal {
    /// Returns the name in the audit log, which is not secret.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the scopes.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.scopes
    }

    /// Returns the roots below which content may be read, if there is a restriction.
    #[must_use]
    pub fn roots(&self) -> Option<&[Cid]> {
        self.roots.as_deref()
    }

    /// Returns whether this is a command on the machine of the daemon, with the token of its repo.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

//! The caller of a request.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::Extensions;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use tokio::time::sleep;

use super::failure;
use super::principal::Principal;
use super::scope::{Need, Scope};

/// Time after which the expiry of credentials is compared with the clock again. Timers count neither changes of the
/// clock nor the time for which the machine is suspended.
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// Sender of a request. Front-ends attach it to the request as an extension.
#[derive(Debug, Clone)]
pub struct Caller(Who);

#[derive(Debug, Clone)]
enum Who {
    /// Has all rights, because authentication is off.
    Unrestricted,
    /// Has no credentials, and may do what needs none.
    Anonymous,
    Authenticated(Arc<Principal>),
}

impl Caller {
    /// Returns a caller with all rights.
    #[must_use]
    pub fn unrestricted() -> Self {
        Self(Who::Unrestricted)
    }

    /// Returns a caller without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self(Who::Anonymous)
    }

    pub(super) fn new(principal: Arc<Principal>) -> Self {
        Self(Who::Authenticated(principal))
    }

    /// Returns the caller of a request with these extensions. Requests without one come from this process.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(Self::unrestricted)
    }

    /// Returns who has authenticated.
    #[must_use]
    pub fn principal(&self) -> Option<&Arc<Principal>> {
        match &self.0 {
            Who::Authenticated(principal) => Some(principal),
            Who::Unrestricted | Who::Anonymous => None,
        }
    }

    /// Returns the name for the audit log, if there is one.
    pub(super) fn audited(&self) -> Option<&str> {
        match &self.0 {
            Who::Authenticated(principal) => Some(principal.name()),
            Who::Anonymous => Some("anonymous"),
            Who::Unrestricted => None,
        }
    }

    /// Checks that the caller has a scope.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] without credentials, [`ErrorKind::Forbidden`] without the scope.
    pub fn require(&self, scope: Scope) -> Result<()> {
        match &self.0 {
            Who::Unrestricted => Ok(()),
            Who::Anonymous => Err(failure::no_credentials()),
            Who::Authenticated(principal) if principal.scopes.allow(scope) => Ok(()),
            Who::Authenticated(principal) => Err(Error::new(
                ErrorKind::Forbidden,
                format!("{} has {}, and this needs {scope}", principal.name, principal.scopes),
            )),
        }
    }

    /// Checks that the caller has what a request needs.
    ///
    /// # Errors
    /// As [`require`](Self::require) and [`require_no_roots`](Self::require_no_roots).
    pub fn meet(&self, need: Need) -> Result<()> {
        match need {
            Need::Path => self.require(Scope::Read),
            Need::Command(_) if self.principal().is_some_and(|principal| principal.commands.is_some()) => Ok(()),
            Need::Scope(scope) | Need::Command(scope) => self.require(scope).and_then(|()| self.require_no_roots()),
            Need::Any => self.require_any(),
            Need::Nothing | Need::Content | Need::Records | Need::Later => Ok(()),
        }
    }

    /// Checks that the caller may use the RPC command at `path`, if it is restricted to commands (`auth.rpc`).
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] otherwise.
    pub fn require_command(&self, path: &str) -> Result<()> {
        let Some((principal, commands)) = self.principal().and_then(|it| Some((it, it.commands.as_deref()?))) else {
            return Ok(());
        };
        let is_below = |allowed: &String| {
            path.strip_prefix(&**allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // Clients ask for the version first.
        if path == "/api/v0/version" || commands.iter().any(is_below) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forbidden, format!("auth.rpc does not give {} the command {path}", principal.name)))
    }

    /// Checks that the caller has credentials.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] without them.
    pub fn require_any(&self) -> Result<()> {
        match &self.0 {
            Who::Anonymous => Err(failure::no_credentials()),
            Who::Unrestricted | Who::Authenticated(_) => Ok(()),
        }
    }

    /// Returns whether the caller may only read content below certain roots.
    #[must_use]
    pub fn has_roots(&self) -> bool {
        self.principal().is_some_and(|principal| principal.roots.is_some())
    }

    /// Checks that the caller is not restricted to roots, for requests that are not about one root.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] otherwise.
    pub fn require_no_roots(&self) -> Result<()> {
        match self.principal().filter(|principal| principal.roots.is_some()) {
            None => Ok(()),
            Some(principal) => Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "{} may only read content below its roots: /ipfs/ROOT/..., /v1/stream/download/ROOT/... and \
                     /v1/tensor/ROOT/...",
                    principal.name
                ),
            )),
        }
    }

    /// Checks that the caller may read content below `root`. `None` is content below a name.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the caller is restricted to other roots.
    pub fn require_root(&self, root: Option<&Cid>) -> Result<()> {
        let Some((principal, roots)) = self.principal().and_then(|it| Some((it, it.roots.as_deref()?))) else {
            return Ok(());
        };
        // The version and the codec of a content ID do not change which block it names.
        if root.is_some_and(|root| roots.iter().any(|allowed| allowed.hash() == root.hash())) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Forbidden, format!("{} may not read content below this root", principal.name)))
    }

    /// Completes when the credentials expire or are revoked.
    pub async fn ended(&self) {
        let Some(principal) = self.principal() else { return pending().await };
        let expiry = async {
            let Some(expires) = principal.expires else { return pending().await };
            while !principal.is_expired(SystemTime::now()) {
                let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
                sleep(left.min(CLOCK_CHECK)).await;
            }
        };
        tokio::select! {
            () = principal.revoked.cancelled() => {}
            () = expiry => {}
        }
    }
}

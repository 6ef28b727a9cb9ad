//! The token for commands on this machine: `<repo>/api-token`, which only the owner of the repo can read.
//!
//! It exists while the daemon runs, and is another one after each start. A program that can read it can also change
//! the repo itself, so it may do everything.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use ipfrs_core::{Error, Result};
use ipfrs_node::Node;
use ipfrs_node::off_workers;
use ipfrs_node::private_file::{Exposed, read_private, write_private};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::keys::new_token;
use super::principal::Principal;
use super::scope::{Scope, Scopes};

/// Name of the file.
const FILE: &str = "api-token";

pub(super) struct LocalToken {
    path: PathBuf,
    token: Zeroizing<String>,
    principal: Arc<Principal>,
}

impl fmt::Debug for LocalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalToken").field("path", &self.path).finish_non_exhaustive()
    }
}

impl LocalToken {
    /// Writes a new token. Returns `None` if the repo is open read-only.
    pub(super) async fn create(node: &Node) -> Result<Option<Self>> {
        if node.check_writable().is_err() {
            return Ok(None);
        }
        let (_, token) = new_token()?;
        let path = node.repo().join(FILE);
        let (file, bytes) = (path.clone(), token.clone());
        off_workers(move || {
            let written = write_private(&file, bytes.as_bytes());
            written.map_err(|e| Error::io(format_args!("cannot write {}", file.display()), e))
        })
        .await?;
        let principal = Arc::new(Principal {
            name: "local".to_owned(),
            key: None,
            is_local: true,
            scopes: Scopes::from_iter([Scope::Admin]),
            roots: None,
            expires: None,
            commands: None,
            revoked: CancellationToken::new(),
        });
        Ok(Some(Self { path, token, principal }))
    }

    pub(super) fn principal(&self, token: &str) -> Option<Arc<Principal>> {
        verify_slices_are_equal(token.as_bytes(), self.token.as_bytes()).ok().map(|()| Arc::clone(&self.principal))
    }

    /// Removes the file, unless another daemon has written its own since.
    pub(super) fn remove(&self) {
        let is_own = fs::read(&self.path).is_ok_and(|bytes| bytes == self.token.as_bytes());
        if is_own && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the token for local commands");
        }
    }
}

/// Returns the token of the daemon that runs on `repo`, if this user may read it.
#[must_use]
pub fn read_local_token(repo: &Path) -> Option<Zeroizing<String>> {
    let bytes = read_private(&repo.join(FILE), Exposed::Refuse).ok().flatten()?;
    std::str::from_utf8(&bytes).ok().map(|token| Zeroizing::new(token.to_owned()))
}

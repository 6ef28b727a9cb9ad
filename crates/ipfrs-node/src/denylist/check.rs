//! Checks of requests against the denylists.

use std::path::PathBuf;

use ipfrs_core::{Cid, Result};

use super::NewDenylists;
use super::rule::Root;
use super::rules::Kind;
use crate::{ContentPath, LinkName, NameRoot, Node};

impl Node {
    /// Whether the node was opened with denylists. If not, it checks nothing that it reads, and its denylists cannot be
    /// [replaced](Self::replace_denylists).
    #[must_use]
    pub fn has_denylists(&self) -> bool {
        self.inner.denylists.is_some()
    }

    /// Reads other denylists, files and directories as in [`NodeConfig::denylists`](crate::NodeConfig). Returns `None`
    /// for a node that was opened without any.
    ///
    /// # Errors
    /// One of them is missing, cannot be read, or is not a denylist.
    pub async fn read_denylists(&self, sources: &[PathBuf]) -> Result<Option<NewDenylists>> {
        match &self.inner.denylists {
            Some(denylists) => denylists.read(self.repo(), sources).await.map(Some),
            None => Ok(None),
        }
    }

    /// Puts denylists in force in place of all others.
    ///
    /// # Errors
    /// The blocking thread failed.
    pub async fn replace_denylists(&self, new: NewDenylists) -> Result<()> {
        match &self.inner.denylists {
            Some(denylists) => denylists.replace(new).await,
            None => Ok(()),
        }
    }

    /// Refuses a block that a denylist blocks.
    ///
    /// # Errors
    /// As [`Denylists::check_block`].
    pub(crate) fn check_block(&self, cid: &Cid) -> Result<()> {
        self.inner.denylists.as_ref().map_or(Ok(()), |denylists| denylists.check_block(cid))
    }

    /// Refuses a path that a denylist blocks, before it is resolved. A path without segments is checked as a block, not
    /// here.
    ///
    /// # Errors
    /// As [`Self::check_block`].
    pub(crate) fn check_path(&self, path: &ContentPath) -> Result<()> {
        let Some(denylists) = &self.inner.denylists else { return Ok(()) };
        if !path.segments().is_empty() {
            let below = joined(path.segments());
            denylists.check_path(&Root::Content(*path.root()), &below, Kind::Path, path)?;
        }
        Ok(())
    }

    /// Refuses a name that a denylist blocks, before it is resolved, and the path `below` it. All paths below a
    /// blocked name are refused as well.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind) or [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) for a blocked
    /// name or path, as in [`Self::resolve_name`](crate::Node::resolve_name).
    pub fn check_name(&self, name: &NameRoot, below: &[LinkName]) -> Result<()> {
        let Some(denylists) = &self.inner.denylists else { return Ok(()) };
        let root = match name {
            NameRoot::Key(key) => Root::Key(key.cid()),
            NameRoot::Domain(domain) => Root::Domain(domain.into()),
        };
        denylists.check_path(&root, b"", Kind::Name, &format_args!("/ipns/{name}"))?;
        if below.is_empty() {
            return Ok(());
        }
        let below = joined(below);
        let shown = LinkName::from(&*below);
        denylists.check_path(&root, &below, Kind::Name, &format_args!("/ipns/{name}/{shown}"))
    }
}

/// Returns the names of a path, joined by slashes.
fn joined(segments: &[LinkName]) -> Vec<u8> {
    segments.iter().map(LinkName::as_bytes).collect::<Vec<_>>().join(&b'/')
}

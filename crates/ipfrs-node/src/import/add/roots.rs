//! Roots of an import, which are in no directory of it: they are pinned and put into the mutable files.

use ipfrs_core::{Error, Result};
use ipfrs_store::Pin;

use super::AddSession;
use crate::{Added, pins};

impl AddSession {
    /// Puts the roots among `added` into the mutable files, pins them, and returns what the caller reports.
    pub(super) async fn report(&mut self, mut added: Vec<Added>) -> Result<Vec<Added>> {
        if let Err((root, error)) = self.put_roots(&added).await {
            // As in Kubo, the content ID is reported before the error.
            added.truncate(root + 1);
            self.failure = Some(error);
        }
        self.pin_roots(&added).await?;
        self.latest = added.last().map(|added| added.cid).or(self.latest);
        Ok(added)
    }

    /// Pins the entries of `added` that are in no directory of the import.
    async fn pin_roots(&self, added: &[Added]) -> Result<()> {
        let Some((node, name)) = &self.pins else { return Ok(()) };
        let roots = added.iter().filter(|added| self.is_root(added));
        let pin = |added: &Added| Pin { name: name.clone(), ..Pin::recursive(added.cid) };
        pins::insert(node, roots.map(pin).collect(), &self.lease.current()).await
    }

    /// Whether an entry is in no directory of the import.
    fn is_root(&self, added: &Added) -> bool {
        if self.wrap { added.name.is_empty() } else { !added.name.as_bytes().contains(&b'/') }
    }

    /// Puts the roots among `added` into the tree of mutable files, if the options say so. An error has the position
    /// of the root.
    async fn put_roots(&mut self, added: &[Added]) -> Result<(), (usize, Error)> {
        let Some((node, path)) = self.to_files.clone() else { return Ok(()) };
        let roots: Vec<_> = added.iter().enumerate().filter(|(_, added)| self.is_root(added)).collect();
        for (at, root) in roots {
            if self.unnamed || root.name.is_empty() {
                return Err((at, Error::invalid("to-files: cannot add unnamed files to MFS")));
            }
            if self.has_put_file && !path.is_directory() {
                let why = format!(
                    "to-files: MFS destination is a file: only one entry can be copied to {:?}",
                    path.to_string()
                );
                return Err((at, Error::invalid(why)));
            }
            node.put_into_tree(&root.cid, &root.name, &path).await.map_err(|error| (at, error))?;
            self.has_put_file = true;
        }
        Ok(())
    }
}

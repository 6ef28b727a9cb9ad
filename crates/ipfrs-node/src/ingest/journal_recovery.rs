//! Journals of a process that ended without moving them into their objects.

use std::fs;
use std::io;
use std::path::Path;

use ipfrs_core::{Error, ErrorKind, Result};

use super::journal::{self, in_background};
use super::tree_object::{JOURNALS, open_edit, path_of};
use super::{DIRECTORY, IngestName, exists};
use crate::Node;
use crate::private_file::sync_parent;

/// Text in the name of a damaged journal after that of its object, which has no `~`.
const DAMAGED: &str = "~damaged";

/// Renames a damaged journal durably. Earlier damaged journals of its object stay.
fn keep_damaged(path: &Path, name: &IngestName) -> io::Result<()> {
    let mut kept = path.with_file_name(format!("{name}{DAMAGED}"));
    let mut number = 1;
    while kept.try_exists()? {
        number += 1;
        kept = path.with_file_name(format!("{name}{DAMAGED}-{number}"));
    }
    tracing::error!(
        object = %name, journal = %kept.display(),
        "the journal of the object is damaged: acknowledged bytes are lost, and the journal is kept"
    );
    fs::rename(path, &kept)?;
    sync_parent(&kept)
}

impl Node {
    /// Moves what is left in journals into the tree, after a process that ended without doing so.
    pub(crate) async fn recover_ingested(&self) -> Result<()> {
        for file in self.listed_journals().await? {
            let Ok(name) = file.parse::<IngestName>() else { continue };
            if let Err(error) = self.recover_journal(&self.repo().join(JOURNALS).join(file), &name).await {
                tracing::warn!(object = %name, %error, "a journal cannot be moved into its object, so it is kept");
            }
        }
        Ok(())
    }

    /// Returns the names of the files in the directory of the journals.
    pub(super) async fn listed_journals(&self) -> Result<Vec<String>> {
        let directory = self.repo().join(JOURNALS);
        let listed = in_background(&directory, "list", |directory| match fs::read_dir(directory) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok())).collect(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        });
        Ok(listed.await?.into_iter().flatten().collect())
    }

    /// Returns for each damaged journal that bytes of its object were lost, with the remedy, until the operator removes
    /// the file.
    pub(crate) async fn damaged_journals(&self) -> Result<Vec<String>> {
        let listed = self.listed_journals().await?.into_iter();
        let lost = listed.filter_map(|file| {
            let (object, _) = file.split_once(DAMAGED)?;
            Some(format!(
                "acknowledged bytes of /{DIRECTORY}/{object} are lost, because its journal was damaged: send what the \
                 object lacks again, then remove {JOURNALS}/{file} in the repo"
            ))
        });
        Ok(lost.collect())
    }

    /// Moves what is left in a journal, if there is one, into the tree.
    pub(super) async fn recover_journal(&self, path: &Path, name: &IngestName) -> Result<()> {
        if !in_background(path, "read", |path| path.try_exists()).await? {
            return Ok(());
        }
        let object = path_of(name)?;
        let size = match self.mutable_file(&object).await {
            Ok(file) => file.size(),
            // Someone removed the object while it was written.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                if self.inner.mutable_files.durable_root().await.root().is_none() {
                    let why = "mutable-files.root, which names the tree that the object is in, is lost";
                    return Err(Error::corrupt(format!("{why}: restore it from a backup, then restart")));
                }
                tracing::warn!(%object, "the object of a journal was removed, so the journal is removed");
                return in_background(path, "remove", |path| fs::remove_file(path)).await;
            }
            Err(error) => return Err(error),
        };
        let found = in_background(path, "read", move |path| journal::read(path, size)).await?;
        match found.leftover {
            Some(leftover) if leftover.offset == size => {
                let _lease = self.appended_lease();
                let file = self.open_appended(&object, true).await?.ok_or_else(|| exists(name))?;
                let mut edit = open_edit(self, &file).await?;
                edit.seek(size).await?;
                edit.write(leftover.bytes).await?;
                let new = edit.finish().await?;
                let replaced = self.replace_appended(&object, &mut { file }, new, None).await?.await;
                replaced.map_err(|e| Error::internal("a task that commits an object failed").with_source(e))??;
            }
            Some(leftover) => tracing::warn!(
                object = %object, size, offset = leftover.offset,
                "the object was replaced while it was written, so its journal is removed"
            ),
            None => {}
        }
        if found.is_damaged {
            let name = name.clone();
            return in_background(path, "rename", move |path| keep_damaged(path, &name)).await;
        }
        in_background(path, "remove", |path| fs::remove_file(path)).await
    }
}

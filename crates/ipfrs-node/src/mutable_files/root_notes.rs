//! Notes about the file with the root, beside the pins. Without them, gc would take a lost file for mutable files that
//! were never used, and remove their content.

use std::sync::atomic::{AtomicBool, Ordering};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::RootNote;

use super::MutableFiles;
use crate::Node;

/// State of the notes, in memory.
#[derive(Debug, Default)]
pub(super) struct RootNotes {
    /// Whether it is noted that the file exists.
    is_used: AtomicBool,
    /// Whether the file is missing, or was and the operator has not accepted that.
    is_lost: AtomicBool,
    /// Whether the loss is noted.
    is_loss_noted: AtomicBool,
}

impl MutableFiles {
    /// Whether the root was lost, and the operator has not accepted that.
    pub(crate) fn is_root_lost(&self) -> bool {
        self.root_notes.is_lost.load(Ordering::SeqCst)
    }

    /// Returns how the root was lost, with the remedy, unless the operator has accepted that.
    pub(crate) async fn lost_root(&self) -> Option<&'static str> {
        if !self.is_root_lost() {
            return None;
        }
        Some(match self.durable_root().await.root() {
            None => {
                "mutable-files.root is missing, so the mutable files are lost: stop the daemon and restore the file from \
                 a backup, or run `repo gc --force`, which removes their content"
            }
            Some(_) => {
                "mutable-files.root was lost and there is another one. If it is the restored one, or nothing is missing, \
                 run `repo gc --force`: it keeps what the present root holds. Otherwise stop the daemon and restore the \
                 file from a backup"
            }
        })
    }
}

impl Node {
    /// Compares the notes with the root, after the start. A repo of an earlier version gets its note.
    ///
    /// # Errors
    /// If the notes cannot be read.
    pub(crate) async fn check_root_notes(&self) -> Result<()> {
        let (files, pins) = (&self.inner.mutable_files, &self.inner.pins);
        let durable = files.durable_root().await;
        if !durable.has_file() {
            return Ok(());
        }
        let is_used = pins.has_root_note(RootNote::Used).await?;
        let is_loss_noted = pins.has_root_note(RootNote::Lost).await?;
        let is_lost = is_loss_noted || (is_used && durable.root().is_none());
        let has_root = durable.root().is_some();
        drop(durable);
        files.root_notes.is_used.store(is_used, Ordering::SeqCst);
        files.root_notes.is_loss_noted.store(is_loss_noted, Ordering::SeqCst);
        files.root_notes.is_lost.store(is_lost, Ordering::SeqCst);
        if let Some(lost) = files.lost_root().await {
            tracing::error!(repo = %self.inner.repo.display(), "{lost}; until then, gc fails");
        } else if has_root && !self.inner.read_only {
            self.note_used_root().await;
        }
        Ok(())
    }

    /// Notes that the file with the root exists. If this fails, the next flush tries again.
    pub(super) async fn note_used_root(&self) {
        let notes = &self.inner.mutable_files.root_notes;
        if notes.is_used.load(Ordering::SeqCst) {
            return;
        }
        match self.inner.pins.set_root_note(RootNote::Used, true).await {
            Ok(()) => notes.is_used.store(true, Ordering::SeqCst),
            Err(error) => tracing::warn!(%error, "cannot note that there are mutable files"),
        }
    }

    /// Notes a lost root before there is another one, which would hide the loss from the next start.
    ///
    /// # Errors
    /// If the note cannot be written.
    pub(super) async fn note_lost_root(&self) -> Result<()> {
        let files = &self.inner.mutable_files;
        let is_loss_noted = &files.root_notes.is_loss_noted;
        if files.is_root_lost() && !is_loss_noted.load(Ordering::SeqCst) {
            self.inner.pins.set_root_note(RootNote::Lost, true).await?;
            is_loss_noted.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Fails if the root was lost, since gc would remove the content of the mutable files.
    pub(crate) async fn check_root_is_not_lost(&self) -> Result<()> {
        match self.inner.mutable_files.lost_root().await {
            Some(lost) => {
                Err(Error::new(ErrorKind::Conflict, format!("cannot collect garbage (nothing was removed): {lost}")))
            }
            None => Ok(()),
        }
    }

    /// Accepts that the root was lost.
    ///
    /// # Errors
    /// If the notes cannot be written.
    pub(crate) async fn accept_lost_root(&self) -> Result<()> {
        let files = &self.inner.mutable_files;
        if !files.is_root_lost() {
            return Ok(());
        }
        // No other root is written meanwhile.
        let durable = files.durable_root().await;
        let is_used = durable.root().is_some();
        self.inner.pins.set_root_note(RootNote::Used, is_used).await?;
        self.inner.pins.set_root_note(RootNote::Lost, false).await?;
        files.root_notes.is_used.store(is_used, Ordering::SeqCst);
        files.root_notes.is_lost.store(false, Ordering::SeqCst);
        files.root_notes.is_loss_noted.store(false, Ordering::SeqCst);
        Ok(())
    }
}

//! Background task for journals whose writers could not move them into their objects.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::Result;
use tokio::time::sleep;

use super::IngestName;
use super::tree_object::{JOURNALS, path_of};
use crate::Node;

/// Interval between two attempts.
const PERIOD: Duration = Duration::from_secs(5);

impl Node {
    /// Starts a background task that moves what is left in journals into their objects, until the node is closed. A
    /// writer leaves acknowledged bytes there if it fails, for example on a full disk.
    pub(crate) fn start_journal_recovery(&self) {
        if self.check_writable().is_err() {
            return;
        }
        let node = Arc::downgrade(&self.inner);
        let background_task = tokio::spawn(async move {
            loop {
                sleep(PERIOD).await;
                let Some(inner) = node.upgrade() else { return };
                let node = Self { inner };
                if let Err(error) = node.recover_left_journals().await {
                    tracing::error!(%error, "the journals of ingested objects cannot be listed");
                }
            }
        });
        self.inner.ingestion.tend(background_task);
    }

    async fn recover_left_journals(&self) -> Result<()> {
        for file in self.listed_journals().await? {
            let Ok(name) = file.parse::<IngestName>() else { continue };
            // The client or the start that left the journal has reported why.
            if let Err(error) = self.recover_left_journal(&name).await {
                tracing::debug!(object = %name, %error, "a journal cannot be moved into its object yet");
            }
        }
        Ok(())
    }

    /// Moves what is left in the journal of an object into the tree, unless the object is being written.
    async fn recover_left_journal(&self, name: &IngestName) -> Result<()> {
        let Some(_mark) = self.inner.ingestion.mark_recovered(name) else { return Ok(()) };
        // Until then, only the journal may have acknowledged bytes of the last writer.
        self.until_appended_is_durable(&path_of(name)?).await?;
        self.recover_journal(&self.repo().join(JOURNALS).join(name.as_str()), name).await
    }
}

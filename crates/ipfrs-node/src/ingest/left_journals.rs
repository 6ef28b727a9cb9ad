//! Background task for journals whose writers could not move them into their objects.

use std::sync::Arc;
use std::time::Duration;

use ipfrs_core::Result;
use tokio::time::sleep;

use super::journal::in_background;
use super::tree_object::{JOURNALS, path_of};
use super::{IngestName, object_of};
use crate::{LinkName, Node};

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

    /// Moves what a writer has left in the journal of a mutable file into it, before the file is written. Otherwise, the
    /// end of the journal could later be appended to the new content.
    pub(crate) async fn recover_before_write(&self, names: &[LinkName]) -> Result<()> {
        let Some(name) = object_of(names) else { return Ok(()) };
        let journal = self.repo().join(JOURNALS).join(name.as_str());
        if in_background(&journal, "read", |path| path.try_exists()).await? {
            self.recover_left_journal(&name).await?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;

    use super::*;
    use crate::WriteOptions;
    use crate::ingest::IngestStore;

    #[tokio::test]
    async fn file_that_is_replaced_gets_no_end_of_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let name: IngestName = "a".parse().unwrap();
        let mut object = node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap();
        object.append(vec![Bytes::from_static(b"acknowledged")]).await.unwrap();
        object.begin_commit().await.unwrap();
        object.committed().await.unwrap();
        // Its writer could not settle it.
        drop(object);
        let options = WriteOptions {
            offset: 0,
            create: false,
            parents: false,
            truncate: true,
            count: u64::MAX,
            raw_leaves: None,
            format: None,
            flush: true,
        };
        let content = stream::iter([Ok(Bytes::from_static(b"new"))]);
        node.write_to_tree(&path_of(&name).unwrap(), options, content).await.unwrap();
        let object = node.ingest(IngestStore::Ipfs, name, true).await.unwrap();
        assert_eq!(object.bytes(), 3);
        drop(object);
        node.close().await.unwrap();
    }
}

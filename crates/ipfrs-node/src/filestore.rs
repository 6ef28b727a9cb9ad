//! Blocks that stay in files of the user (`add --nocopy`), and their references.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use ipfrs_core::{Block, Cid, Error, FileOffset, Result};
use ipfrs_store::{FileState, Filestore, PackStore, Pins, Reference, ReferenceOrder};
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::BlockSink;

use crate::Node;
use crate::gc::Protection;
use crate::node_store::NodeStore;

/// References whose blocks are looked up in the packs at a time.
const LOOKUP_REFERENCES: usize = 256;

/// The filestore, with the store of the node that it is a part of.
#[derive(Debug, Clone)]
pub(crate) struct References {
    pub(crate) filestore: Filestore,
    pub(crate) store: Arc<NodeStore>,
}

/// Sink of an import that keeps leaves in their files (`nocopy`), or does not copy those that are there (`fscache`).
struct FilestoreSink {
    node: Node,
    references: References,
    protection: Protection,
    /// Whether a block with a reference is not stored again.
    fscache: bool,
}

#[async_trait]
impl BlockSink for FilestoreSink {
    async fn put(&self, mut blocks: Vec<Block>) -> Result<()> {
        if self.fscache {
            // Before the look-up, so that gc spares what is found.
            self.protection.touch(blocks.iter().map(|block| block.cid().hash()));
            self.protection.settled().await;
            let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
            let mut found = self.references.filestore.references(&cids).await?.into_iter();
            blocks.retain(|_| found.next().flatten().is_none());
        }
        StoreSink(self.node.inner.served.clone()).put(blocks).await
    }

    async fn put_leaves(&self, leaves: Vec<(Block, FileOffset)>) -> Result<()> {
        if let Some(denylists) = &self.node.inner.denylists {
            leaves.iter().try_for_each(|(block, _)| denylists.check_block(block.cid()))?;
        }
        self.references.store.put_references(&self.references.filestore, leaves).await
    }
}

/// Opens the references of a store to blocks in files, if `root` says where the files are. A note beside the pins says
/// whether there were references, so that a lost file is reported as a loss of blocks. Waits for the disk.
pub(crate) fn open_filestore(
    pack: &PackStore,
    pins: &Pins,
    root: Option<&Path>,
    read_only: bool,
) -> Result<Option<Filestore>> {
    let (store, is_noted) = (pack.directory(), pins.has_filestore_note()?);
    if is_noted && !Filestore::exists(store) {
        // Before there is another file, which would hide a loss that is not noted.
        pack.add_loss(
            "filestore.redb was missing, and with it the references to blocks in files: stop the daemon and restore it \
             from a backup, or add the files again",
        )?;
    }
    let filestore = match root {
        Some(root) => Some(Filestore::open(pack.clone(), root, read_only)?),
        None if Filestore::exists(store) => {
            tracing::warn!(
                store = %store.display(),
                "the store refers to blocks in files, which are not available: set store.filestore_root to the \
                 directory of the files, or remove filestore.redb, and after a restart the line about it in lost-blocks"
            );
            None
        }
        None => None,
    };
    let is_used = Filestore::exists(store);
    if is_used != is_noted
        && !read_only
        && let Err(error) = pins.set_filestore_note(is_used)
    {
        tracing::warn!(%error, "cannot note whether there are references to blocks in files");
    }
    Ok(filestore)
}

impl Node {
    /// Whether blocks can stay in files (`store.filestore_root`).
    #[must_use]
    pub fn has_filestore(&self) -> bool {
        self.inner.references.is_some()
    }

    fn references(&self) -> Result<&References> {
        // Kubo's text. The remedy is to set `store.filestore_root`.
        let why = || Error::unsupported("filestore is not enabled, see https://git.io/vNItf");
        self.inner.references.as_ref().ok_or_else(why)
    }

    /// Returns the sink of an import with `nocopy` or `fscache`.
    pub(crate) fn filestore_sink(&self, fscache: bool) -> Result<Arc<dyn BlockSink>> {
        let Some(references) = self.inner.references.clone() else {
            return Err(Error::unsupported(
                "either the filestore or the urlstore must be enabled to use nocopy, see: \
                 https://github.com/ipfs/kubo/blob/master/docs/experimental-features.md#ipfs-filestore: set \
                 store.filestore_root to the directory of the files and restart, or leave nocopy out",
            ));
        };
        let protection = self.inner.protection.clone();
        Ok(Arc::new(FilestoreSink { node: self.clone(), references, protection, fscache }))
    }

    /// Returns all references of the filestore in an order.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) without a filestore.
    pub fn file_references(&self, order: ReferenceOrder) -> Result<BoxStream<'static, Result<Reference>>> {
        Ok(self.references()?.filestore.list(order))
    }

    /// Returns the reference to a block, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) without a filestore; also if the references cannot be read.
    pub async fn file_reference(&self, cid: &Cid) -> Result<Option<Reference>> {
        Ok(self.references()?.filestore.references(&[*cid]).await?.pop().flatten())
    }

    /// Compares the part of a file with the block that refers to it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) without a filestore.
    pub async fn verify_file_reference(&self, reference: &Reference) -> Result<FileState> {
        self.references()?.filestore.verify(reference).await
    }

    /// Removes a reference, even if its block is pinned, unless it was replaced since it was read. The file stays.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) without a filestore;
    /// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) if the repo is read-only.
    pub async fn remove_file_reference(&self, reference: &Reference) -> Result<()> {
        self.check_writable()?;
        let References { filestore, store } = self.references()?;
        store.remove_reference(filestore, reference).await
    }

    /// Returns the blocks that are both in a file and in the packs.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) without a filestore.
    pub fn duplicated_blocks(&self) -> Result<BoxStream<'static, Result<Cid>>> {
        let filestore = self.references()?.filestore.clone();
        let references = filestore.list(ReferenceOrder::Hash).ready_chunks(LOOKUP_REFERENCES);
        let duplicates = references.then(move |references| {
            let filestore = filestore.clone();
            async move {
                let found = async {
                    let cids: Vec<_> =
                        references.into_iter().map(|found| found.map(|found| found.cid)).collect::<Result<_>>()?;
                    let are_in_packs = filestore.are_in_packs(&cids).await?;
                    Ok(cids.into_iter().zip(are_in_packs).filter(|(_, is_in)| *is_in).map(|(cid, _)| Ok(cid)).collect())
                };
                let found: Result<Vec<Result<Cid>>> = found.await;
                futures::stream::iter(found.unwrap_or_else(|error| vec![Err(error)]))
            }
        });
        Ok(duplicates.flatten().boxed())
    }
}

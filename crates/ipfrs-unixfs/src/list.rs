//! The entries of a directory as a stream.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Error, Result};

use crate::blocks::BlockSource;
use crate::hamt::{MAX_HAMT_DEPTH, Slot};
use crate::node::{DirEntry, Node};
use crate::resolve::load_shard;

/// The entries of the directory `node`, basic or sharded, in the order of its blocks; sharded ones depth first.
///
/// Memory is bounded by the shards from the root to the one that is being read (at most 22 of at most 1,024 links). The
/// stream ends after its first error: [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when `node` is no directory or
/// a shard is not valid, and whatever `source` gives.
#[must_use]
pub fn entries(source: Arc<dyn BlockSource>, node: Node) -> BoxStream<'static, Result<DirEntry>> {
    match node {
        Node::Directory { entries, .. } => stream::iter(entries.into_iter().map(Ok)).boxed(),
        Node::HamtShard(root) => {
            let walk = Walk { source, path: vec![root.into_slots().into_iter()] };
            stream::try_unfold(walk, |mut walk| async move { Ok(walk.next().await?.map(|entry| (entry, walk))) })
                .boxed()
        }
        Node::File(_) | Node::Symlink { .. } => {
            stream::iter([Err(Error::invalid("only directories have entries, and this is none"))]).boxed()
        }
    }
}

/// What is left of each shard on the way from the root to where the walk is.
struct Walk {
    source: Arc<dyn BlockSource>,
    path: Vec<std::vec::IntoIter<Slot>>,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<DirEntry>> {
        while let Some(shard) = self.path.last_mut() {
            match shard.next() {
                Some(Slot::Entry(entry)) => return Ok(Some(entry)),
                Some(Slot::Shard(cid)) if self.path.len() >= MAX_HAMT_DEPTH => {
                    return Err(Error::invalid(format!(
                        "directory shard {cid} lies deeper than {MAX_HAMT_DEPTH} levels, where no name can lead"
                    )));
                }
                Some(Slot::Shard(cid)) => {
                    let shard = load_shard(self.source.as_ref(), &cid).await?;
                    self.path.push(shard.into_slots().into_iter());
                }
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(None)
    }
}

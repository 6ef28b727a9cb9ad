//! The entries of a directory as a stream.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Cid, Error, Result};
use tokio::task::coop::consume_budget;

use crate::blocks::BlockSource;
use crate::hamt::Slot;
use crate::node::{DirEntry, Node};
use crate::resolve::load_shard;

/// The entries of the directory `node`, basic or sharded, in the order of its blocks; sharded ones depth first. A shared
/// node is read where it is.
///
/// Memory is bounded by the shards from the root to the one that is being read (at most 21 of at most 1,024 links). The
/// stream ends after its first error: [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when `node` is no directory or
/// a shard is not valid, and whatever `source` gives.
///
/// A few blocks can make a directory of more entries than anybody can count, by naming the same shard again and again.
/// Hence the work is done as entries are taken: at most the shards of one path for an entry, because a shard without
/// entries below it is refused. And a consumer that takes all that it can get still lets other tasks run: loading shards
/// uses up the budget of a Tokio task.
#[must_use]
pub fn entries(source: Arc<dyn BlockSource>, node: impl Into<Arc<Node>>) -> BoxStream<'static, Result<DirEntry>> {
    let node = node.into();
    match &*node {
        Node::Directory { entries, .. } => {
            let count = entries.len();
            stream::iter((0..count).filter_map(move |at| basic_entry(&node, at).cloned().map(Ok))).boxed()
        }
        Node::HamtShard(root) => {
            let root = Level { next: 0, hash_bits: root.fanout().trailing_zeros(), shard: Arc::clone(&node) };
            let walk = Walk { source, path: vec![root] };
            stream::try_unfold(walk, |mut walk| async move { Ok(walk.next().await?.map(|entry| (entry, walk))) })
                .boxed()
        }
        Node::File(_) | Node::Symlink { .. } => {
            stream::iter([Err(Error::invalid("only directories have entries, and this is none"))]).boxed()
        }
    }
}

fn basic_entry(node: &Node, at: usize) -> Option<&DirEntry> {
    match node {
        Node::Directory { entries, .. } => entries.get(at),
        _ => None,
    }
}

/// What is left of each shard on the way from the root to where the walk is.
struct Walk {
    source: Arc<dyn BlockSource>,
    path: Vec<Level>,
}

struct Level {
    /// A [`Node::HamtShard`].
    shard: Arc<Node>,
    /// Its first slot that has not been taken.
    next: usize,
    /// Bits of a name's hash that lead to one of the slots.
    hash_bits: u32,
}

impl Iterator for Level {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        let Node::HamtShard(shard) = &*self.shard else { return None };
        let slot = shard.slots().get(self.next).cloned();
        self.next += 1;
        slot
    }
}

/// Links of a shard that are one unit of a task's budget: decoding them takes some microseconds.
const LINKS_PER_TURN: usize = 16;

impl Walk {
    async fn next(&mut self) -> Result<Option<DirEntry>> {
        while let Some(level) = self.path.last_mut() {
            match level.next() {
                Some(Slot::Entry(entry)) => return Ok(Some(entry)),
                Some(Slot::Shard(cid)) => {
                    let above = level.hash_bits;
                    let level = self.descend(&cid, above).await?;
                    self.path.push(level);
                }
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(None)
    }

    /// The shard `cid`, which `above` bits of a name's hash lead to.
    async fn descend(&self, cid: &Cid, above: u32) -> Result<Level> {
        let shard = load_shard(self.source.as_ref(), cid).await?;
        let links = shard.slots().len();
        for _ in 0..=links / LINKS_PER_TURN {
            consume_budget().await;
        }
        if links == 0 {
            return Err(Error::invalid(format!("directory shard {cid} is empty, which only a root may be")));
        }
        let hash_bits = above + shard.fanout().trailing_zeros();
        if hash_bits > u64::BITS {
            return Err(Error::invalid(format!(
                "directory shard {cid} lies deeper than the 64 bits of a name's hash lead"
            )));
        }
        Ok(Level { shard: Arc::new(Node::HamtShard(shard)), next: 0, hash_bits })
    }
}

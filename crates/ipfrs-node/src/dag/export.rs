//! Whole DAGs: export as CAR, traversal and statistics.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_stream::{DagWalk, Part, Visited, car};
use ipfrs_unixfs::missing_target;

use crate::dag::{Leaves, Reachable};
use crate::metrics::Active;
use crate::{ContentPath, Expected, Node, RequestContext, with_context};

/// Time after which [`DagStats::advance`] returns so that the caller can report progress.
const STATS_INTERVAL: Duration = Duration::from_millis(200);

/// DAG that is exported as a stream.
pub struct DagExport {
    /// Root of the DAG.
    pub root: Cid,
    /// CARv1 with this root and all blocks below it. Payloads are slices of blocks.
    pub car: BoxStream<'static, Result<Bytes>>,
}

/// Target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagPath {
    /// Last block on the path.
    pub cid: Cid,
    /// Segments that lead to a value inside that block.
    pub remainder: Vec<String>,
}

/// Size of the DAG below one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DagSize {
    /// Root of the DAG.
    pub root: Cid,
    /// Number of distinct blocks, including the root.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Incremental count of the blocks below some roots.
pub struct DagStats {
    node: Node,
    /// Requested DAGs, in order. Those after `current` have not been started.
    dags: Vec<DagSize>,
    current: usize,
    reachable: Reachable,
    /// Blocks of all DAGs together; `None` if there is only one DAG.
    all: Option<Visited>,
    unique_blocks: u64,
    unique_bytes: u64,
}

impl Node {
    /// Exports the DAG that a path leads to as a CAR, depth first, each block once.
    ///
    /// # Errors
    /// As [`Self::resolve`]: a missing root is an error of this call. Missing blocks below the root are errors of the
    /// stream.
    pub async fn export_dag(&self, path: ContentPath) -> Result<DagExport> {
        let store = self.part_store(&path, Part::All);
        let root = self.resolve_for(path, Part::All).await?.whole()?.cid;
        let walk = DagWalk::new(store, vec![root], &self.inner.config.streaming);
        Ok(DagExport { root, car: self.write_car(root, walk) })
    }

    /// Exports the stored blocks of the DAG that a path leads to. Blocks that are missing or unreadable are left out,
    /// with all blocks that only they lead to. Nothing is retrieved.
    ///
    /// # Errors
    /// As [`Self::export_dag`].
    pub async fn export_available_dag(&self, path: ContentPath) -> Result<DagExport> {
        let context = RequestContext { offline: true, expected: Expected::Block, ..RequestContext::default() };
        let root = with_context(context, self.resolve_for(path, Part::Block)).await?.whole()?.cid;
        let walk = DagWalk::of_available(self.inner.served.clone(), vec![root], &self.inner.config.streaming);
        Ok(DagExport { root, car: self.write_car(root, walk) })
    }

    /// Returns the blocks of the DAG that a path leads to, depth first, each once, with the number of links that were
    /// followed from the root. With `max_depth`, returns only blocks at most that many links away and reads no
    /// others.
    ///
    /// # Errors
    /// As [`Self::export_dag`].
    pub async fn traverse_dag(
        &self,
        path: ContentPath,
        max_depth: Option<u32>,
    ) -> Result<BoxStream<'static, Result<(Block, u32)>>> {
        let part = max_depth.map_or(Part::All, Part::Levels);
        // Sources have no part for a number of levels.
        let wanted = if max_depth.is_some() { Part::Block } else { Part::All };
        let store = self.part_store(&path, wanted);
        let root = self.resolve_for(path, wanted).await?.whole()?.cid;
        let walk = DagWalk::along(store, Vec::new(), root, part, false, &self.inner.config.streaming);
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        let noted = walk.with_depths().inspect(move |block| {
            let _lives_as_long = &active;
            block.as_ref().err().into_iter().for_each(|error| metrics.refusals.note(error));
        });
        Ok(noted.boxed())
    }

    /// Encodes the blocks of a walk as a CAR with one root, and counts them as a download.
    pub(crate) fn write_car(&self, root: Cid, walk: DagWalk) -> BoxStream<'static, Result<Bytes>> {
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        let note = move |block: Result<usize, &Error>| {
            let _lives_as_long = &active;
            match block {
                Ok(length) => metrics.download_bytes.inc_by(length as u64),
                Err(error) => metrics.refusals.note(error),
            }
        };
        car::encode_walk(&[root], walk, note).boxed()
    }

    /// Follows a path as far as it leads from block to block.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn resolve_dag(&self, path: ContentPath) -> Result<DagPath> {
        // As in Kubo, the content ID of a path without names needs no block.
        if path.segments().is_empty() {
            return Ok(DagPath { cid: *path.root(), remainder: Vec::new() });
        }
        match self.resolve_for(path, Part::Block).await {
            Ok(object) => Ok(DagPath { cid: object.cid, remainder: object.resolved.remainder.clone() }),
            // As in Kubo, that block itself is not needed.
            Err(error) => missing_target(&error).map(|cid| DagPath { cid, remainder: Vec::new() }).ok_or(error),
        }
    }

    /// Prepares to count the blocks below the targets of `paths`.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn dag_stats(&self, paths: Vec<ContentPath>) -> Result<DagStats> {
        let mut dags = Vec::with_capacity(paths.len());
        for path in paths {
            let within = |e: Error| {
                let why = "cannot return size for anything other than a DAG with a root CID";
                Error::new(e.kind(), format!("{why}: {e}")).with_source(e)
            };
            let root = self.resolve_for(path, Part::All).await?.whole().map_err(within)?.cid;
            dags.push(DagSize { root, blocks: 0, bytes: 0 });
        }
        Ok(DagStats {
            node: self.clone(),
            reachable: self.below(dags.first().map(|dag| &dag.root)),
            current: 0,
            all: (dags.len() > 1).then(Visited::default),
            dags,
            unique_blocks: 0,
            unique_bytes: 0,
        })
    }

    /// Returns a walk over the blocks below a root. Leaves are looked up but not read.
    fn below(&self, root: Option<&Cid>) -> Reachable {
        let store = root.map_or_else(|| self.inner.served.clone(), |root| self.part_store(&(*root).into(), Part::All));
        let mut reachable = Reachable::new(store, Leaves::Checked);
        root.into_iter().for_each(|root| reachable.start(root));
        reachable
    }
}

impl DagStats {
    /// Counts for about 200 ms. Returns `false` when nothing is left to count.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a missing block;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names a block that its codec cannot decode.
    pub async fn advance(&mut self) -> Result<bool> {
        let begun = Instant::now();
        while let Some(dag) = self.dags.get_mut(self.current) {
            let Some(visits) = self.reachable.next().await? else {
                self.current += 1;
                self.reachable = self.node.below(self.dags.get(self.current).map(|dag| &dag.root));
                continue;
            };
            for visit in visits {
                let bytes = match visit.found {
                    Ok(bytes) => bytes,
                    // A blocked block counts as missing: `check_block` returns the reason.
                    Err(error) => return self.node.check_block(&visit.cid).and(Err(error)),
                };
                dag.blocks += 1;
                dag.bytes += bytes;
                if self.all.as_mut().map_or(Ok(true), |all| all.insert(&visit.cid))? {
                    self.unique_blocks += 1;
                    self.unique_bytes += bytes;
                }
            }
            if begun.elapsed() >= STATS_INTERVAL {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the counts so far of each DAG that was begun.
    #[must_use]
    pub fn begun(&self) -> &[DagSize] {
        &self.dags[..self.dags.len().min(self.current + 1)]
    }

    /// Returns the number of distinct blocks in all DAGs and their bytes.
    #[must_use]
    pub fn unique(&self) -> (u64, u64) {
        (self.unique_blocks, self.unique_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ipfrs_core::codec;
    use ipfrs_core::hash::HashFunction;
    use ipfrs_store::MemoryStore;

    use super::*;
    use crate::{BlockFormat, PutBlock};

    #[tokio::test]
    async fn dags_that_were_not_begun_have_no_counts() {
        let repo = tempfile::tempdir().unwrap();
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
        let format = BlockFormat { version: 1, codec: codec::RAW, hash: HashFunction::Sha2_256, digest_bytes: None };
        let mut paths = Vec::new();
        for text in ["a", "bc"] {
            let put = PutBlock { data: Bytes::from_static(text.as_bytes()), cid: None, format };
            paths.push(ContentPath::new(node.put_block(put).await.unwrap().0, Vec::new()).unwrap());
        }
        let mut stats = node.dag_stats(paths).await.unwrap();
        assert_eq!(stats.begun().len(), 1);
        while stats.advance().await.unwrap() {}
        assert_eq!(stats.begun().iter().map(|dag| dag.bytes).collect::<Vec<_>>(), [1, 2]);
        assert!(node.dag_stats(Vec::new()).await.unwrap().begun().is_empty());
    }
}

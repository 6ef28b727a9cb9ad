//! Whole DAGs: out as CAR, and what they hold.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use ipfrs_core::{Block, Cid, Result};
use ipfrs_stream::{DagWalk, Part, Visited, car};

use crate::metrics::Active;
use crate::reachable::{Leaves, Reachable};
use crate::{ContentPath, Node};

/// How long [`DagStats::advance`] goes on before it tells how far it is.
const STATS_INTERVAL: Duration = Duration::from_millis(200);

/// A DAG on its way out.
pub struct DagExport {
    /// The root.
    pub root: Cid,
    /// A CARv1 with this root and all blocks below it. Payloads are slices of blocks.
    pub car: BoxStream<'static, Result<Bytes>>,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagPath {
    /// The last block on the way.
    pub cid: Cid,
    /// The segments that lead to something within it.
    pub remainder: Vec<String>,
}

/// What is below one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DagSize {
    /// The root.
    pub root: Cid,
    /// Different blocks, the root included.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Counts what is below some roots, step by step.
pub struct DagStats {
    node: Node,
    /// What was asked for, in order; those behind `current` have not been begun.
    dags: Vec<DagSize>,
    current: usize,
    reachable: Reachable,
    /// What all of the DAGs hold; not needed for one.
    all: Option<Visited>,
    unique_blocks: u64,
    unique_bytes: u64,
}

impl Node {
    /// The DAG that a path leads to as a CAR, depth first, each block once.
    ///
    /// # Errors
    /// As [`Self::resolve`], so that a root that is not here is an error at once; blocks below it that are not are errors of
    /// the stream.
    pub async fn export_dag(&self, path: ContentPath) -> Result<DagExport> {
        let root = self.resolve(path).await?.whole()?.cid;
        let walk = DagWalk::new(self.inner.served.clone(), vec![root], &self.inner.config.streaming);
        Ok(DagExport { root, car: self.write_car(root, walk) })
    }

    /// The blocks of the DAG that a path leads to, depth first, each once, with the number of links from its root on the way
    /// that was followed. With `max_depth`, those that are at most so many links away, and none that is not is read.
    ///
    /// # Errors
    /// As [`Self::export_dag`].
    pub async fn traverse_dag(
        &self,
        path: ContentPath,
        max_depth: Option<u32>,
    ) -> Result<BoxStream<'static, Result<(Block, u32)>>> {
        let root = self.resolve(path).await?.whole()?.cid;
        let part = max_depth.map_or(Part::All, Part::Levels);
        let walk =
            DagWalk::along(self.inner.served.clone(), Vec::new(), root, part, false, &self.inner.config.streaming);
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        let noted = walk.with_depths().inspect(move |block| {
            let _lives_as_long = &active;
            block.as_ref().err().into_iter().for_each(|error| metrics.refusals.note(error));
        });
        Ok(noted.boxed())
    }

    /// What a walk gives as a CAR with one root; it counts as a download.
    pub(crate) fn write_car(&self, root: Cid, walk: DagWalk) -> BoxStream<'static, Result<Bytes>> {
        let metrics = self.inner.metrics.clone();
        let active = Active::begin(&metrics.downloads_active);
        let blocks = walk.inspect(move |block| {
            let _lives_as_long = &active;
            match block {
                Ok(block) => metrics.download_bytes.inc_by(block.data().len() as u64),
                Err(error) => metrics.refusals.note(error),
            }
        });
        car::encode(&[root], blocks).boxed()
    }

    /// Follows a path as far as blocks go.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn resolve_dag(&self, path: ContentPath) -> Result<DagPath> {
        let object = self.resolve(path).await?;
        Ok(DagPath { cid: object.cid, remainder: object.facts.remainder.clone() })
    }

    /// Prepares to count what is below the blocks that `paths` lead to.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn dag_stats(&self, paths: Vec<ContentPath>) -> Result<DagStats> {
        let mut dags = Vec::with_capacity(paths.len());
        for path in paths {
            dags.push(DagSize { root: self.resolve(path).await?.whole()?.cid, blocks: 0, bytes: 0 });
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

    /// What is below a root, leaves looked for and not read.
    fn below(&self, root: Option<&Cid>) -> Reachable {
        let mut reachable = Reachable::new(self.inner.served.clone(), Leaves::Checked);
        root.into_iter().for_each(|root| reachable.start(root));
        reachable
    }
}

impl DagStats {
    /// Goes on counting for a moment; `false` when there is nothing left to count.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a block that is missing;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) one that is not what its codec says.
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
                    // What is blocked counts as not there: this says why.
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

    /// What has been counted of each DAG.
    #[must_use]
    pub fn dags(&self) -> &[DagSize] {
        &self.dags
    }

    /// Different blocks in all of the DAGs, and their bytes.
    #[must_use]
    pub fn unique(&self) -> (u64, u64) {
        (self.unique_blocks, self.unique_bytes)
    }
}

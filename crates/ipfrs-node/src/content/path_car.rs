//! CARs that prove the target of a path (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, Result, codec, new_cid};
use ipfrs_stream::{BlockStoreSource, DagWalk, Part, Span};
use ipfrs_unixfs::{BlockSource, leads_nowhere};
use parking_lot::Mutex;

use crate::{ContentPath, Node, ObjectKind};

/// Part of the target's DAG that a CAR contains, in addition to the blocks on the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarScope {
    /// The block of the target.
    Block,
    /// The blocks needed to read a whole file or to list a directory. For a target that is not UnixFS, its block.
    Entity,
    /// The blocks needed to read a byte range of a file. For a target that is not a file, the same as
    /// [`Self::Entity`].
    EntityBytes(EntityBytes),
    /// The whole DAG.
    All,
}

impl fmt::Display for CarScope {
    /// Formats the query parameter of a gateway URL that requests this scope.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("dag-scope=block"),
            Self::Entity => f.write_str("dag-scope=entity"),
            Self::EntityBytes(EntityBytes { from, to: Some(to) }) => write!(f, "entity-bytes={from}:{to}"),
            Self::EntityBytes(EntityBytes { from, to: None }) => write!(f, "entity-bytes={from}:*"),
            Self::All => f.write_str("dag-scope=all"),
        }
    }
}

/// Byte range of a file of any size, both ends included. Negative offsets count from the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityBytes {
    from: i64,
    /// Last byte of the range; `None` for the end of the file.
    to: Option<i64>,
}

impl EntityBytes {
    /// Creates the range from `from` to `to`, both included. `None` stands for the last byte of the file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `to` precedes `from` in files of every size.
    pub fn new(from: i64, to: Option<i64>) -> Result<Self> {
        match to {
            Some(to) if to < from && (to < 0) == (from < 0) => {
                Err(Error::invalid(format!("the range {from}:{to} ends before it begins")))
            }
            _ => Ok(Self { from, to }),
        }
    }

    /// Returns the part of a file of unknown size. Offsets from the end need the whole file.
    fn part(self) -> Part {
        match (u64::try_from(self.from), self.to.map(u64::try_from)) {
            (Ok(from), Some(Ok(to))) => Part::Bytes(Span { start: from, len: (to + 1).saturating_sub(from) }),
            _ => Part::Entity,
        }
    }

    /// Returns the range within a file of `size` bytes. It is empty if it ends before it begins.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the range contains no byte of a file that is not empty.
    fn within(self, size: u64) -> Result<Span> {
        let size = i128::from(size);
        let offset = |offset: i64| i128::from(offset) + if offset < 0 { size } else { 0 };
        let (from, to) = (offset(self.from), self.to.map_or(size - 1, offset));
        if size > 0 && (from >= size || to < 0) {
            return Err(Error::invalid(format!("the range is outside of the file, which has {size} bytes")));
        }
        let (from, to) = (from.max(0), to.min(size - 1));
        if to < from {
            return Ok(Span::default());
        }
        // Both ends are below `size`, which has 64 bits.
        Ok(Span { start: from as u64, len: (to + 1 - from) as u64 })
    }
}

/// CAR that is exported as a stream.
pub struct PathCar {
    /// Content ID of the target; the root if a segment of the path does not exist.
    pub cid: Cid,
    /// Content IDs of the root and of each step of the path, separated by commas. Only the root if a segment of the
    /// path does not exist.
    pub roots: String,
    /// CARv1 with the blocks on the path, root first, followed by the blocks of the scope, depth first. Its root is
    /// the target, or the empty identity CID if a segment of the path does not exist. Nothing is read before the
    /// stream is polled. Payloads are slices of blocks.
    pub car: BoxStream<'static, Result<Bytes>>,
}

impl Node {
    /// Returns a CAR with the blocks on a path, including shards, and with its target. If a segment does not exist,
    /// the CAR contains the blocks that prove it: from the root to the block in which the segment is missing. With
    /// `repeats`, a block is sent each time it occurs, otherwise once. Identity blocks are never sent.
    ///
    /// # Errors
    /// As [`Self::resolve`] if a block on the path is missing or blocked;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a range outside the file. Missing blocks below the
    /// target are errors of the stream.
    pub async fn export_path(
        &self,
        path: impl Into<Arc<ContentPath>>,
        scope: CarScope,
        repeats: bool,
    ) -> Result<PathCar> {
        let path = path.into();
        let part = match scope {
            CarScope::All => Part::All,
            CarScope::Block => Part::Block,
            CarScope::Entity => Part::Entity,
            CarScope::EntityBytes(bytes) => bytes.part(),
        };
        let store = self.path_store(&path, part);
        let source = Recording { source: BlockStoreSource(store.clone()), read: Mutex::default() };
        let object = match self.resolve_in(&source, path.clone()).await {
            Ok(object) => object,
            Err(error) if leads_nowhere(&error) => return self.export_absence(*path.root(), source, repeats),
            Err(error) => return Err(error),
        };
        let part = match (scope, &object.kind) {
            (CarScope::All, _) => Part::All,
            (CarScope::Block, _) => Part::Block,
            (CarScope::EntityBytes(bytes), ObjectKind::File(file)) => Part::Bytes(bytes.within(file.size())?),
            (CarScope::Entity | CarScope::EntityBytes(_), _) => Part::Entity,
        };
        let mut path = source.read.into_inner();
        // The target is read last, unless it is an identity CID.
        path.pop_if(|last| *last == object.cid);
        let walk = DagWalk::along(store, path, object.cid, part, repeats, &self.inner.config.streaming);
        Ok(PathCar { car: self.write_car(object.cid, walk), cid: object.cid, roots: object.resolved.roots.clone() })
    }

    /// Returns the blocks that were read for a path of which a segment does not exist.
    fn export_absence(&self, root: Cid, source: Recording, repeats: bool) -> Result<PathCar> {
        let mut path = source.read.into_inner();
        // If nothing was read, all blocks on the path are inlined in their content IDs.
        let last = path.pop().unwrap_or(root);
        let streaming = &self.inner.config.streaming;
        let walk = DagWalk::along(self.inner.served.clone(), path, last, Part::Block, repeats, streaming);
        // The path has no target, but a CAR should have a root. Boxo uses the same CID.
        let nothing = new_cid(1, codec::RAW, HashFunction::Identity.digest(b"")?)?;
        Ok(PathCar { car: self.write_car(nothing, walk), cid: root, roots: root.to_string() })
    }
}

/// Source that records the blocks that were read.
struct Recording {
    source: BlockStoreSource,
    /// Content IDs in the order of the reads.
    read: Mutex<Vec<Cid>>,
}

#[async_trait]
impl BlockSource for Recording {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        let block = self.source.block(cid).await?;
        self.read.lock().push(*cid);
        Ok(block)
    }

    async fn peek(&self, cid: &Cid) -> Result<Bytes> {
        self.source.block(cid).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_bytes_are_clamped_to_the_file() {
        let span = |start, len| Some(Span { start, len });
        for (from, to, size, expected) in [
            (0, None, 10, span(0, 10)),
            (0, Some(0), 10, span(0, 1)),
            (3, Some(5), 10, span(3, 3)),
            (3, Some(99), 10, span(3, 7)),
            (-4, None, 10, span(6, 4)),
            (-99, None, 10, span(0, 10)),
            (-99, Some(-3), 10, span(0, 8)),
            (2, Some(-3), 10, span(2, 6)),
            (8, Some(-5), 10, span(0, 0)),
            (0, None, 0, span(0, 0)),
            (5, None, 0, span(0, 0)),
            (10, None, 10, None),
            (-99, Some(-11), 10, None),
            (i64::MIN, Some(i64::MAX), u64::MAX, span((1 << 63) - 1, 1)),
        ] {
            let found = EntityBytes::new(from, to).unwrap().within(size);
            assert_eq!(found.ok(), expected, "{from}:{to:?} of {size}");
        }
        for (from, to) in [(5, 4), (-4, -5), (i64::MAX, 0)] {
            assert!(EntityBytes::new(from, Some(to)).is_err());
        }
    }
}

//! What a path leads to as a CAR that proves it (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>).

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

/// What a CAR holds of the DAG that a path leads to, besides the blocks that the path goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarScope {
    /// The block that the path leads to.
    Block,
    /// What it takes to read a file as a whole or to list a directory; of what is not UnixFS the block.
    Entity,
    /// What it takes to read some bytes of a file; of what is no file as [`Self::Entity`].
    EntityBytes(EntityBytes),
    /// Everything.
    All,
}

impl fmt::Display for CarScope {
    /// The parameter of a gateway's URL that asks for it.
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

/// A range of a file of any size, the ends included. Negative offsets count from the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntityBytes {
    from: i64,
    /// `None` for the last byte.
    to: Option<i64>,
}

impl EntityBytes {
    /// The bytes `from` to `to`; `None` for the last byte of the file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) where `to` lies before `from` in files of every size.
    pub fn new(from: i64, to: Option<i64>) -> Result<Self> {
        match to {
            Some(to) if to < from && (to < 0) == (from < 0) => {
                Err(Error::invalid(format!("the range {from}:{to} ends before it begins")))
            }
            _ => Ok(Self { from, to }),
        }
    }

    /// Where that is in a file of `size` bytes; empty where it ends before it begins.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) where no byte of a file that has bytes is in it.
    fn within(self, size: u64) -> Result<Span> {
        let size = i128::from(size);
        let offset = |offset: i64| i128::from(offset) + if offset < 0 { size } else { 0 };
        let (from, to) = (offset(self.from), self.to.map_or(size - 1, offset));
        if size > 0 && (from >= size || to < 0) {
            return Err(Error::invalid(format!("the range lies outside of the file, which has {size} bytes")));
        }
        let (from, to) = (from.max(0), to.min(size - 1));
        if to < from {
            return Ok(Span::default());
        }
        // All of it lies within a size of 64 bits.
        Ok(Span { start: from as u64, len: (to + 1 - from) as u64 })
    }
}

/// A CAR on its way out.
pub struct PathCar {
    /// The block that the path leads to; the root of a path that leads nowhere.
    pub cid: Cid,
    /// The content IDs of the root and of each block that the path leads to, separated by commas. Of a path that leads
    /// nowhere, the root alone.
    pub roots: String,
    /// A CARv1: the blocks of the path, root first, then what its scope says, depth first. Its root is the block that
    /// the path leads to; the empty identity CID for a path that leads nowhere. Nothing is read before it is polled.
    /// Payloads are slices of blocks.
    pub car: BoxStream<'static, Result<Bytes>>,
}

impl Node {
    /// Returns a CAR with the blocks that a path goes through, shards included, and with what it leads to. A path that
    /// leads nowhere gives the blocks that prove it: from the root to the block in which the next segment is missing.
    /// With `repeats`, a block is given each time that it is met, else once. Identity blocks are not given.
    ///
    /// # Errors
    /// As [`Self::resolve`] where a block of the path is missing or blocked;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for bytes outside of the file. Blocks that are missing below
    /// are errors of the stream.
    pub async fn export_path(
        &self,
        path: impl Into<Arc<ContentPath>>,
        scope: CarScope,
        repeats: bool,
    ) -> Result<PathCar> {
        let path = path.into();
        let store = self.inner.served.clone();
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
        // The target is read last, unless its content ID holds it.
        path.pop_if(|last| *last == object.cid);
        let walk = DagWalk::along(store, path, object.cid, part, repeats, &self.inner.config.streaming);
        Ok(PathCar { car: self.write_car(object.cid, walk), cid: object.cid, roots: object.facts.roots.clone() })
    }

    /// Returns the blocks that were read for a path that leads nowhere.
    fn export_absence(&self, root: Cid, source: Recording, repeats: bool) -> Result<PathCar> {
        let mut path = source.read.into_inner();
        // All of it was in content IDs where nothing was read.
        let last = path.pop().unwrap_or(root);
        let streaming = &self.inner.config.streaming;
        let walk = DagWalk::along(self.inner.served.clone(), path, last, Part::Block, repeats, streaming);
        // As boxo: there is nothing that the path leads to, and a CAR should have a root.
        let nothing = new_cid(1, codec::RAW, HashFunction::Identity.digest(b"")?)?;
        Ok(PathCar { car: self.write_car(nothing, walk), cid: root, roots: root.to_string() })
    }
}

/// A source that knows what was read of it.
struct Recording {
    source: BlockStoreSource,
    /// In the order of reading.
    read: Mutex<Vec<Cid>>,
}

#[async_trait]
impl BlockSource for Recording {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        let block = self.source.block(cid).await?;
        self.read.lock().push(*cid);
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_to_the_file_and_outside_of_it_is_an_error() {
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

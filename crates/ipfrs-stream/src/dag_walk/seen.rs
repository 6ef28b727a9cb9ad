//! The blocks that a walk has visited.

use std::collections::{HashMap, HashSet};

use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, Error, Result};

use super::Part;
use crate::Visited;
use crate::visited::fingerprint;

/// The blocks that a walk has yielded.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The visited blocks, or `None` if the walk yields a block each time that it meets it.
    visited: Option<Visited>,
    /// Fingerprints of visited nodes of which only the bytes after some offset were walked, and which the walk may
    /// therefore enter again. These are the nodes in which a span begins, one for each level.
    partial: HashSet<u128>,
    /// Number of levels that were walked below a block, by its fingerprint. If the walk meets the block again nearer
    /// to the root, it has to walk further levels.
    levels: HashMap<u128, u32>,
    /// Number of blocks that were yielded, if they are not recorded in `visited`.
    returned: usize,
}

impl Seen {
    /// Creates an empty set. If `repeats` is true, the walk yields a block each time that it meets it.
    pub(super) fn new(repeats: bool) -> Self {
        Self { visited: (!repeats).then(Visited::default), ..Self::default() }
    }

    /// Returns whether the walk yields a block each time that it meets it.
    pub(super) fn repeats(&self) -> bool {
        self.visited.is_none()
    }

    /// Returns whether the walk has already covered a block and `part` of its descendants.
    pub(super) fn is_done(&self, cid: &Cid, part: Part) -> bool {
        let is_visited = self.visited.as_ref().is_some_and(|visited| visited.contains(cid));
        is_visited
            && match part {
                Part::Levels(levels) => self.levels.get(&fingerprint(cid)).is_some_and(|walked| *walked >= levels),
                _ => self.partial.is_empty() || !self.partial.contains(&fingerprint(cid)),
            }
    }

    /// Records that the walk enters a block and `part` of its descendants. Returns `true` if the walk must yield the
    /// block.
    ///
    /// # Errors
    /// Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_DAG_BLOCKS`] blocks.
    pub(super) fn insert(&mut self, cid: &Cid, part: Part) -> Result<bool> {
        let Some(visited) = &mut self.visited else {
            self.returned += 1;
            if self.returned > MAX_DAG_BLOCKS {
                return Err(Error::too_large(format!(
                    "the DAG has more than the limit of {MAX_DAG_BLOCKS} blocks, including repetitions: request parts of it, or each block once (dups=n)"
                )));
            }
            return Ok(true);
        };
        match part {
            Part::Bytes(span) if span.start > 0 => drop(self.partial.insert(fingerprint(cid))),
            Part::Levels(levels) => drop(self.levels.insert(fingerprint(cid), levels)),
            _ if self.partial.is_empty() => {}
            _ => drop(self.partial.remove(&fingerprint(cid))),
        }
        visited.insert(cid)
    }
}

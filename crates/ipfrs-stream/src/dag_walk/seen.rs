//! What a walk has been through.

use std::collections::{HashMap, HashSet};

use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, Error, Result};

use super::Part;
use crate::Visited;
use crate::visited::fingerprint;

/// The blocks that a walk has given.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// `None` where blocks are given each time that they are met.
    visited: Option<Visited>,
    /// Those of which only what lies behind some byte was walked, and which may be met again: the nodes that a span begins
    /// in, one for each level, by their fingerprints.
    begun: HashSet<u128>,
    /// How many levels below a block were walked, by its fingerprint: where it is met again nearer to the root, there is more.
    levels: HashMap<u128, u32>,
    /// How many were given, where they are not remembered.
    given: usize,
}

impl Seen {
    /// `repeats` says that blocks are given each time that they are met.
    pub(super) fn new(repeats: bool) -> Self {
        Self { visited: (!repeats).then(Visited::default), ..Self::default() }
    }

    /// Whether blocks are given each time that they are met.
    pub(super) fn repeats(&self) -> bool {
        self.visited.is_none()
    }

    /// Whether there is nothing left to do with a block and `part` of what is below it.
    pub(super) fn is_done(&self, cid: &Cid, part: Part) -> bool {
        let is_visited = self.visited.as_ref().is_some_and(|visited| visited.contains(cid));
        is_visited
            && match part {
                Part::Levels(levels) => self.levels.get(&fingerprint(cid)).is_some_and(|walked| *walked >= levels),
                _ => self.begun.is_empty() || !self.begun.contains(&fingerprint(cid)),
            }
    }

    /// Takes note of a block of which `part` is walked; `true` where it is to be given.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_DAG_BLOCKS`] blocks.
    pub(super) fn insert(&mut self, cid: &Cid, part: Part) -> Result<bool> {
        let Some(visited) = &mut self.visited else {
            self.given += 1;
            if self.given > MAX_DAG_BLOCKS {
                return Err(Error::too_large(format!(
                    "the DAG has more than the limit of {MAX_DAG_BLOCKS} blocks, with those that it repeats: ask for parts of it, or for each block once (dups=n)"
                )));
            }
            return Ok(true);
        };
        match part {
            Part::Bytes(span) if span.start > 0 => drop(self.begun.insert(fingerprint(cid))),
            Part::Levels(levels) => drop(self.levels.insert(fingerprint(cid), levels)),
            _ if self.begun.is_empty() => {}
            _ => drop(self.begun.remove(&fingerprint(cid))),
        }
        visited.insert(cid)
    }
}

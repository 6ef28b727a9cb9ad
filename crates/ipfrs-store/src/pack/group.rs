//! What one commit writes: the sections of several calls, one after the other.

use std::collections::BTreeSet;
use std::io::IoSlice;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Multihash, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::changes::{Change, Changes};
use super::compaction::Needed;
use super::record::{Key, Location, key_of, pack_codec, tombstones, write_prefix};
use crate::{Spared, Stored};

/// A group that has this many payload bytes takes no further call.
pub(super) const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// A group that has this many sections takes no further call.
pub(super) const GROUP_BLOCKS: usize = 4_096;

/// Sections to be written, and what they change in the index. Locations count from the first section, until
/// [`Self::place`].
#[derive(Debug, Default)]
pub(super) struct Batch {
    prefixes: Vec<u8>,
    sections: Vec<(usize, Bytes)>,
    changes: Changes,
    bytes: u64,
}

impl Batch {
    /// The sections of `blocks` that are not there yet, and how each block stands. `indexed` says where the index has
    /// them, in some places of which `is_lost`; `before` is what the group does first.
    pub(super) fn put(
        blocks: &[Block],
        keys: &[Key],
        indexed: &[Option<Location>],
        is_lost: impl Fn(&Location) -> bool,
        before: &Self,
    ) -> (Self, Vec<Stored>) {
        let mut batch = Self::default();
        let mut stored = Vec::with_capacity(blocks.len());
        let new = indexed.iter().filter(|indexed| indexed.is_none()).count();
        batch.sections.reserve(new);
        batch.changes.blocks.reserve(new);
        for ((block, key), indexed) in blocks.iter().zip(keys).zip(indexed) {
            if batch.is_present(key, indexed.filter(|at| !is_lost(at)), before) {
                stored.push(Stored::Present);
                continue;
            }
            let to = Some(batch.push(block.cid(), block.data().clone()));
            batch.changes.blocks.insert(key.clone(), Change { from: *indexed, to });
            stored.push(Stored::New);
        }
        (batch, stored)
    }

    /// The tombstones of what `call` is to delete and is there, and which of its blocks those are.
    pub(super) fn delete(call: &Delete, indexed: &[Option<Location>], before: &Self) -> Result<(Self, Vec<bool>)> {
        let mut batch = Self::default();
        let mut deleted = Vec::with_capacity(call.keys.len());
        let mut gone = Vec::new();
        for ((hash, key), indexed) in call.hashes.iter().zip(&call.keys).zip(indexed) {
            let goes = batch.is_present(key, *indexed, before) && !(call.spared)(hash);
            if goes {
                batch.changes.blocks.insert(key.clone(), Change { from: *indexed, to: None });
                gone.push(key.clone());
            }
            deleted.push(goes);
        }
        batch.push_tombstones(&gone)?;
        Ok((batch, deleted))
    }

    /// What is `needed` of a pack, with those of its `tombstones` if they matter, as far as it still is: where the index has
    /// the blocks, and then those that were deleted.
    pub(super) fn keep(needed: &Needed, indexed: &[Option<Location>], tombstones: bool, before: &Self) -> Result<Self> {
        let mut batch = Self::default();
        let (blocks, deleted) = indexed.split_at(needed.blocks.len());
        for (block, indexed) in needed.blocks.iter().zip(blocks) {
            // What the group changes first is not where it was any more; and it may be twice in the pack.
            let is_there = *indexed == Some(block.from) && !before.changes.blocks.contains_key(&block.key);
            if is_there && !batch.changes.blocks.contains_key(&block.key) {
                let to = Some(batch.push(&block.cid, block.data.clone()));
                batch.changes.blocks.insert(block.key.clone(), Change { from: *indexed, to });
            }
        }
        if tombstones {
            let absent = needed.deleted.iter().zip(deleted).filter(|(key, at)| !batch.is_present(key, **at, before));
            // Who was deleted again and again is deleted once.
            let absent: BTreeSet<Key> = absent.map(|(key, _)| key.clone()).collect();
            batch.push_tombstones(&Vec::from_iter(absent))?;
        }
        Ok(batch)
    }

    fn is_present(&self, key: &[u8], indexed: Option<Location>, before: &Self) -> bool {
        match self.changes.blocks.get(key).or_else(|| before.changes.blocks.get(key)) {
            Some(change) => change.to.is_some(),
            None => indexed.is_some(),
        }
    }

    fn push(&mut self, cid: &Cid, data: Bytes) -> Location {
        let prefix = write_prefix(cid, data.len(), &mut self.prefixes);
        let offset = self.bytes + prefix as u64;
        let len = data.len();
        self.bytes = offset + len as u64;
        self.sections.push((prefix, data));
        // A call has fewer than 4 GiB: the queue refuses larger ones.
        Location { pack: 0, offset: offset as u32, len: len as u32, prefix: prefix as u16, codec: pack_codec(cid) }
    }

    fn push_tombstones(&mut self, keys: &[Key]) -> Result<()> {
        let start = self.bytes;
        for (cid, payload) in tombstones(keys)? {
            self.push(&cid, payload);
        }
        self.changes.tombstone_bytes += self.bytes - start;
        Ok(())
    }

    /// Puts `next` after what is here.
    pub(super) fn append(&mut self, mut next: Self) {
        if self.is_empty() {
            *self = next;
            return;
        }
        let base = self.bytes as u32;
        for to in next.changes.blocks.values_mut().filter_map(|change| change.to.as_mut()) {
            to.offset += base;
        }
        self.changes.append(next.changes);
        self.prefixes.extend_from_slice(&next.prefixes);
        self.sections.extend(next.sections);
        self.bytes += next.bytes;
    }

    /// Fixes where the first section is.
    pub(super) fn place(&mut self, pack: u32, offset: u32) {
        for to in self.changes.blocks.values_mut().filter_map(|change| change.to.as_mut()) {
            to.pack = pack;
            to.offset += offset;
        }
    }

    /// Length of the sections, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// The sections' bytes.
    pub(super) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.sections.len());
        let mut prefixes = self.prefixes.as_slice();
        for (prefix, data) in &self.sections {
            let (this, rest) = prefixes.split_at(*prefix);
            prefixes = rest;
            slices.push(IoSlice::new(this));
            slices.push(IoSlice::new(data));
        }
        slices
    }

    /// What the index is to be told.
    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The same, for keeps.
    pub(super) fn into_changes(self) -> Changes {
        self.changes
    }
}

/// Blocks to store: all of them or none.
#[derive(Debug)]
pub(super) struct Put {
    /// The blocks, each of which may be stored.
    pub(super) blocks: Vec<Block>,
    /// Their keys.
    pub(super) keys: Vec<Key>,
    /// Who waits for it.
    pub(super) reply: Reply<Vec<Stored>>,
}

impl Put {
    /// A call that stores `blocks`.
    pub(super) fn new(blocks: Vec<Block>, reply: Reply<Vec<Stored>>) -> Self {
        let keys = blocks.iter().map(|block| key_of(block.cid().hash())).collect();
        Self { blocks, keys, reply }
    }
}

/// Blocks to delete.
pub(super) struct Delete {
    hashes: Vec<Multihash>,
    /// Their keys.
    pub(super) keys: Vec<Key>,
    spared: Spared,
    /// Who waits for it.
    pub(super) reply: Reply<Vec<bool>>,
}

impl Delete {
    /// A call that deletes the blocks of `cids` but those that `spared` keeps.
    pub(super) fn new(cids: &[Cid], spared: Spared, reply: Reply<Vec<bool>>) -> Self {
        let hashes: Vec<_> = cids.iter().map(|cid| *cid.hash()).collect();
        let keys = hashes.iter().map(key_of).collect();
        Self { hashes, keys, spared, reply }
    }
}

/// A block of a pack, verified and in memory.
#[derive(Debug)]
pub(super) struct Copied {
    /// As it was first put.
    pub(super) cid: Cid,
    /// Its key.
    pub(super) key: Key,
    /// Its data.
    pub(super) data: Bytes,
    /// Where it is.
    pub(super) from: Location,
}

/// What is needed of a part of a pack that is about to be removed.
pub(super) struct Keep {
    /// Number of the pack.
    pub(super) pack: u32,
    /// What is to be written again.
    pub(super) needed: Needed,
    /// Who waits for it: with how many bytes were written.
    pub(super) reply: Reply<u64>,
}

/// A call that writes.
pub(super) enum Write {
    /// Store blocks.
    Put(Put),
    /// Delete blocks.
    Delete(Delete),
    /// Write again what is needed of a pack.
    Keep(Keep),
}

impl Write {
    /// Answers that it cannot be done.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Put(put) => put.reply.send(Err(error)),
            Self::Delete(delete) => delete.reply.send(Err(error)),
            Self::Keep(keep) => keep.reply.send(Err(error)),
        }
    }
}

/// Who waits for a call, and its share of the queue.
#[derive(Debug)]
pub(super) struct Reply<T> {
    /// Where the outcome goes. Nobody may be there any more: then it is dropped.
    pub(super) sender: oneshot::Sender<Result<T>>,
    /// Given back when the call is answered.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    /// Answers.
    pub(super) fn send(self, outcome: Result<T>) {
        let _ = self.sender.send(outcome);
    }
}

/// An answer that waits for the commit.
#[derive(Debug)]
pub(super) enum Answer {
    /// To a put.
    Put(Reply<Vec<Stored>>, Vec<Stored>),
    /// To a delete.
    Delete(Reply<Vec<bool>>, Vec<bool>),
    /// To compaction.
    Keep(Reply<u64>, u64),
}

impl Answer {
    /// Sends it, or the error that came in between.
    pub(super) fn send(self, committed: Result<(), &Error>) {
        let committed = committed.map_err(again);
        match self {
            Self::Put(reply, stored) => reply.send(committed.map(|()| stored)),
            Self::Delete(reply, deleted) => reply.send(committed.map(|()| deleted)),
            Self::Keep(reply, bytes) => reply.send(committed.map(|()| bytes)),
        }
    }
}

/// An error once more, for everybody whom it concerns.
pub(super) fn again(error: &Error) -> Error {
    match error.is_read_only() {
        true => Error::read_only(error.message()),
        false => Error::new(error.kind(), error.message()),
    }
}

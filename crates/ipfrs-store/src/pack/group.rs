//! A group commit: the sections of several calls, written one after another.

use std::collections::BTreeSet;
use std::io::IoSlice;

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Multihash, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::changes::{Change, Changes};
use super::errors::again;
use super::needed::Needed;
use super::padding::{MAX_PADDING_BYTES, MIN_ALIGNED_BYTES, Padding};
use super::record::{Key, Location, key_of, pack_codec, tombstones, write_prefix};
use crate::{Spared, Stored};

/// Payload bytes from which a group accepts no more calls.
pub(super) const GROUP_BYTES: usize = 16 * 1024 * 1024;

/// Sections from which a group accepts no more calls.
pub(super) const GROUP_BLOCKS: usize = 4_096;

/// Sections to write, and their changes to the index. Offsets are relative to the first section, without padding, until
/// [`Self::place`].
#[derive(Debug, Default)]
pub(super) struct Batch {
    prefixes: Vec<u8>,
    sections: Vec<(usize, Bytes)>,
    changes: Changes,
    bytes: u64,
    /// Number of sections that may need padding.
    large: u64,
    /// Whether there are sections that are blocks.
    has_blocks: bool,
}

impl Batch {
    /// Returns the sections of those `blocks` that are not stored yet, and the outcome for each block. `indexed`
    /// holds their locations in the index, and `is_lost` says whether the block at a location can no longer be read.
    /// `before` holds the earlier changes of the group.
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
            let to = Some(batch.push_block(block.cid(), block.data().clone()));
            batch.changes.blocks.insert(key.clone(), Change { from: *indexed, to });
            stored.push(Stored::New);
        }
        (batch, stored)
    }

    /// Returns the tombstones for the present blocks that `call` is to delete, and for each block whether it was
    /// deleted.
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

    /// Returns the content of `needed` that is still needed, and its `tombstones` if they matter. `indexed` holds the
    /// locations in the index, first of the blocks and then of the deleted keys.
    pub(super) fn keep(needed: &Needed, indexed: &[Option<Location>], tombstones: bool, before: &Self) -> Result<Self> {
        let mut batch = Self::default();
        let (blocks, deleted) = indexed.split_at(needed.blocks.len());
        for (block, indexed) in needed.blocks.iter().zip(blocks) {
            // A block changed earlier in the group is no longer at its old location. The pack may also contain a
            // block twice.
            let is_there = *indexed == Some(block.from) && !before.changes.blocks.contains_key(&block.key);
            if is_there && !batch.changes.blocks.contains_key(&block.key) {
                let to = Some(batch.push_block(&block.cid, block.data.clone()));
                batch.changes.blocks.insert(block.key.clone(), Change { from: *indexed, to });
            }
        }
        if tombstones {
            let absent = needed.deleted.iter().zip(deleted).filter(|(key, at)| !batch.is_present(key, **at, before));
            // A block that was deleted repeatedly needs only one tombstone.
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

    fn push_block(&mut self, cid: &Cid, data: Bytes) -> Location {
        self.has_blocks = true;
        self.push(cid, data)
    }

    fn push(&mut self, cid: &Cid, data: Bytes) -> Location {
        let prefix = write_prefix(cid, data.len(), &mut self.prefixes);
        let offset = self.bytes + prefix as u64;
        let len = data.len();
        self.bytes = offset + len as u64;
        self.large += u64::from(len >= MIN_ALIGNED_BYTES);
        self.sections.push((prefix, data));
        // A call has fewer than 4 GiB: the queue rejects larger ones.
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

    /// Appends `next` to this batch.
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
        self.large += next.large;
        self.has_blocks |= next.has_blocks;
    }

    /// Sets the location of the first section, and inserts padding before large blocks.
    pub(super) fn place(&mut self, pack: u32, offset: u32) -> Result<()> {
        let shifts = if self.large > 0 { self.pad(offset)? } else { Vec::new() };
        for to in self.changes.blocks.values_mut().filter_map(|change| change.to.as_mut()) {
            // An empty block ends where the padding after it begins.
            let padded = shifts.partition_point(|(at, _)| *at < to.offset);
            to.pack = pack;
            to.offset += offset + shifts[..padded].last().map_or(0, |(_, shift)| *shift);
        }
        Ok(())
    }

    /// Inserts padding. Returns the offsets before which it was inserted, and its total length so far for each.
    fn pad(&mut self, offset: u32) -> Result<Vec<(u32, u32)>> {
        let (prefixes, sections) = (std::mem::take(&mut self.prefixes), std::mem::take(&mut self.sections));
        let (mut at, mut shift, mut shifts) = (0, 0, Vec::new());
        let (mut prefixes, mut padding) = (prefixes.as_slice(), Padding::default());
        for (prefix, data) in sections {
            let inserted = padding.before(u64::from(offset) + at + shift, prefix, &data, &mut self.prefixes)?;
            if let Some((prefix, zeros)) = inserted {
                shift += (prefix + zeros.len()) as u64;
                shifts.push((at as u32, shift as u32));
                self.sections.push((prefix, zeros));
            }
            let (this, rest) = prefixes.split_at(prefix);
            prefixes = rest;
            self.prefixes.extend_from_slice(this);
            at += (prefix + data.len()) as u64;
            self.sections.push((prefix, data));
        }
        self.bytes += shift;
        self.changes.padding_bytes += shift;
        Ok(shifts)
    }

    /// Returns the length of the sections, in bytes, with the padding that [`Self::place`] has inserted.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the maximum length of the sections after [`Self::place`], in bytes.
    pub(super) fn bytes_at_most(&self) -> u64 {
        self.bytes + self.large * MAX_PADDING_BYTES
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Whether it only deletes blocks. A group that stores a block and deletes it again does more than that.
    pub(super) fn is_deletion(&self) -> bool {
        !self.has_blocks
    }

    /// Returns the bytes of the sections.
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

    /// Returns the changes to apply to the index.
    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// A call that stores all of its blocks or none.
#[derive(Debug)]
pub(super) struct Put {
    /// The blocks. The store accepts each of them.
    pub(super) blocks: Vec<Block>,
    /// Keys of the blocks.
    pub(super) keys: Vec<Key>,
    /// Whether the blocks may use the space that is reserved for compactions.
    pub(super) takes_reserve: bool,
    /// Channel to the caller.
    pub(super) reply: Reply<Vec<Stored>>,
}

impl Put {
    /// Creates a call that stores `blocks`.
    pub(super) fn new(blocks: Vec<Block>, takes_reserve: bool, reply: Reply<Vec<Stored>>) -> Self {
        let keys = blocks.iter().map(|block| key_of(block.cid().hash())).collect();
        Self { blocks, keys, takes_reserve, reply }
    }
}

/// A call that deletes blocks.
pub(super) struct Delete {
    hashes: Vec<Multihash>,
    /// Keys of the blocks.
    pub(super) keys: Vec<Key>,
    spared: Spared,
    /// Channel to the caller.
    pub(super) reply: Reply<Vec<bool>>,
}

impl Delete {
    /// Creates a call that deletes the blocks of `cids` except those that `spared` keeps.
    pub(super) fn new(cids: &[Cid], spared: Spared, reply: Reply<Vec<bool>>) -> Self {
        let hashes: Vec<_> = cids.iter().map(|cid| *cid.hash()).collect();
        let keys = hashes.iter().map(key_of).collect();
        Self { hashes, keys, spared, reply }
    }
}

/// A call that copies the needed content of one part of a pack that is about to be removed.
pub(super) struct Keep {
    /// Number of the pack.
    pub(super) pack: u32,
    /// Content to copy.
    pub(super) needed: Needed,
    /// Channel to the caller, for the number of bytes written.
    pub(super) reply: Reply<u64>,
}

/// A write call.
pub(super) enum Write {
    /// Store blocks.
    Put(Put),
    /// Delete blocks.
    Delete(Delete),
    /// Copy the needed content of a pack.
    Keep(Keep),
}

impl Write {
    /// Completes the call with an error.
    pub(super) fn refuse(self, error: Error) {
        match self {
            Self::Put(put) => put.reply.send(Err(error)),
            Self::Delete(delete) => delete.reply.send(Err(error)),
            Self::Keep(keep) => keep.reply.send(Err(error)),
        }
    }
}

/// Channel to the caller of a write, and the share of the queue that the call occupies.
#[derive(Debug)]
pub(super) struct Reply<T> {
    /// Sender of the outcome. The outcome is dropped if the caller is gone.
    pub(super) sender: oneshot::Sender<Result<T>>,
    /// Released when the call completes.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl<T> Reply<T> {
    /// Sends the outcome.
    pub(super) fn send(self, outcome: Result<T>) {
        let _ = self.sender.send(outcome);
    }
}

/// An outcome that waits for the commit.
pub(super) enum Answer {
    /// Outcome of a put.
    Put(Reply<Vec<Stored>>, Vec<Stored>),
    /// Outcome of a delete. The call is kept, because it is executed again without the others if they do not fit on the
    /// disk.
    Delete(Delete, Vec<bool>),
    /// Outcome of copying by a compaction.
    Keep(Reply<u64>, u64),
}

impl Answer {
    /// Whether the call stores a block that was absent.
    pub(super) fn stores_new(&self) -> bool {
        matches!(self, Self::Put(_, stored) if stored.contains(&Stored::New))
    }

    /// Sends the outcome, or the error of the commit.
    pub(super) fn send(self, committed: Result<(), &Error>) {
        let committed = committed.map_err(again);
        match self {
            Self::Put(reply, stored) => reply.send(committed.map(|()| stored)),
            Self::Delete(delete, deleted) => delete.reply.send(committed.map(|()| deleted)),
            Self::Keep(reply, bytes) => reply.send(committed.map(|()| bytes)),
        }
    }
}

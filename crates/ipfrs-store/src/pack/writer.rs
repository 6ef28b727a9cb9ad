//! The writer thread. It takes the queued calls, appends them to the newest pack, waits for the disk once, updates
//! the index once, and completes all calls.

mod compaction;
#[cfg(test)]
mod faults;
mod full_disk;
#[cfg(test)]
mod full_disk_tests;
#[cfg(test)]
mod interleavings;

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Result};

use self::full_disk::is_full;
use super::changes::Changes;
use super::damage::Damage;
use super::errors::again;
use super::file::Pack;
use super::group::{Answer, Batch, Delete, GROUP_BLOCKS, GROUP_BYTES, Put, Reply, Write};
use super::index::Position;
use super::link::link_packs;
use super::queue::Job;
use super::record::{CAR_HEADER, Location};
use super::recovery::Recovered;
use super::shared::Shared;
use crate::{Durability, Stored};

/// Bytes written after which the index is made durable. This bounds what a restart must replay and verify, unless the
/// last call alone is larger.
const DURABLE_AFTER_BYTES: u64 = 64 * 1024 * 1024;

/// Number of index changes after which the index is made durable. The equivalent limit for small blocks.
const DURABLE_AFTER_CHANGES: usize = 64 * 1024;

/// Idle time after which the index is made durable.
const DURABLE_AFTER_IDLE: Duration = Duration::from_secs(2);

pub(super) struct Writer {
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    /// A job that was taken from the queue, but belongs to the next group.
    held: Option<Job>,
    active: Option<Arc<Pack>>,
    next_number: u32,
    /// Changes that are not yet durable in the index.
    undurable: Undurable,
    /// Rests of an incomplete write that must be padded before the index covers them.
    torn: Damage,
    /// The only pack that may have an incomplete write in the part that the index on the disk does not cover, if there
    /// is an index.
    tail: Option<u32>,
    /// Time when the index last could not be made durable because the disk was full.
    full_at: Option<Instant>,
    /// Whether the active pack holds bytes that may not be on the disk.
    unsynced: bool,
}

#[derive(Default)]
struct Undurable {
    bytes: u64,
    changes: usize,
}

impl Undurable {
    /// Changes that must be durable in the index before the next write.
    const DUE: Self = Self { bytes: DURABLE_AFTER_BYTES, changes: 1 };
}

/// A group commit being formed.
#[derive(Default)]
struct Group {
    batch: Batch,
    replies: Vec<Answer>,
}

/// Result of adding a call to a group.
enum Joined {
    /// The call was added or rejected.
    Done,
    /// The pack lacks space for the call, which needs this many bytes.
    NoRoom(Write, u64),
}

impl Writer {
    /// Creates the writer of a store that was just opened.
    pub(super) fn new(recovered: Recovered, jobs: Receiver<Job>) -> Self {
        Self {
            shared: recovered.shared,
            jobs,
            held: None,
            active: recovered.active,
            next_number: recovered.next_number,
            // An index that is behind must be made durable before the next write, so that the amount to replay stays
            // bounded.
            undurable: if recovered.is_behind { Undurable::DUE } else { Undurable::default() },
            torn: recovered.torn,
            tail: recovered.tail,
            full_at: None,
            unsynced: false,
        }
    }

    /// Processes jobs until it is stopped or the last handle is dropped.
    pub(super) fn run(mut self) {
        let stop = loop {
            // After a panic, no caller may wait forever. The store accepts no more writes and does not use
            // half-changed state; the next start reads from the disk instead.
            match catch_unwind(AssertUnwindSafe(|| self.step())) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(stop)) => break stop,
                Err(panic) => drop(self.fail(&panicked(&*panic))),
            }
        };
        let durable = catch_unwind(AssertUnwindSafe(|| self.make_durable()));
        let durable = durable.unwrap_or_else(|panic| Err(self.fail(&panicked(&*panic))));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.shared.close())) {
            tracing::warn!(error = %panicked(&*panic), "cannot close the index cleanly: the next start repairs it");
        }
        match (stop, durable) {
            (Some(reply), durable) => reply.send(durable),
            (None, Ok(())) => {}
            (None, Err(error)) => tracing::warn!(%error, "the index is behind: the next start replays more"),
        }
    }

    /// Processes the next job. Breaks when the writer must stop, with the channel to the caller that waits for it.
    fn step(&mut self) -> ControlFlow<Option<Reply<()>>> {
        match self.next_job() {
            None => return ControlFlow::Break(None),
            Some(Job::Stop(reply)) => return ControlFlow::Break(Some(reply)),
            Some(Job::Flush(reply)) => {
                let flushed = self.make_durable();
                reply.send(flushed);
            }
            Some(Job::Seal(pack, reply)) => {
                let sealed = self.seal(pack);
                reply.send(sealed);
            }
            Some(Job::Link(directory, reply)) => {
                let linked = link_packs(&self.shared, &directory);
                reply.send(linked);
            }
            Some(Job::Retire(pack, reply)) => {
                let retired = self.retire(pack);
                reply.send(retired);
            }
            Some(Job::Write(write)) => self.work(write),
        }
        ControlFlow::Continue(())
    }

    fn next_job(&mut self) -> Option<Job> {
        if let Some(job) = self.held.take() {
            return Some(job);
        }
        while self.has_left_something() {
            match self.jobs.recv_timeout(DURABLE_AFTER_IDLE) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.make_durable() {
                        tracing::warn!(%error, "the index is behind: the next start replays more");
                        break;
                    }
                }
            }
        }
        self.jobs.recv().ok()
    }

    /// Whether the index must be made durable once the writer is idle.
    fn has_left_something(&self) -> bool {
        let is_merging = || self.shared.with_index(|index| Ok(index.is_merging())).unwrap_or_default();
        self.shared.failed().is_none() && (self.undurable.changes > 0 || is_merging())
    }

    /// Forms a group that begins with `first`, and commits it.
    fn work(&mut self, first: Write) {
        if let Some(why) = self.shared.failed() {
            return first.refuse(again(why));
        }
        let mut group = Group::default();
        let mut next = Some(first);
        while let Some(write) = next.take() {
            match self.join(&mut group, write) {
                Joined::Done => {}
                Joined::NoRoom(write, _) if !group.replies.is_empty() => {
                    self.held = Some(Job::Write(write));
                    break;
                }
                Joined::NoRoom(write, bytes) => match self.begin_pack_for(&write, bytes) {
                    Ok(()) => {
                        next = Some(write);
                        continue;
                    }
                    Err(error) => {
                        self.shared.note_write(false);
                        write.refuse(error);
                    }
                },
            }
            if group.batch.bytes() >= GROUP_BYTES as u64 || group.batch.changes().blocks.len() >= GROUP_BLOCKS {
                break;
            }
            match self.jobs.try_recv() {
                Ok(Job::Write(write)) => next = Some(write),
                Ok(other) => self.held = Some(other),
                Err(_) => {}
            }
        }
        self.commit(group);
    }

    /// Adds a call to `group`, or rejects it if it cannot be executed.
    fn join(&mut self, group: &mut Group, write: Write) -> Joined {
        let room = self.active.as_ref().map_or(0, |pack| pack.room());
        let fits = |batch: &Batch| batch.is_empty() || group.batch.bytes_at_most() + batch.bytes_at_most() <= room;
        let (batch, answer) = match write {
            Write::Put(put) => match self.draft_put(&put, &group.batch) {
                Ok((batch, _)) if !fits(&batch) => return Joined::NoRoom(Write::Put(put), batch.bytes_at_most()),
                Ok((batch, stored)) => (batch, Answer::Put(put.reply, stored)),
                Err(error) => {
                    put.reply.send(Err(error));
                    return Joined::Done;
                }
            },
            Write::Delete(delete) => match self.draft_delete(&delete, &group.batch) {
                Ok((batch, _)) if !fits(&batch) => return Joined::NoRoom(Write::Delete(delete), batch.bytes_at_most()),
                Ok((batch, gone)) => (batch, Answer::Delete(delete, gone)),
                Err(error) => {
                    delete.reply.send(Err(error));
                    return Joined::Done;
                }
            },
            Write::Keep(keep) => match self.draft_keep(&keep, &group.batch) {
                Ok(batch) if !fits(&batch) => return Joined::NoRoom(Write::Keep(keep), batch.bytes_at_most()),
                Ok(batch) => {
                    let bytes = batch.bytes();
                    (batch, Answer::Keep(keep.reply, bytes))
                }
                Err(error) => {
                    keep.reply.send(Err(error));
                    return Joined::Done;
                }
            },
        };
        group.batch.append(batch);
        group.replies.push(answer);
        Joined::Done
    }

    fn draft_put(&mut self, put: &Put, before: &Batch) -> Result<(Batch, Vec<Stored>)> {
        let indexed = self.shared.with_index(|index| index.locate(&put.keys))?;
        // A pack that another process truncated may have lost the block, so the block is stored again.
        let is_lost = |at: &Location| matches!(self.shared.pack(at.pack), Ok(Some(pack)) if !pack.is_intact());
        let (batch, stored) = Batch::put(&put.blocks, &put.keys, &indexed, is_lost, before);
        self.pad_torn(&batch)?;
        let bytes = before.bytes_at_most() + batch.bytes_at_most();
        match batch.is_empty() {
            true => {}
            false if put.takes_reserve => self.shared.check_space_for_removal(bytes)?,
            false => self.shared.check_free_space(bytes)?,
        }
        Ok((batch, stored))
    }

    fn draft_delete(&self, delete: &Delete, before: &Batch) -> Result<(Batch, Vec<bool>)> {
        let indexed = self.shared.with_index(|index| index.locate(&delete.keys))?;
        Batch::delete(delete, &indexed, before)
    }

    fn commit(&mut self, group: Group) {
        let Group { mut batch, replies } = group;
        // Copies need not be durable yet: their old pack is not removed before this one is synced.
        let is_copy = replies.iter().all(|answer| matches!(answer, Answer::Keep(..)));
        let copied = |answer: &Answer| if let Answer::Keep(_, bytes) = answer { *bytes } else { 0 };
        let unpadded = batch.bytes();
        let mut written = unpadded.saturating_sub(replies.iter().map(copied).sum());
        let has_put = replies.iter().any(Answer::stores_new);
        let committed = if batch.is_empty() { Ok(()) } else { self.write(&mut batch, is_copy, has_put) };
        if !batch.is_empty() {
            self.shared.note_write(committed.is_ok());
        }
        if committed.is_ok() {
            written += if is_copy { 0 } else { batch.bytes() - unpadded };
            self.shared.totals.add_written(written);
            if replies.iter().any(|answer| matches!(answer, Answer::Delete(..))) {
                let gone = batch.changes().blocks.iter().filter(|(_, change)| change.to.is_none());
                self.shared.removals.count_blocks(gone.map(|(key, _)| &**key));
            }
        }
        match committed {
            Err(error) if is_full(&error) && !batch.is_deletion() => self.commit_deletions(replies, &error),
            committed => replies.into_iter().for_each(|answer| answer.send(committed.as_ref().copied())),
        }
    }

    /// Writes the sections and updates the index. After an error, the sections are removed again. Waits for the disk
    /// unless `is_copy`, which means that the batch contains only copies. If it `has_put`, there must be an index.
    fn write(&mut self, batch: &mut Batch, is_copy: bool, has_put: bool) -> Result<()> {
        // Ending the previous pack may have failed since the group was started.
        if let Some(why) = self.shared.failed() {
            return Err(again(why));
        }
        let changes = batch.changes().blocks.len();
        if self.shared.with_index(|index| Ok(index.is_new()))? {
            // Without an index, a start could not tell what a power failure has torn from damaged blocks.
            self.undurable = Undurable::DUE;
        }
        let is_due = self.undurable.changes > 0
            && (self.undurable.bytes + batch.bytes_at_most() >= DURABLE_AFTER_BYTES
                || self.undurable.changes + changes >= DURABLE_AFTER_CHANGES);
        // A compaction may have removed the index from the disk. Later copies do without, because the removal of their
        // old packs may be what gives the index space.
        let lacks_index = has_put && self.tail.is_none();
        if is_due || lacks_index {
            self.make_durable_before(batch)?;
        }
        let Some(pack) = self.active.clone() else { return Err(Error::internal("there is no pack to write to")) };
        if let Err(error) = pack.check_length() {
            return Err(self.fail(&error));
        }
        let start = pack.end();
        batch.place(pack.number(), start)?;
        let bytes = batch.bytes();
        let end = start + bytes as u32;
        let is_synced = !is_copy && self.shared.options.durability == Durability::Fsync;
        if let Err(error) = pack.append(&mut batch.slices(), is_synced) {
            return Err(self.undo(&pack, start, error));
        }
        self.unsynced = true;
        if is_copy {
            // Otherwise the next put would wait for all copies since the last sync.
            pack.begin_write_back(start, bytes);
        } else if is_synced {
            self.sync(&pack, start)?;
        }
        // Before any reader can learn of the new locations.
        pack.publish(end);
        self.apply(batch.changes(), Position { pack: pack.number(), offset: end })?;
        self.shared.totals.add_pack_bytes(bytes);
        self.undurable.bytes += bytes;
        self.undurable.changes += changes.max(1);
        Ok(())
    }

    /// Pads what a power failure has torn, before blocks are written behind it. Deletions do not wait for that: on a
    /// disk that needs space to overwrite, they may be the only way to get it.
    fn pad_torn(&mut self, next: &Batch) -> Result<()> {
        if self.torn.is_empty() || next.is_deletion() { Ok(()) } else { self.make_durable() }
    }

    fn apply(&self, changes: &Changes, position: Position) -> Result<()> {
        let applied = self.shared.with_index(|index| Ok(index.apply(changes, position)))?;
        self.shared.take_over(applied.totals, &applied.packs);
        Ok(())
    }

    /// Removes what a failed group wrote after `start`. Returns the group's error.
    fn undo(&mut self, pack: &Pack, start: u32, error: Error) -> Error {
        if let Err(cut) = pack.cut(start) {
            return self.fail(&Error::internal(format!("{error}; the write could not be undone: {cut}")));
        }
        error
    }

    /// Waits for the disk if there are unsynced bytes. `start` is the offset of the unpublished part of the pack.
    ///
    /// A failed `fdatasync` is final: the kernel may have dropped the pages that it could not write and reset the
    /// error, so a second call would succeed without them.
    fn sync(&mut self, pack: &Pack, start: u32) -> Result<()> {
        if !self.unsynced {
            return Ok(());
        }
        if let Err(error) = pack.sync() {
            let error = self.fail(&error);
            // No caller was notified that the bytes were stored, so the next start should not find them.
            let _ = pack.cut(start);
            // Bytes published earlier may be lost as well: copies, and all writes if the durability is not `Fsync`.
            pack.distrust();
            return Err(error);
        }
        self.unsynced = false;
        Ok(())
    }

    /// Stops all writes from now on. Reads continue.
    fn fail(&mut self, why: &Error) -> Error {
        let dir = self.shared.dir.display();
        let message =
            format!("the block store in {dir} no longer accepts writes: {why} (check the disk, then restart)");
        tracing::error!(message);
        let error = Error::new(ErrorKind::Unavailable, message);
        self.shared.set_failed(again(&error));
        error
    }

    /// Makes all writes to packs durable.
    fn make_packs_durable(&mut self) -> Result<()> {
        if let Some(why) = self.shared.failed() {
            return Err(again(why));
        }
        match self.active.clone() {
            Some(pack) => self.sync(&pack, pack.end()),
            None => Ok(()),
        }
    }

    /// Makes the index durable, after the packs that it covers.
    fn make_durable(&mut self) -> Result<()> {
        let has_merged = self.shared.with_index(|index| Ok(index.has_merged()))?;
        let is_behind = self.undurable.changes > 0 || self.unsynced || has_merged;
        self.make_packs_durable()?;
        if !is_behind {
            return Ok(());
        }
        if let Some(pack) = self.torn.pack() {
            if let Some(pack) = self.shared.pack(pack)? {
                self.torn.pad(pack.file(), pack.path())?;
            }
            self.torn = Damage::default();
        }
        if let Some(pack) = &self.active {
            self.apply(&Changes::default(), Position { pack: pack.number(), offset: pack.end() })?;
        }
        self.shared.with_index(|index| {
            index.commit()?;
            self.shared.totals.set_index_bytes(index.file_bytes());
            Ok(())
        })?;
        self.undurable = Undurable::default();
        self.tail = self.newest_number();
        Ok(())
    }

    /// Ends the active pack, if any, and creates one with space for `bytes`.
    fn begin_pack(&mut self, bytes: u64) -> Result<()> {
        self.make_durable()?;
        self.create_pack(bytes)?;
        self.tail = self.tail.and(self.active_number());
        Ok(())
    }

    fn active_number(&self) -> Option<u32> {
        self.active.as_ref().map(|pack| pack.number())
    }

    /// Returns the number of the newest pack, which after a start may be full and thus not active.
    fn newest_number(&self) -> Option<u32> {
        self.shared.packs().last().map(|pack| pack.number())
    }

    fn create_pack(&mut self, bytes: u64) -> Result<()> {
        let needed = CAR_HEADER.len() as u64 + bytes;
        let capacity = u32::try_from(needed.max(u64::from(self.shared.options.pack_bytes)))
            .map_err(|_| Error::too_large(format!("{bytes} bytes do not fit in one pack: split the put")))?;
        let pack = Pack::create(&self.shared.packs_dir(), self.next_number, capacity, &self.shared.mappings)?;
        let pack = Arc::new(pack);
        self.next_number += 1;
        self.shared.add_pack(Arc::clone(&pack));
        self.active = Some(pack);
        Ok(())
    }
}

/// Returns the error for a panic.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("the block writer thread panicked: {}", message.unwrap_or("no message")))
}

//! Deletions on a disk that has no space for the index, or for the puts of their group. They may be the only way to get
//! space.

use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Result};

use super::{DURABLE_AFTER_CHANGES, Group, Joined, Writer};
use crate::pack::damage::MAX_TORN_BYTES;
use crate::pack::errors::again;
use crate::pack::group::{Answer, Batch, Write};

/// Number of index changes up to which deletions do not wait for the index on a full disk. A restart must replay their
/// tombstones, and their entries are in memory.
pub(super) const DEFERRED_CHANGES: usize = 2 * DURABLE_AFTER_CHANGES;

/// Time for which deletions do not try again to make the index durable. Each attempt writes all recent changes.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Writer {
    /// Makes the index durable before `batch` is written. If the disk has no space for that, only deletions go on.
    pub(super) fn make_durable_before(&mut self, batch: &Batch) -> Result<()> {
        let is_full_still = self.full_at.is_some_and(|at| at.elapsed() < RETRY_AFTER);
        if is_full_still && self.can_defer(batch) {
            return Ok(());
        }
        match self.make_durable() {
            Err(error) if is_full(&error) => {
                self.full_at = Some(Instant::now());
                if self.can_defer(batch) { Ok(()) } else { Err(error) }
            }
            durable => durable,
        }
    }

    /// Whether the batch can be written although the disk has no space for the index: it only deletes blocks. What
    /// precedes it and is not covered must be sound or in the same pack, because a start expects incomplete writes only
    /// at the end of the last one.
    fn can_defer(&self, batch: &Batch) -> bool {
        let Some(pack) = self.active.as_ref().filter(|pack| self.tail == Some(pack.number())) else { return false };
        // The next start must keep them all in memory, and find what a power failure has torn near the end.
        let changes = batch.changes().blocks.len();
        let are_few = self.undurable.changes + changes <= DEFERRED_CHANGES
            && self.shared.with_index(|index| Ok(index.can_replay(changes))).unwrap_or(false);
        let end = u64::from(pack.end()) + batch.bytes_at_most();
        let is_near = self.torn.start().is_none_or(|start| end - start <= u64::from(MAX_TORN_BYTES));
        batch.is_deletion() && are_few && is_near
    }

    /// Begins the pack that `write` needs. For a deletion, the index need not cover the packs before, if they are sound
    /// and on the disk.
    pub(super) fn begin_pack_for(&mut self, write: &Write, bytes: u64) -> Result<()> {
        match self.begin_pack(bytes) {
            // The packs were synced before the disk was found to be full.
            Err(error) if is_full(&error) && matches!(write, Write::Delete(_)) && self.are_packs_sound() => {
                self.create_pack(bytes)?;
                self.tail = self.newest_number();
                Ok(())
            }
            begun => begun,
        }
    }

    /// Whether no pack has an incomplete write, once they are synced.
    fn are_packs_sound(&self) -> bool {
        self.torn.is_empty() && self.tail.is_some() && self.tail == self.newest_number()
    }

    /// Completes the calls of a group for which the disk has no space: commits only the deletions, and fails the rest.
    pub(super) fn commit_deletions(&mut self, answers: Vec<Answer>, error: &Error) {
        let mut group = Group::default();
        for answer in answers {
            match answer {
                Answer::Delete(delete, _) => match self.join(&mut group, Write::Delete(delete)) {
                    Joined::Done => {}
                    Joined::NoRoom(write, _) => write.refuse(again(error)),
                },
                other => other.send(Err(error)),
            }
        }
        if !group.replies.is_empty() {
            self.commit(group);
            // The disk may still reject other writes.
            self.shared.note_write(false);
        }
    }
}

/// Whether the disk has no space for a write.
pub(super) fn is_full(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace
}

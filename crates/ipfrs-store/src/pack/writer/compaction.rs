//! The writer's part of a compaction.

use std::fs;
use std::io;

use ipfrs_core::Result;

use super::Writer;
use super::full_disk::is_full;
#[cfg(test)]
use crate::pack::crash_recorder;
use crate::pack::group::{Batch, Keep};
use crate::pack::index::Index;
use crate::pack::lock::{cannot, sync_directory};

impl Writer {
    /// Returns the content of a part of a pack that is still needed after `before`.
    pub(super) fn draft_keep(&mut self, keep: &Keep, before: &Batch) -> Result<Batch> {
        let keys: Vec<&[u8]> = keep.needed.keys().collect();
        let indexed = self.shared.with_index(|index| index.locate(&keys))?;
        // If no older pack has a dead block, these tombstones are not needed.
        let older = self.shared.packs().into_iter().take_while(|pack| pack.number() < keep.pack);
        let tombstones = older.into_iter().any(|pack| pack.may_hold_dead_blocks());
        let batch = Batch::keep(&keep.needed, &indexed, tombstones, before)?;
        self.pad_torn(&batch)?;
        if !keep.needed.blocks.is_empty() {
            self.shared.check_room_to_compact(before.bytes_at_most() + batch.bytes_at_most())?;
        }
        Ok(batch)
    }

    /// Creates a new pack if this one is the newest, so that nothing more is written to it.
    pub(super) fn seal(&mut self, number: u32) -> Result<()> {
        let packs = self.shared.packs();
        let Some(newest) = packs.last().filter(|newest| newest.number() == number) else { return Ok(()) };
        // No older pack needs its tombstones, so it is about to be removed. Until then, the next one is empty, and a
        // start does not take what a power failure has torn for damage.
        let is_dead = newest.known().live_bytes == 0
            && !packs.iter().any(|pack| pack.number() < number && pack.may_hold_dead_blocks());
        match self.make_durable() {
            Err(error) if is_full(&error) && self.torn.pack() == Some(number) && is_dead => self.create_pack(0),
            Err(error) => Err(error),
            Ok(()) => self.begin_pack(0),
        }
    }

    /// Removes a pack and returns its length. Does nothing and returns `None` if the pack holds live blocks or may
    /// still receive blocks.
    pub(super) fn retire(&mut self, number: u32) -> Result<Option<u64>> {
        let known = self.shared.with_index(|index| Ok(index.packs()))?;
        let is_alive = known.get(&number).is_some_and(|known| known.live_bytes > 0);
        let is_newest = self.shared.packs().last().is_none_or(|newest| newest.number() <= number);
        let Some(pack) = self.shared.pack(number)?.filter(|_| !is_alive && !is_newest) else { return Ok(None) };
        self.release_from_index()?;
        #[cfg(test)]
        crash_recorder::before(pack.path());
        match fs::remove_file(pack.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot("remove", pack.path(), error)),
            _ => {}
        }
        let packs_dir = self.shared.packs_dir();
        #[cfg(test)]
        crash_recorder::before(&packs_dir);
        if let Err(error) = sync_directory(&packs_dir) {
            // After a crash the pack may reappear, with dead blocks whose tombstones are dropped from now on.
            return Err(self.fail(&cannot("sync", &packs_dir, error)));
        }
        self.shared.remove_pack(number);
        // An entry that remains on disk only says that the pack was empty, and is removed at the next start.
        self.shared.with_index(|index| {
            index.forget(&[number]);
            Ok(())
        })?;
        self.undurable.changes += 1;
        Ok(Some(u64::from(pack.end())))
    }

    /// Makes the index independent of packs without live blocks: neither it nor a replay needs them, even after a
    /// crash.
    fn release_from_index(&mut self) -> Result<()> {
        if self.shared.has_room_for_index() {
            match self.make_durable() {
                Err(error) if is_full(&error) => {}
                durable => return durable,
            }
        }
        // The removal is about to free space. If the machine stops before the index is durable, the index is rebuilt.
        // The one on the disk would prove a loss of blocks, because it does not know their copies. What a power failure
        // has torn, and could not be padded, is then noted as possible damage.
        self.make_packs_durable()?;
        self.tail = None;
        self.shared.with_index(Index::discard_on_disk)?;
        self.undurable.changes += 1;
        Ok(())
    }
}

//! The order of eviction: S3-FIFO (Yang et al., SOSP 2023), whose queues are the records of the log.
//!
//! A fetched block enters the *small* queue. If it was read at least twice when it reaches the end, it moves to the
//! *main* queue; otherwise it is evicted and becomes a *ghost*. A ghost that is fetched again enters the main queue. At
//! the end of the main queue, a block that was read since it entered is inserted again, with one read less; otherwise
//! it is evicted.

use ipfrs_core::{Multihash, Result};

use super::ledger::{Ledger, weight};
use super::log::Cursor;
use super::record::{Heads, Position, Record};
use super::table::{Entry, Queue};

/// Share of the small queue in the capacity: a tenth.
const SMALL_PART: u64 = 10;

/// Reads from which a block of the small queue moves to the main queue.
const MIN_READS: u8 = 2;

/// Number of records that one selection reads for each block that it may select.
const RECORDS_PER_BLOCK: usize = 64;

/// Stale bytes that the log may have besides as many bytes as its current records.
const STALE_BYTES: u64 = 4 * 1024 * 1024;

/// Bytes of a record of a block with a sha2-256 hash.
const RECORD_BYTES: u64 = 44;

/// Block that was selected for eviction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Victim {
    pub(super) hash: Multihash,
    pub(super) size: u32,
    key: u64,
    queue: Queue,
}

/// Result of the attempt to delete a block from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The block was removed.
    Deleted,
    /// The block was not in the store.
    Absent,
    /// A request needs the block, or the store failed.
    Kept,
}

impl Ledger {
    /// Selects blocks to evict until the fetched blocks have at most `target` bytes, at most `most` blocks. `capacity`
    /// is the size of both queues in bytes. Selected blocks must be passed to [`Self::settle`]. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the log.
    pub(super) fn select(&self, heads: &mut Heads, capacity: u64, target: u64, most: usize) -> Result<Vec<Victim>> {
        let mut victims = Vec::new();
        let (mut small, mut main) = (Cursor::new(heads.small), Cursor::new(heads.main));
        let (mut small_is_read, mut main_is_read) = (false, false);
        for _ in 0..most.saturating_mul(RECORDS_PER_BLOCK) {
            let (in_small, in_main) = {
                let state = self.state.lock();
                (state.small.bytes, state.main.bytes)
            };
            if in_small + in_main <= target || victims.len() >= most {
                break;
            }
            let is_large = in_small >= capacity / SMALL_PART || main_is_read;
            let from_small = !small_is_read && in_small > 0 && (is_large || in_main == 0);
            let (cursor, is_read) = match from_small {
                true => (&mut small, &mut small_is_read),
                false if main_is_read => break,
                false => (&mut main, &mut main_is_read),
            };
            let next = match cursor.next(&self.log) {
                Ok(None) if self.has_records() => match self.write(false) {
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                next => next,
            };
            match (next, from_small) {
                (Ok(Some((_, Record::Small(hash, _)))), true) => victims.extend(self.pop_small(&hash)),
                (Ok(Some((_, Record::Main(hash, _)))), false) => victims.extend(self.pop_main(&hash)),
                (Ok(Some(_)), _) => {}
                (Ok(None), _) => *is_read = true,
                // The next call fails with the same error.
                (Err(_), _) if !victims.is_empty() => break,
                (Err(error), _) => return Err(error),
            }
        }
        heads.small = small.position();
        heads.main = main.position();
        Ok(victims)
    }

    fn pop_small(&self, hash: &Multihash) -> Option<Victim> {
        let (key, mut state) = (self.key(hash), self.state.lock());
        let entry = self.table.get(key).filter(|entry| entry.queue == Queue::Small && !entry.is_selected)?;
        state.small.subtract(entry.size);
        if entry.frequency < MIN_READS {
            return Some(self.selected(hash, key, entry));
        }
        self.table.set(key, Entry { queue: Queue::Main, frequency: 0, ..entry });
        state.main.add(entry.size);
        state.record(&Record::Main(*hash, entry.size));
        None
    }

    fn pop_main(&self, hash: &Multihash) -> Option<Victim> {
        let (key, mut state) = (self.key(hash), self.state.lock());
        let entry = self.table.get(key).filter(|entry| entry.queue == Queue::Main && !entry.is_selected)?;
        if entry.frequency == 0 {
            state.main.subtract(entry.size);
            return Some(self.selected(hash, key, entry));
        }
        self.table.set(key, Entry { frequency: entry.frequency - 1, ..entry });
        state.record(&Record::Main(*hash, entry.size));
        None
    }

    fn selected(&self, hash: &Multihash, key: u64, entry: Entry) -> Victim {
        self.table.set(key, Entry { is_selected: true, ..entry });
        Victim { hash: *hash, size: entry.size, key, queue: entry.queue }
    }

    /// Whether a block is still selected for eviction: no user has put or pinned it meanwhile.
    pub(super) fn is_selected(&self, hash: &Multihash) -> bool {
        self.table.get(self.key(hash)).is_some_and(|entry| entry.is_selected)
    }

    /// Records the fates of selected blocks, and durably so. Also shortens the ghost queue and the log. Waits for the
    /// disk.
    ///
    /// # Errors
    /// Errors of the log. The fates are recorded in memory and are written by the next call.
    pub(super) fn settle(&self, heads: &mut Heads, capacity: u64, victims: &[(Victim, Fate)]) -> Result<()> {
        for (victim, fate) in victims {
            let Victim { hash, size, key, queue } = victim;
            let mut state = self.state.lock();
            // A user, or another put, may have taken it.
            let Some(entry) = self.table.get(*key).filter(|entry| entry.is_selected) else { continue };
            match (fate, queue) {
                (Fate::Deleted, Queue::Small) => {
                    self.table.set(*key, Entry { queue: Queue::Ghost, frequency: 0, is_selected: false, ..entry });
                    state.ghost.add(*size);
                    state.record_end(*key, &Record::Ghost(*hash, *size));
                }
                (Fate::Deleted | Fate::Absent, _) => {
                    self.table.remove(*key);
                    state.record_end(*key, &Record::Removed(*hash));
                }
                (Fate::Kept, _) => {
                    self.table.set(*key, Entry { queue: Queue::Main, is_selected: false, ..entry });
                    state.main.add(*size);
                    state.record(&Record::Main(*hash, *size));
                }
            }
        }
        self.write(false)?;
        let mut ghosts = Cursor::new(heads.ghost);
        let most = capacity - capacity / SMALL_PART;
        while self.state.lock().ghost.bytes > most {
            match ghosts.next(&self.log)? {
                Some((_, Record::Ghost(hash, _))) => self.drop_ghost(self.key(&hash)),
                Some(_) => {}
                None => break,
            }
        }
        heads.ghost = ghosts.position();
        // Only now: eviction has decided about all blocks before the heads.
        self.state.lock().record(&Record::Heads(*heads));
        self.write(true)?;
        let oldest = heads.small.min(heads.main).min(heads.ghost);
        self.log.trim(oldest)
    }

    /// Rewrites the log if most of it is out of date. No blocks may be selected. Waits for the disk.
    ///
    /// # Errors
    /// Errors of the log, which is unchanged then.
    pub(super) fn rewrite_if_stale(&self, heads: &mut Heads) -> Result<()> {
        let current = {
            let state = self.state.lock();
            (state.small.blocks + state.main.blocks + state.ghost.blocks) * RECORD_BYTES
        };
        if self.log.bytes() <= 2 * current + STALE_BYTES {
            return Ok(());
        }
        self.rewrite(heads)
    }

    /// Rewrites the log.
    pub(super) fn rewrite(&self, heads: &mut Heads) -> Result<()> {
        self.write(true)?;
        let passed = *heads;
        self.log.rewrite(heads, |at, record| self.is_current(&passed, at, record))
    }

    /// Whether a record still describes the state of its block.
    fn is_current(&self, heads: &Heads, at: Position, record: &Record) -> bool {
        let (hash, queue, head) = match record {
            Record::Small(hash, _) => (hash, Queue::Small, heads.small),
            Record::Main(hash, _) => (hash, Queue::Main, heads.main),
            Record::Ghost(hash, _) => (hash, Queue::Ghost, heads.ghost),
            // Everything that it may end is dropped as well.
            Record::Removed(_) | Record::Heads(_) => return false,
        };
        at >= head && self.table.get(self.key(hash)).is_some_and(|entry| entry.queue == queue)
    }
}

/// Returns the bytes that blocks count in the queues.
pub(super) fn weight_of(victims: &[Victim]) -> u64 {
    victims.iter().map(|victim| weight(victim.size)).sum()
}

//! The ledger: which blocks of the store were fetched and may be evicted. `docs/design/fetched.md` explains why no
//! crash makes a user's block evictable.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::quality::RandomState;
use ipfrs_core::{Multihash, Result};
use parking_lot::Mutex;

use super::log::{Cursor, Log};
use super::record::{Heads, Position, Record};
use super::table::{Entry, Queue, Table};
use crate::fingerprint::ByItself;

/// Bytes that the store needs for a block besides its data, about: 40 for the prefix of the section and 40 for the
/// index.
const BLOCK_OVERHEAD_BYTES: u64 = 80;

/// Bytes of records from which an append waits for the disk. A power failure forgets at most 1,500 fetched blocks,
/// which then count as added by users.
const MAX_UNSYNCED_BYTES: u64 = 64 * 1024;

/// Returns the bytes that a block counts in its queue.
pub(super) fn weight(size: u32) -> u64 {
    u64::from(size) + BLOCK_OVERHEAD_BYTES
}

/// Which blocks were fetched, in the order in which they are evicted.
#[derive(Debug)]
pub(super) struct Ledger {
    hasher: RandomState,
    pub(super) table: Table,
    pub(super) log: Log,
    pub(super) state: Mutex<State>,
    /// Held while records are written, so that they are written in order.
    writing: Mutex<()>,
    /// Number of puts in progress and of removals that are not durable, plus the number of known blocks. While it is
    /// 0, a user's put has nothing to look up.
    relevant: AtomicU64,
}

/// The part of the ledger that changes together.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Records that were not written yet.
    records: Vec<u8>,
    /// Blocks that are being put.
    pending: HashMap<u64, Pending, ByItself>,
    /// Blocks that the log on the disk may still call fetched although they are not, with the number of the write that
    /// changes this.
    leaving: HashMap<u64, u64, ByItself>,
    /// Number of the next write.
    write: u64,
    /// Totals of each queue.
    pub(super) small: Total,
    pub(super) main: Total,
    pub(super) ghost: Total,
}

#[derive(Debug, Default)]
struct Pending {
    puts: usize,
    /// Whether a user has put the block meanwhile.
    is_claimed: bool,
}

/// Blocks of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Total {
    pub(super) blocks: u64,
    /// Sum of their [`weight`]s.
    pub(super) bytes: u64,
}

impl Total {
    pub(super) fn add(&mut self, size: u32) {
        self.blocks += 1;
        self.bytes += weight(size);
    }

    pub(super) fn subtract(&mut self, size: u32) {
        self.blocks = self.blocks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(weight(size));
    }
}

impl State {
    pub(super) fn total(&mut self, queue: Queue) -> &mut Total {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
            Queue::Ghost => &mut self.ghost,
        }
    }

    pub(super) fn record(&mut self, record: &Record) {
        record.write(&mut self.records);
    }

    /// Records that a block is not evictable any more. Until this is durable, a put of the block must wait for it.
    pub(super) fn record_end(&mut self, key: u64, record: &Record) {
        self.record(record);
        self.leaving.insert(key, self.write);
    }
}

/// Block that is being put, or that a user needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) hash: Multihash,
    pub(super) key: u64,
}

impl Ledger {
    /// Returns an empty ledger that is lost with the process.
    pub(super) fn in_memory() -> Self {
        Self::new(Log::in_memory())
    }

    fn new(log: Log) -> Self {
        Self {
            hasher: RandomState::default(),
            table: Table::new(),
            log,
            state: Mutex::default(),
            writing: Mutex::default(),
            relevant: AtomicU64::new(0),
        }
    }

    /// Opens the ledger in `dir`, which need not exist. Returns it with the heads of its queues. Waits for the disk.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub(super) fn open(dir: &Path, is_synced: bool) -> Result<(Self, Heads)> {
        let mut heads = Heads::default();
        let log = Log::open(dir, is_synced, |record| {
            if let Record::Heads(passed) = record {
                heads = passed;
            }
        })?;
        let this = Self::new(log);
        let mut cursor = Cursor::new(Position::default());
        while let Some((at, record)) = cursor.next(&this.log)? {
            this.replay(at, &record, heads.ghost);
        }
        this.note_relevant(&this.state.lock());
        Ok((this, heads))
    }

    /// Repeats a change. Ghosts before `oldest_ghost` have ended, which is not recorded.
    fn replay(&self, at: Position, record: &Record, oldest_ghost: Position) {
        let (hash, queue, size) = match record {
            Record::Small(hash, size) => (hash, Some(Queue::Small), *size),
            Record::Main(hash, size) => (hash, Some(Queue::Main), *size),
            Record::Ghost(hash, size) if at >= oldest_ghost => (hash, Some(Queue::Ghost), *size),
            Record::Ghost(hash, _) | Record::Removed(hash) => (hash, None, 0),
            Record::Heads(_) => return,
        };
        let (key, mut state) = (self.key(hash), self.state.lock());
        if let Some(before) = self.table.get(key) {
            state.total(before.queue).subtract(before.size);
        }
        match queue {
            Some(queue) => {
                self.table.set(key, Entry { queue, frequency: 0, is_unread: false, is_selected: false, size });
                state.total(queue).add(size);
            }
            None => self.table.remove(key),
        }
    }

    /// Removes a block if it is a ghost.
    pub(super) fn drop_ghost(&self, key: u64) {
        let mut state = self.state.lock();
        if let Some(ghost) = self.table.get(key).filter(|entry| entry.queue == Queue::Ghost) {
            state.ghost.subtract(ghost.size);
            self.table.remove(key);
        }
    }

    /// Returns the number by which the ledger knows a block. The result differs between processes, so that no client
    /// can construct blocks with the same number.
    pub(super) fn key(&self, hash: &Multihash) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = self.hasher.build_hasher();
        hasher.write(hash.digest());
        hasher.write_u64(hash.code());
        hasher.finish()
    }

    pub(super) fn known(&self, hash: &Multihash) -> Known {
        Known { hash: *hash, key: self.key(hash) }
    }

    /// Counts a read of a block.
    pub(super) fn touch(&self, hash: &Multihash) {
        self.table.touch(self.key(hash));
    }

    /// Returns the totals of the small and the main queue together.
    pub(super) fn total(&self) -> Total {
        let state = self.state.lock();
        let Total { blocks, bytes } = state.main;
        Total { blocks: blocks + state.small.blocks, bytes: bytes + state.small.bytes }
    }

    fn note_relevant(&self, state: &State) {
        let blocks = state.small.blocks + state.main.blocks + state.ghost.blocks;
        let others = state.pending.len() + state.leaving.len();
        self.relevant.store(blocks + others as u64, Ordering::SeqCst);
    }

    /// Whether no block is fetched or being fetched.
    pub(super) fn is_empty(&self) -> bool {
        self.relevant.load(Ordering::SeqCst) == 0
    }

    /// Begins puts of fetched blocks, which [`Self::end_puts`] must end.
    pub(super) fn begin_puts(&self, blocks: &[Known]) {
        let mut state = self.state.lock();
        for block in blocks {
            state.pending.entry(block.key).or_default().puts += 1;
        }
        self.note_relevant(&state);
    }

    /// Ends puts. `new` holds the size of each block that the put has written; others are content of a user, belong to
    /// another put, or failed.
    pub(super) fn end_puts(&self, blocks: &[Known], new: &[Option<u32>]) {
        let mut state = self.state.lock();
        for (block, new) in blocks.iter().zip(new) {
            let Some(pending) = state.pending.get_mut(&block.key) else { continue };
            let is_claimed = pending.is_claimed;
            pending.puts -= 1;
            if pending.puts == 0 {
                state.pending.remove(&block.key);
            }
            if let Some(size) = new.filter(|_| !is_claimed) {
                self.add(&mut state, block, size);
            }
        }
        self.note_relevant(&state);
    }

    fn add(&self, state: &mut State, block: &Known, size: u32) {
        let before = self.table.get(block.key);
        // An entry of a block that was not in the store is out of date, except for a ghost.
        if let Some(before) = before.filter(|before| !before.is_selected) {
            state.total(before.queue).subtract(before.size);
        }
        let queue = match before {
            Some(Entry { queue: Queue::Ghost, .. }) => Queue::Main,
            _ => Queue::Small,
        };
        self.table.set(block.key, Entry { queue, frequency: 0, is_unread: true, is_selected: false, size });
        state.total(queue).add(size);
        state.record(&match queue {
            Queue::Main => Record::Main(block.hash, size),
            _ => Record::Small(block.hash, size),
        });
    }

    /// Makes blocks content of users. Returns how many were fetched blocks, and whether the caller must
    /// [write](Self::write) the log before it acknowledges anything.
    pub(super) fn claim<'a>(&self, hashes: impl Iterator<Item = &'a Multihash>) -> (u64, bool) {
        let (mut claimed, mut must_write) = (0, false);
        if self.is_empty() {
            return (claimed, must_write);
        }
        for hash in hashes {
            let block = self.known(hash);
            let mut state = self.state.lock();
            if let Some(pending) = state.pending.get_mut(&block.key) {
                pending.is_claimed = true;
                claimed += 1;
            }
            if let Some(entry) = self.table.get(block.key).filter(|entry| entry.queue != Queue::Ghost) {
                self.end(&mut state, &block, entry);
                claimed += 1;
            }
            must_write |= state.leaving.contains_key(&block.key);
        }
        self.note_relevant(&self.state.lock());
        (claimed, must_write)
    }

    /// Forgets blocks that were removed from the store, but not by eviction. Returns whether many removals are not
    /// durable, so that the caller should [write](Self::write) the log.
    pub(super) fn removed<'a>(&self, hashes: impl Iterator<Item = &'a Multihash>) -> bool {
        if self.is_empty() {
            return false;
        }
        for hash in hashes {
            let block = self.known(hash);
            let mut state = self.state.lock();
            let entry = self.table.get(block.key);
            if let Some(entry) = entry.filter(|entry| entry.queue != Queue::Ghost && !entry.is_selected) {
                self.end(&mut state, &block, entry);
            }
        }
        let state = self.state.lock();
        self.note_relevant(&state);
        state.records.len() as u64 > MAX_UNSYNCED_BYTES
    }

    /// Removes a block that is in the small or the main queue.
    fn end(&self, state: &mut State, block: &Known, entry: Entry) {
        if !entry.is_selected {
            state.total(entry.queue).subtract(entry.size);
        }
        self.table.remove(block.key);
        state.record_end(block.key, &Record::Removed(block.hash));
    }

    /// Writes all records. If `is_durable`, also waits for the disk.
    ///
    /// # Errors
    /// Errors of the disk. The records are kept for the next call.
    pub(super) fn write(&self, is_durable: bool) -> Result<()> {
        let _turn = self.writing.lock();
        let (mut records, write) = {
            let mut state = self.state.lock();
            state.write += 1;
            (std::mem::take(&mut state.records), state.write)
        };
        if let Err(error) = self.log.append(&records) {
            let mut state = self.state.lock();
            records.append(&mut state.records);
            state.records = records;
            // These removals are not durable before the next write.
            let next = state.write;
            state.leaving.values_mut().for_each(|write| *write = next);
            return Err(error);
        }
        if is_durable || self.log.unsynced() > MAX_UNSYNCED_BYTES {
            self.log.sync()?;
            let mut state = self.state.lock();
            state.leaving.retain(|_, ends| *ends >= write);
            self.note_relevant(&state);
        }
        Ok(())
    }

    /// Whether records wait to be written.
    pub(super) fn has_records(&self) -> bool {
        !self.state.lock().records.is_empty()
    }
}

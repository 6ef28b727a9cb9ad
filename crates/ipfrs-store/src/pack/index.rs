//! The index: the location of each block. It is derived from the packs and may be behind them, but never ahead.
//!
//! Recent changes are in memory, and in the `manifest` once they are committed. When there are enough of them, they
//! become a `run`: an immutable, memory-mapped file of sorted entries (`layout`, `write`). Entries of newer runs
//! override those of older runs. A background thread merges runs (`merge`, `cursor`). The last entry of `packs` is
//! the position from which packs are replayed at open. `commit` makes all of that durable.

mod commit;
mod cursor;
mod decode;
#[cfg(test)]
pub(super) mod fault;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod layout;
mod manifest;
mod memory;
mod merge;
mod place;
mod reopen;
mod run;
#[cfg(test)]
mod tests;
mod totals;
mod write;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use self::commit::Upkeep;
use self::cursor::page_of;
use self::layout::{digest_of, split_key};
use self::manifest::{Manifest, NamedRun};
use self::memory::Memory;
use self::place::Place;
use self::run::{Run, Said};
pub(super) use self::totals::Totals;
use super::changes::{Changes, PackUse};
use super::record::{Key, Location};

/// Name of the index directory.
pub(super) const INDEX: &str = "index";

/// Number of entries in memory from which a replay writes them to a run: about 40 MiB.
const REPLAY_ENTRIES: usize = if cfg!(test) { 64 } else { 256 * 1024 };

/// Bytes of runs whose checksums are verified at open, newest run first. Verifying more would take too long.
const CHECK_BYTES: u64 = 256 * 1024 * 1024;

/// Position up to which packs are covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the pack.
    pub(super) pack: u32,
    /// Offset of its first byte that is not covered.
    pub(super) offset: u32,
}

/// Totals after changes were applied.
#[derive(Debug)]
pub(super) struct Applied {
    /// Totals of the store.
    pub(super) totals: Totals,
    /// Statistics of the packs that changed, by number.
    pub(super) packs: BTreeMap<u32, PackUse>,
}

/// The open index. One thread may change it while others read it.
#[derive(Debug)]
pub(super) struct Index {
    place: Arc<Place>,
    state: RwLock<State>,
    upkeep: Mutex<Upkeep>,
    /// Time of the last attempt to open runs again (`reopen`).
    last_reopening: Mutex<Option<Instant>>,
}

/// Content of the index.
#[derive(Debug)]
struct State {
    memory: Memory,
    /// Ordered from oldest to newest.
    runs: Arc<[Arc<Run>]>,
    /// Number of runs that were opened again (`reopen`).
    reopened: u64,
    packs: BTreeMap<u32, PackUse>,
    totals: Totals,
    /// Notes of a rebuild that has not reached the last pack.
    unfinished: Option<Arc<[u8]>>,
}

impl Index {
    /// Opens the index in the directory `dir`, or creates one. If it `is_read_only`, nothing is written to the
    /// directory, and new runs are kept in memory in the same format. Returns the reason if the files are not a valid
    /// index of this format.
    ///
    /// # Errors
    /// Only failures that rebuilding the index would not repair, such as missing permissions or a full disk.
    pub(super) fn open(dir: &Path, is_read_only: bool) -> Result<Result<Self, String>> {
        match Self::read(Place::new(dir, is_read_only)) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Err(error.message().to_owned())),
            read => read.map(Ok),
        }
    }

    /// Returns the statistics of each pack and the totals, if the manifest in `dir` is sound. The runs may be damaged.
    pub(super) fn statistics(dir: &Path) -> Option<(BTreeMap<u32, PackUse>, Totals)> {
        let bytes = Place::new(dir, true).read_manifest().ok().flatten()?;
        Manifest::decode(&bytes).ok().map(|manifest| (manifest.packs, manifest.totals))
    }

    /// Creates an empty index in the directory `dir`, replacing existing files.
    pub(super) fn begin(dir: &Path, is_read_only: bool) -> Result<Self> {
        let place = Place::new(dir, is_read_only);
        if !is_read_only {
            place.clear()?;
        }
        place.tidy(|_| false)?;
        Ok(Self::new(place, Manifest::default(), Vec::new(), 0))
    }

    fn read(place: Place) -> Result<Self> {
        let bytes = place.read_manifest()?;
        let manifest = bytes.as_deref().map_or_else(|| Ok(Manifest::default()), Manifest::decode);
        let manifest = manifest.map_err(Error::corrupt)?;
        place.tidy(|number| manifest.runs.iter().any(|named| named.number == number))?;
        let mut runs = Vec::with_capacity(manifest.runs.len());
        for named in &manifest.runs {
            let run = place.find_run(named.number)?;
            if NamedRun::of(&run) != *named {
                return Err(run.damaged("it does not match the manifest"));
            }
            runs.push(Arc::new(run));
        }
        let mut checked = 0;
        for run in runs.iter().rev() {
            checked += run.file_bytes();
            if checked > CHECK_BYTES {
                break;
            }
            run.verify()?;
        }
        Ok(Self::new(place, manifest, runs, bytes.map_or(0, |bytes| bytes.len() as u64)))
    }

    fn new(place: Place, manifest: Manifest, runs: Vec<Arc<Run>>, manifest_bytes: u64) -> Self {
        let Manifest { totals, packs, runs: named, memory, unfinished } = manifest;
        let next_run = named.iter().map(|named| named.number + 1).max().unwrap_or(1);
        Self {
            place: Arc::new(place),
            state: RwLock::new(State { memory, runs: runs.into(), reopened: 0, packs, totals, unfinished }),
            upkeep: Mutex::new(Upkeep::new(next_run, manifest_bytes)),
            last_reopening: Mutex::default(),
        }
    }

    /// Returns the statistics of each pack, by number.
    pub(super) fn packs(&self) -> BTreeMap<u32, PackUse> {
        self.state.read().packs.clone()
    }

    /// Whether it covers no pack yet.
    pub(super) fn is_new(&self) -> bool {
        self.state.read().packs.is_empty()
    }

    /// Returns the totals.
    pub(super) fn totals(&self) -> Totals {
        self.state.read().totals
    }

    /// Returns the length of the index files, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        let runs: u64 = self.state.read().runs.iter().map(|run| run.file_bytes()).sum();
        runs + self.upkeep.lock().manifest_bytes
    }

    /// Checks that no page of a run has turned out to be missing. If one has, lookups fail.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind), with the name of the first such run.
    pub(super) fn check(&self) -> Result<()> {
        let runs = Arc::clone(&self.state.read().runs);
        runs.iter().try_for_each(|run| run.check())
    }

    /// Same as [`check`](Self::check), after an attempt to open such runs again. Waits for the disk.
    pub(super) fn check_again(&self) -> Result<()> {
        self.with_whole_runs(|| self.check())
    }

    /// Verifies the checksums of every run. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind), with the name of the first damaged run.
    pub(super) fn verify(&self) -> Result<()> {
        self.with_whole_runs(|| {
            let runs = Arc::clone(&self.state.read().runs);
            runs.iter().try_for_each(|run| run.verify())
        })
    }

    /// Returns the location of each of `keys`. Waits for the disk.
    pub(super) fn locate<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Location>>> {
        self.with_whole_runs(|| self.locate_once(keys))
    }

    fn locate_once<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Location>>> {
        let state = self.state.read();
        let recent: Vec<Option<Said>> = keys.iter().map(|key| state.memory.get(key.as_ref())).collect();
        let runs = Arc::clone(&state.runs);
        drop(state);
        let mut found = Vec::with_capacity(keys.len());
        for (key, recent) in keys.iter().zip(recent) {
            found.push(match recent {
                Some(said) => said,
                None => find_in(&runs, key.as_ref())?,
            });
        }
        runs.iter().try_for_each(|run| run.check())?;
        Ok(found)
    }

    /// Returns the location of a block, or the outer `None` if that would wait for the disk or for a change.
    pub(super) fn locate_resident(&self, key: &[u8]) -> Result<Option<Option<Location>>> {
        let Some(state) = self.state.try_read() else { return Ok(None) };
        if let Some(said) = state.memory.get(key) {
            return Ok(Some(said));
        }
        let runs = Arc::clone(&state.runs);
        drop(state);
        let found = find_resident_in(&runs, key);
        // A lookup that may wait for the disk opens runs with missing pages again.
        match runs.iter().try_for_each(|run| run.check()) {
            Ok(()) => found,
            Err(_) => Ok(None),
        }
    }

    /// Loads the entries of `keys` into the processor's cache, except those that are on the disk.
    pub(super) fn preload<K: Deref<Target = [u8]>>(&self, keys: &[K]) {
        let Some(runs) = self.state.try_read().map(|state| Arc::clone(&state.runs)) else { return };
        runs.iter().for_each(|run| run.preload(keys));
    }

    /// Returns up to `limit` blocks after `after`, in the order of their keys. The page is empty at the end. Waits for
    /// the disk.
    pub(super) fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Key, Location)>> {
        self.with_whole_runs(|| self.page_once(after, limit))
    }

    fn page_once(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Key, Location)>> {
        let mut after: Option<Key> = after.map(Key::from);
        loop {
            let state = self.state.read();
            let recent = state.memory.first_after(after.as_deref(), limit);
            let runs = Arc::clone(&state.runs);
            drop(state);
            // After this key, the memory may contain more entries than were read.
            let until = recent.last().filter(|_| recent.len() == limit).map(|(key, _)| key.clone());
            let page = page_of(recent, &runs, after.as_deref(), until.as_deref(), limit)?;
            runs.iter().try_for_each(|run| run.check())?;
            if !page.is_empty() || until.is_none() {
                return Ok(page);
            }
            after = until;
        }
    }

    /// Applies `changes`, after which the index covers the packs up to `position`. The changes are only in memory
    /// until [`commit`](Self::commit).
    pub(super) fn apply(&self, changes: &Changes, position: Position) -> Applied {
        let mut grown = BTreeMap::<u32, i64>::new();
        let state = &mut *self.state.write();
        // A forged tombstone may name a key that is not a multihash, or one that no store accepts.
        let is_key = |key: &Key| u8::try_from(key.len()).is_ok() && digest_of(key).is_some();
        for (key, change) in changes.blocks.iter().filter(|(key, _)| is_key(key)) {
            if let Some(from) = change.from {
                state.totals.blocks -= 1;
                state.totals.payload_bytes -= u64::from(from.len);
                *grown.entry(from.pack).or_default() -= from.section_bytes() as i64;
            }
            if let Some(to) = change.to {
                state.totals.blocks += 1;
                state.totals.payload_bytes += u64::from(to.len);
                *grown.entry(to.pack).or_default() += to.section_bytes() as i64;
            }
            match change.to {
                // No run has an older entry that must be overridden.
                None if state.runs.is_empty() => state.memory.remove(key),
                to => state.memory.insert(key.clone(), to),
            }
        }
        let packs = update_packs(&mut state.packs, grown, changes, position);
        Applied { totals: state.totals, packs }
    }

    /// Applies changes read from a pack, in which the previous locations are not filled in. Commits nothing: a replay
    /// that is interrupted begins again, with all the damage that it meets.
    pub(super) fn replay(&self, mut changes: Changes, position: Position) -> Result<()> {
        let mut sorted: Vec<_> = changes.blocks.iter_mut().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let keys: Vec<&Key> = sorted.iter().map(|(key, _)| *key).collect();
        for (from, (_, change)) in self.locate(&keys)?.into_iter().zip(sorted) {
            change.from = from;
        }
        self.apply(&changes, position);
        if self.state.read().memory.len() >= REPLAY_ENTRIES { self.spill() } else { Ok(()) }
    }

    /// Whether a replay keeps the entries in memory and so many more there, so that it needs no space on the disk.
    pub(super) fn can_replay(&self, changes: usize) -> bool {
        self.state.read().memory.len() + changes < REPLAY_ENTRIES
    }

    /// Returns the notes of the rebuild that was interrupted, if the index is not complete.
    pub(super) fn unfinished(&self) -> Option<Arc<[u8]>> {
        self.state.read().unfinished.clone()
    }

    /// Ends a rebuild: the next commit makes the index complete.
    pub(super) fn finish(&self) {
        self.state.write().unfinished = None;
    }

    /// Removes the statistics of packs that no longer exist.
    pub(super) fn forget(&self, packs: &[u32]) {
        self.state.write().packs.retain(|number, _| !packs.contains(number));
    }

    /// Returns the injected faults, for tests.
    #[cfg(test)]
    pub(super) fn fault(&self) -> &fault::Countdown {
        &self.place.fault
    }
}

/// Returns the location of a block according to the newest run that has an entry for it.
fn find_in(runs: &[Arc<Run>], key: &[u8]) -> Result<Said> {
    let (prefix, digest) = split_key(key);
    for run in runs.iter().rev() {
        if let Some(said) = run.find(prefix, digest)? {
            return Ok(said);
        }
    }
    Ok(None)
}

/// Same as [`find_in`], but returns the outer `None` if that would wait for the disk.
fn find_resident_in(runs: &[Arc<Run>], key: &[u8]) -> Result<Option<Said>> {
    let (prefix, digest) = split_key(key);
    for run in runs.iter().rev() {
        match run.find_resident(prefix, digest)? {
            None => return Ok(None),
            Some(None) => {}
            Some(Some(said)) => return Ok(Some(said)),
        }
    }
    Ok(Some(None))
}

/// Updates the statistics of packs: the change in live bytes (`grown`), the tombstones and padding written at their
/// end, and the covered position. Returns the updated ones.
fn update_packs(
    pack_uses: &mut BTreeMap<u32, PackUse>,
    mut grown: BTreeMap<u32, i64>,
    changes: &Changes,
    position: Position,
) -> BTreeMap<u32, PackUse> {
    grown.entry(position.pack).or_default();
    let mut packs = BTreeMap::new();
    for (number, grown) in grown {
        let pack = pack_uses.entry(number).or_default();
        pack.live_bytes = pack.live_bytes.saturating_add_signed(grown);
        if number == position.pack {
            pack.covered = position.offset;
            pack.tombstone_bytes += changes.tombstone_bytes;
            pack.padding_bytes += changes.padding_bytes;
        }
        packs.insert(number, *pack);
    }
    packs
}

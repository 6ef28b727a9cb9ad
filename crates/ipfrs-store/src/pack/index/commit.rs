//! Makes the index durable: writes runs and the manifest, and adopts merged runs.

use std::sync::Arc;

use ipfrs_core::Result;

use super::layout::Plan;
use super::manifest::{self, NamedRun};
use super::memory::Memory;
use super::merge::{self, Merge};
use super::run::Run;
use super::write::RunWriter;
use super::{Index, State};
use crate::pack::lock::cannot;

/// Number of entries in memory from which a commit writes them to a run. A smaller number is stored in the manifest:
/// about 100 KiB, rewritten by each commit.
const RUN_ENTRIES: usize = if cfg!(test) { 8 } else { 2_048 };

/// Maximum capacity reserved for new entries after the entries in memory became a run.
const MEMORY_CAPACITY: usize = 64 * 1024;

/// Number of runs from which a commit waits for the merge. A writer that is faster than the merges must be slowed
/// down.
const MAX_RUNS: usize = 32;

/// Additional state needed by commits.
#[derive(Debug)]
pub(super) struct Upkeep {
    /// Number of the next run. No number is used twice, even if writing the run fails.
    next_run: u64,
    merge: Option<Merge>,
    /// Runs before this position are not merged: a merge with them failed, and since then no merge has succeeded and
    /// no run was opened again.
    merge_from: usize,
    /// Number of runs that had been opened again when a merge was last considered.
    reopened: u64,
    /// Runs that are no longer needed, but that the manifest on disk may still name.
    retired: Vec<u64>,
    /// Number of the first run that no manifest on the disk names.
    first_unnamed: u64,
    /// Length of the manifest, in bytes.
    pub(super) manifest_bytes: u64,
}

impl Upkeep {
    /// Returns the state of an index that was just opened, whose next run has this number.
    pub(super) fn new(next_run: u64, manifest_bytes: u64) -> Self {
        Self {
            next_run,
            merge: None,
            merge_from: 0,
            reopened: 0,
            retired: Vec::new(),
            first_unnamed: next_run,
            manifest_bytes,
        }
    }

    fn take_number(&mut self) -> u64 {
        self.next_run += 1;
        self.next_run - 1
    }
}

impl Index {
    /// Writes the entries in memory to a run that no manifest names yet.
    pub(super) fn spill(&self) -> Result<()> {
        let upkeep = &mut *self.upkeep.lock();
        self.adopt_merged(upkeep);
        self.make_run(upkeep)?;
        let first_unnamed = upkeep.first_unnamed;
        let (named, unnamed): (_, Vec<_>) = upkeep.retired.drain(..).partition(|number| *number < first_unnamed);
        upkeep.retired = named;
        unnamed.into_iter().for_each(|number| self.place.remove_run(number));
        self.begin_merge(upkeep);
        Ok(())
    }

    /// Commits the part of a rebuild that is done, if it has written runs since the last commit, with `notes` for its
    /// continuation.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub(in crate::pack) fn commit_unfinished(&self, notes: Vec<u8>) -> Result<()> {
        let has_written = {
            let upkeep = self.upkeep.lock();
            upkeep.first_unnamed < upkeep.next_run
        };
        if !has_written {
            return Ok(());
        }
        self.state.write().unfinished = Some(notes.into());
        self.commit()
    }

    /// Makes the content durable. The packs must be on the disk up to the position that the index covers.
    ///
    /// # Errors
    /// If the files cannot be written. The content stays available, and the next commit tries again.
    pub(in crate::pack) fn commit(&self) -> Result<()> {
        let upkeep = &mut *self.upkeep.lock();
        self.adopt_merged(upkeep);
        if self.state.read().memory.len() >= RUN_ENTRIES {
            self.make_run(upkeep)?;
        }
        let manifest = {
            let State { memory, runs, packs, totals, unfinished, .. } = &*self.state.read();
            let runs = runs.iter().map(|run| NamedRun::of(run));
            manifest::encode(*totals, packs, runs, memory, unfinished.as_deref())
        };
        // If this fails, the manifest may be on the disk nevertheless.
        upkeep.first_unnamed = upkeep.next_run;
        self.place.write_manifest(&manifest)?;
        upkeep.manifest_bytes = manifest.len() as u64;
        upkeep.retired.drain(..).for_each(|number| self.place.remove_run(number));
        self.begin_merge(upkeep);
        Ok(())
    }

    /// Removes the index from the disk until the next commit. A start before that rebuilds it.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub(in crate::pack) fn discard_on_disk(&self) -> Result<()> {
        let _upkeep = self.upkeep.lock();
        self.place.remove_manifest()
    }

    /// Whether a merge is running, or is finished and waits for a commit.
    pub(in crate::pack) fn is_merging(&self) -> bool {
        self.upkeep.lock().merge.is_some()
    }

    /// Whether a merge is finished and waits for a commit.
    pub(in crate::pack) fn has_merged(&self) -> bool {
        self.upkeep.lock().merge.as_ref().is_some_and(Merge::is_finished)
    }

    /// Writes the entries in memory to a new run.
    fn make_run(&self, upkeep: &mut Upkeep) -> Result<()> {
        let number = upkeep.take_number();
        let run = self.write_run(number).inspect_err(|_| self.place.remove_run(number))?;
        let written = {
            let mut state = self.state.write();
            state.runs = state.runs.iter().cloned().chain([Arc::new(run)]).collect();
            let next = Memory::with_capacity(state.memory.len().min(MEMORY_CAPACITY));
            std::mem::replace(&mut state.memory, next)
        };
        // Outside the lock, because dropping takes a while.
        drop(written);
        Ok(())
    }

    fn write_run(&self, number: u64) -> Result<Run> {
        let (file, path) = (self.place.create_run(number)?, self.place.run_path(number));
        let write = || {
            let memory = &self.state.read().memory;
            let mut plan = Plan::default();
            memory.iter().for_each(|(key, said)| plan.note(key, *said));
            let mut writer = RunWriter::new(&file, plan);
            memory.sorted().into_iter().try_for_each(|(key, said)| writer.push(key, said))?;
            writer.finish()
        };
        write().and_then(|_| self.place.sync(&file)).map_err(|error| cannot("write", &path, error))?;
        self.place.open_run(number, file)
    }

    /// Replaces merged runs by the new run, if a merge is finished.
    fn adopt_merged(&self, upkeep: &mut Upkeep) {
        let must_wait = self.state.read().runs.len() >= MAX_RUNS;
        let Some(merge) = upkeep.merge.take_if(|merge| must_wait || merge.is_finished()) else { return };
        let places = merge.places.clone();
        match merge.finish() {
            Ok(merged) => {
                let is_empty = merged.layout().entries() == 0;
                if is_empty {
                    upkeep.retired.push(merged.number());
                }
                let mut state = self.state.write();
                let mut runs = state.runs.to_vec();
                let retired: Vec<_> = runs.splice(places.clone(), (!is_empty).then_some(merged)).collect();
                state.runs = runs.into();
                // The old runs are unmapped after the lock is released.
                drop(state);
                upkeep.retired.extend(retired.iter().map(|run| run.number()));
                upkeep.merge_from = 0;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot merge index runs: lookups are slower until a merge succeeds");
                upkeep.merge_from = places.start + 1;
            }
        }
    }

    fn begin_merge(&self, upkeep: &mut Upkeep) {
        if upkeep.merge.is_some() {
            return;
        }
        let (runs, reopened) = {
            let state = self.state.read();
            (Arc::clone(&state.runs), state.reopened)
        };
        if reopened != upkeep.reopened {
            (upkeep.reopened, upkeep.merge_from) = (reopened, 0);
        }
        let entries: Vec<_> = runs.iter().map(|run| run.layout().entries()).collect();
        let mut from = upkeep.merge_from.min(entries.len());
        let places = loop {
            let Some(due) = merge::due(&entries[from..]) else { return };
            let places = from + due.start..from + due.end;
            if self.place.has_room_for(runs[places.clone()].iter().map(|run| run.file_bytes()).sum()) {
                break places;
            }
            // There may be enough space for a smaller merge.
            from = places.start + 1;
        };
        match Merge::start(&self.place, upkeep.take_number(), &runs, places) {
            Ok(merge) => upkeep.merge = Some(merge),
            Err(error) => tracing::warn!(%error, "cannot start to merge index runs: lookups are slower"),
        }
    }
}

//! Merging several runs into one, in the background.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ipfrs_core::{Error, Result};

use super::cursor::Merged;
use super::layout::Plan;
use super::place::Place;
use super::run::Run;
use super::write::RunWriter;
use crate::pack::lock::cannot;

/// Maximum number of entries of a merged run. A run is mapped as a whole, and a run of this size gains nothing from
/// merging.
const MAX_ENTRIES: usize = 64 * 1024 * 1024;

/// Number of entries after which a merge checks whether it was cancelled.
const LOOK_AFTER_ENTRIES: usize = 4_096;

/// Returns the range of runs to merge, given their numbers of entries from oldest to newest.
///
/// After the merge, every run has more entries than all newer runs together. There are therefore few runs, and an
/// entry is rewritten only when its run at least doubles in size.
pub(super) fn due(entries: &[usize]) -> Option<Range<usize>> {
    let mut newer = 0;
    let mut first = None;
    for (place, entries) in entries.iter().enumerate().rev() {
        if newer + entries > MAX_ENTRIES {
            break;
        }
        if newer > 0 && *entries <= newer {
            first = Some(place);
        }
        newer += entries;
    }
    first.map(|first| first..entries.len())
}

/// Runs that are being merged.
#[derive(Debug)]
pub(super) struct Merge {
    /// Positions of the runs among all runs. The runs before them do not change during the merge.
    pub(super) places: Range<usize>,
    place: Arc<Place>,
    is_unwanted: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Arc<Run>>>>,
}

impl Merge {
    /// Starts to merge the runs at `places` of `runs` into run `number`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(place: &Arc<Place>, number: u64, runs: &[Arc<Run>], places: Range<usize>) -> Result<Self> {
        let is_unwanted = Arc::new(AtomicBool::new(false));
        let work = {
            let (place, is_unwanted, runs) =
                (Arc::clone(place), Arc::clone(&is_unwanted), runs[places.clone()].to_vec());
            // Deletions need not be kept if there is no older run.
            let keeps_deletions = places.start > 0;
            move || {
                write(&place, number, &runs, keeps_deletions, &is_unwanted).inspect_err(|_| place.remove_run(number))
            }
        };
        let thread = thread::Builder::new().name("ipfrs-index".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Error::io("cannot start the index merge thread", error))?;
        Ok(Self { places, place: Arc::clone(place), is_unwanted, thread: Some(thread) })
    }

    /// Whether the merge has ended, so that [`finish`](Self::finish) does not wait.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the new run.
    ///
    /// # Errors
    /// If the run could not be made. The old runs are unchanged.
    pub(super) fn finish(mut self) -> Result<Arc<Run>> {
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(|ended| ended.ok()).unwrap_or_else(|| Err(Error::internal("the index merge thread panicked")))
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        self.is_unwanted.store(true, Ordering::Relaxed);
        if let Some(Ok(Ok(run))) = self.thread.take().map(JoinHandle::join) {
            self.place.remove_run(run.number());
        }
    }
}

fn aborted() -> Error {
    Error::internal("the merge of index runs was aborted")
}

fn write(
    place: &Place,
    number: u64,
    runs: &[Arc<Run>],
    keeps_deletions: bool,
    is_unwanted: &AtomicBool,
) -> Result<Arc<Run>> {
    let mut plan = Plan::default();
    for run in runs {
        if is_unwanted.load(Ordering::Relaxed) {
            return Err(aborted());
        }
        // Damaged entries must not be written with a valid checksum.
        run.verify()?;
        plan.include(run.layout());
    }
    let (file, path) = (place.create_run(number)?, place.run_path(number));
    let failed = |error| cannot("write", &path, error);
    let mut writer = RunWriter::new(&file, plan);
    let mut entries = Merged::new(runs, None)?;
    let mut key = Vec::new();
    let mut count = 0_usize;
    while let Some(said) = entries.next(&mut key)? {
        if said.is_some() || keeps_deletions {
            writer.push(&key, said).map_err(failed)?;
        }
        count += 1;
        if count.is_multiple_of(LOOK_AFTER_ENTRIES) && is_unwanted.load(Ordering::Relaxed) {
            return Err(aborted());
        }
    }
    writer.finish().map_err(failed)?;
    runs.iter().try_for_each(|run| run.check())?;
    place.sync(&file).map_err(failed)?;
    place.open_run(number, file).map(Arc::new)
}

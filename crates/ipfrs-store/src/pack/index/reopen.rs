//! Runs with missing pages. The disk may work again, but the mapping of a run shows zeros in place of pages that could
//! not be read once, so the run is opened again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ipfrs_core::{ErrorKind, Result};

use super::Index;
use super::manifest::NamedRun;
use super::run::Run;

/// Minimum time between two attempts, each of which reads whole runs.
const PAUSE: Duration = if cfg!(test) { Duration::ZERO } else { Duration::from_secs(1) };

impl Index {
    /// Calls `read`, and calls it again if it fails and the runs are others by then. Waits for the disk.
    ///
    /// # Errors
    /// The error of `read`.
    pub(super) fn with_whole_runs<T>(&self, read: impl Fn() -> Result<T>) -> Result<T> {
        let before = Arc::clone(&self.state.read().runs);
        match read() {
            Err(error) if error.kind() == ErrorKind::Corrupt && self.replaces_runs(&before) => read(),
            outcome => outcome,
        }
    }

    /// Opens runs with missing pages again, unless another thread does that or has just done it. Returns whether the
    /// runs are others than `before`.
    fn replaces_runs(&self, before: &Arc<[Arc<Run>]>) -> bool {
        if let Some(mut last) = self.last_reopening.try_lock()
            && last.is_none_or(|last| last.elapsed() >= PAUSE)
        {
            let runs = Arc::clone(&self.state.read().runs);
            for run in runs.iter().filter(|run| run.check().is_err()) {
                match self.reopen(run) {
                    Ok(()) => tracing::warn!(run = run.number(), "an index run could not be read, and is read again"),
                    Err(error) => tracing::warn!(%error, "an index run cannot be read"),
                }
            }
            *last = Some(Instant::now());
        }
        !Arc::ptr_eq(before, &self.state.read().runs)
    }

    /// Opens a run again and verifies all of it.
    ///
    /// # Errors
    /// The file cannot be read, or is not that of the run any more.
    fn reopen(&self, old: &Arc<Run>) -> Result<()> {
        let new = self.place.find_run(old.number())?;
        if NamedRun::of(&new) != NamedRun::of(old) {
            return Err(new.damaged("another program has replaced it"));
        }
        new.load()?;
        new.verify()?;
        let new = Arc::new(new);
        let mut state = self.state.write();
        state.reopened += 1;
        // A merge may have replaced the run meanwhile.
        state.runs = state.runs.iter().map(|run| if Arc::ptr_eq(run, old) { &new } else { run }).cloned().collect();
        Ok(())
    }
}

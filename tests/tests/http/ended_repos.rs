//! Repos of ended gateways, which are removed when nothing writes to them any more.

use std::cell::RefCell;
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use ipfrs_interface::lock_holder;
use tempfile::TempDir;

/// Longest time that a store may take to close.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// A repo that is removed once its store is closed: when the thread creates its next repo, or when the thread ends. At
/// the end of a test, its runtime still runs the gateway, whose last writes would leave files in a directory that is
/// being removed.
pub(crate) struct Repo(Option<TempDir>);

impl Repo {
    pub(crate) fn new(directory: TempDir) -> Self {
        // A loop over many gateways must not hold the disk space of all until the test ends.
        let is_open = |repo: &TempDir| lock_holder(repo.path()).is_some();
        let _ = ENDED.try_with(|ended| ended.0.borrow_mut().retain(is_open));
        Self(Some(directory))
    }

    /// Returns the directory, whose removal is then up to the caller.
    pub(crate) fn into_directory(mut self) -> TempDir {
        self.0.take().expect("it is taken only with the value")
    }
}

impl Deref for Repo {
    type Target = TempDir;

    fn deref(&self) -> &TempDir {
        self.0.as_ref().expect("it is taken only with the value")
    }
}

impl Drop for Repo {
    fn drop(&mut self) {
        if let Some(directory) = self.0.take() {
            // At the end of the thread there is no list any more, and the directory is removed at once.
            let _ = ENDED.try_with(|ended| ended.0.borrow_mut().push(directory));
        }
    }
}

thread_local! {
    /// The thread of a test drops its runtime before its thread-local values.
    static ENDED: Ended = const { Ended(RefCell::new(Vec::new())) };
}

struct Ended(RefCell<Vec<TempDir>>);

impl Drop for Ended {
    fn drop(&mut self) {
        for directory in self.0.get_mut().drain(..) {
            let deadline = Instant::now() + MAX_WAIT;
            while lock_holder(directory.path()).is_some() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

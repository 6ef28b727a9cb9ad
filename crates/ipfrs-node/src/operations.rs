//! Long-running operations: their IDs, their progress and their outcome.
//!
//! Progress is pushed: the worker updates its [`Operation`], which wakes the tasks that watch it.

mod queries;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::events::{EventData, Events, Topic};

/// Maximum number of stored operations, running and ended.
const MAX_OPERATIONS: usize = 10_000;

/// Time for which an operation can be queried after its end.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Maximum length of an ID, in bytes.
const MAX_ID_BYTES: usize = 128;

/// Minimum time between two events about the progress of an operation.
const EVENT_INTERVAL: Duration = Duration::from_millis(250);

/// The rate is averaged over one to two of these windows.
const PACE_WINDOW: Duration = Duration::from_secs(2);

/// ID of an operation: 1 to 128 letters, digits, `-`, `_` and `.`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OperationId(Arc<str>);

impl OperationId {
    /// Generates an ID: 32 hexadecimal digits that cannot be guessed.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the system cannot provide random numbers.
    pub fn random() -> Result<Self> {
        Ok(Self(random_id()?.into()))
    }

    /// Returns the ID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns 128 random bits as hexadecimal digits.
pub(crate) fn random_id() -> Result<String> {
    let mut bits = [0; 16];
    rand::fill(&mut bits).map_err(|_| Error::internal("the system has no random numbers"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bits)))
}

impl FromStr for OperationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !(1..=MAX_ID_BYTES).contains(&text.len()) || !text.bytes().all(is_plain) {
            let shown: String = text.chars().take(MAX_ID_BYTES).collect();
            return Err(Error::invalid(format!(
                "invalid operation ID {shown:?}: use 1 to {MAX_ID_BYTES} letters, digits, \"-\", \"_\" and \".\""
            )));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Upload of a file, in one request or in several.
    Upload,
    /// Import of files and directories.
    Add,
}

impl OperationKind {
    /// Returns the stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Add => "add",
        }
    }
}

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// The operation is running.
    Running,
    /// The operation waits for the client's next request.
    Paused,
    /// The operation succeeded.
    Done {
        /// Content ID of the result.
        cid: Cid,
        /// Bytes of content.
        size: u64,
    },
    /// The operation failed.
    Failed {
        /// Kind of the failure.
        kind: ErrorKind,
        /// Cause of the failure, for people.
        message: String,
    },
}

impl OperationState {
    /// Returns the stable name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Progress of an operation.
#[derive(Debug, Clone)]
pub struct Progress {
    /// ID of the operation.
    pub id: OperationId,
    /// Kind of the operation.
    pub kind: OperationKind,
    /// State of the operation.
    pub state: OperationState,
    /// Bytes of content received so far.
    pub bytes: u64,
    /// Total bytes of content, if known.
    pub total: Option<u64>,
    /// Durable blocks made from these bytes.
    pub blocks: u64,
    /// Number of changes so far. It no longer changes once the operation has ended.
    pub changes: u64,
    pace: Pace,
}

/// Number of bytes received at an instant.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Instant,
    bytes: u64,
}

/// Samples from which the rate is computed.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Start of the work.
    start: Point,
    /// Sample taken one to two windows ago.
    earlier: Point,
    /// Sample taken at most one window ago.
    recent: Point,
    end: Option<Instant>,
}

impl Pace {
    fn from(bytes: u64) -> Self {
        let now = Point { at: Instant::now(), bytes };
        Self { start: now, earlier: now, recent: now, end: None }
    }

    fn advance(&mut self, bytes: u64) {
        if self.recent.at.elapsed() >= PACE_WINDOW {
            self.earlier = self.recent;
            self.recent = Point { at: Instant::now(), bytes };
        }
    }
}

impl Progress {
    /// Returns whether the operation has ended, so that nothing will change any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, OperationState::Done { .. } | OperationState::Failed { .. })
    }

    /// Returns the bytes per second: over the last seconds while the operation runs; after its end, over the time
    /// since it began or last resumed.
    #[must_use]
    pub fn rate_bytes_per_second(&self) -> u64 {
        let (from, until) = match self.pace.end {
            Some(end) => (self.pace.start, end),
            None => (self.pace.earlier, Instant::now()),
        };
        let milliseconds = until.saturating_duration_since(from.at).as_millis().max(1);
        let bytes = u128::from(self.bytes.saturating_sub(from.bytes));
        u64::try_from(bytes * 1_000 / milliseconds).unwrap_or(u64::MAX)
    }

    /// Returns the estimated seconds until the end, if the total is known and the rate is not zero.
    #[must_use]
    pub fn eta_seconds(&self) -> Option<u64> {
        let rate = self.rate_bytes_per_second();
        let left = self.total?.checked_sub(self.bytes)?;
        (self.state == OperationState::Running && rate > 0).then(|| left.div_ceil(rate))
    }
}

/// Handle of a running operation for the worker. Dropping it before the end marks the operation as failed.
#[derive(Debug)]
pub(crate) struct Operation {
    progress: watch::Sender<Progress>,
    cancellation: CancellationToken,
    registry: Operations,
    /// Time of the last event about progress.
    emitted: Mutex<Instant>,
}

impl Operation {
    /// Returns the ID.
    #[must_use]
    pub(crate) fn id(&self) -> OperationId {
        self.progress.borrow().id.clone()
    }

    /// Returns the request to cancel the operation, which the worker has to obey.
    pub(crate) fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Runs `work` until the operation is cancelled.
    ///
    /// # Errors
    /// As `work`; [`ErrorKind::Gone`] if the operation was cancelled before.
    pub(crate) async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let worked = self.cancellation.run_until_cancelled(work).await;
        worked.unwrap_or_else(|| Err(cancelled()))
    }

    /// Reports the total number of bytes received and blocks made so far.
    pub(crate) fn advance(&self, bytes: u64, blocks: u64) {
        self.change(|progress| {
            (progress.bytes, progress.blocks) = (bytes, blocks);
            progress.pace.advance(bytes);
        });
        let mut emitted = self.emitted.lock();
        if emitted.elapsed() >= EVENT_INTERVAL {
            *emitted = Instant::now();
            self.emit();
        }
    }

    /// Reports that the operation waits for its client, which has sent `bytes` so far.
    pub(crate) fn pause(&self, bytes: u64) {
        self.change(|progress| (progress.state, progress.bytes) = (OperationState::Paused, bytes));
        self.emit();
    }

    /// Reports that the operation continues. The pause does not count as working time.
    pub(crate) fn resume(&self) {
        self.change(|progress| {
            progress.state = OperationState::Running;
            progress.pace = Pace::from(progress.bytes);
        });
        self.emit();
    }

    /// Reports success: `size` bytes of content are stored in `blocks` blocks under `cid`.
    pub(crate) fn done(&self, cid: Cid, size: u64, blocks: u64) {
        self.end(OperationState::Done { cid, size }, |progress| (progress.bytes, progress.blocks) = (size, blocks));
    }

    /// Reports that the operation failed with `error`.
    pub(crate) fn fail(&self, error: &Error) {
        let state = OperationState::Failed { kind: error.kind(), message: error.message().to_owned() };
        self.end(state, |_| {});
    }

    fn end(&self, state: OperationState, last: impl FnOnce(&mut Progress)) {
        let has_ended = self.progress.send_if_modified(|progress| {
            if progress.is_over() {
                return false;
            }
            last(progress);
            progress.changes += 1;
            progress.state = state;
            progress.pace.end = Some(Instant::now());
            true
        });
        if has_ended {
            self.registry.0.registered.lock().finished.push_back((Instant::now(), self.id()));
            self.emit();
        }
    }

    /// Emits the current state.
    fn emit(&self) {
        let progress = self.progress.borrow().clone();
        self.registry.0.events.emit(Topic::Operations, [EventData::Operation(progress)]);
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(|progress| {
            progress.changes += 1;
            change(progress);
        });
    }
}

/// The error of an operation that a client has cancelled.
pub(crate) fn cancelled() -> Error {
    Error::cancelled("the operation was cancelled")
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.fail(&Error::new(ErrorKind::Gone, "aborted: the client disconnected, or the daemon stopped"));
    }
}

/// All operations of a node. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    registered: Mutex<Known>,
    /// Notifies watchers when an operation begins.
    begun: watch::Sender<()>,
    events: Events,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<OperationId, Registered>,
    /// Operations that have ended, oldest first.
    finished: VecDeque<(Instant, OperationId)>,
}

/// A known operation.
#[derive(Debug, Clone)]
struct Registered {
    progress: watch::Receiver<Progress>,
    cancellation: CancellationToken,
}

impl Known {
    /// Removes operations that ended more than [`REMEMBERED`] ago.
    fn forget_old(&mut self) {
        while self.finished.front().is_some_and(|(end, _)| end.elapsed() >= REMEMBERED) {
            self.forget_oldest();
        }
    }

    /// Removes the operation that ended first. Returns `false` if none has ended.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.finished.pop_front();
        oldest.is_some_and(|(_, id)| self.by_id.remove(&id).is_some())
    }
}

impl Operations {
    /// Creates an empty registry, which emits `events`.
    pub(crate) fn new(events: Events) -> Self {
        Self(Arc::new(Shared { events, ..Shared::default() }))
    }

    /// Begins an operation of which `bytes` of `total` bytes were received before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the ID is in use, [`ErrorKind::RateLimited`] if too many operations are running.
    pub(crate) fn begin(
        &self,
        id: OperationId,
        kind: OperationKind,
        bytes: u64,
        total: Option<u64>,
    ) -> Result<Operation> {
        let mut registered = self.0.registered.lock();
        registered.forget_old();
        if registered.by_id.contains_key(&id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("the operation ID {id} is in use: choose another, or omit it"),
            ));
        }
        if registered.by_id.len() >= MAX_OPERATIONS && !registered.forget_oldest() {
            return Err(Error::new(
                ErrorKind::RateLimited,
                format!("{MAX_OPERATIONS} operations are in progress: try again later"),
            ));
        }
        let (state, pace) = (OperationState::Running, Pace::from(bytes));
        let progress = Progress { id: id.clone(), kind, state, bytes, total, blocks: 0, changes: 0, pace };
        let (sender, receiver) = watch::channel(progress);
        let cancellation = CancellationToken::new();
        registered.by_id.insert(id, Registered { progress: receiver, cancellation: cancellation.clone() });
        drop(registered);
        self.0.begun.send_replace(());
        let emitted = Mutex::new(Instant::now());
        let operation = Operation { progress: sender, cancellation, registry: self.clone(), emitted };
        operation.emit();
        Ok(operation)
    }

    fn find(&self, id: &OperationId) -> Option<Registered> {
        let mut registered = self.0.registered.lock();
        registered.forget_old();
        registered.by_id.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(operations: &Operations, id: &str) -> Result<Operation> {
        operations.begin(id.parse().unwrap(), OperationKind::Upload, 0, None)
    }

    #[test]
    fn operation_id_accepts_only_safe_characters() {
        for bad in ["", "a b", "a/b", "é", "a\nb", &"a".repeat(129)] {
            assert!(bad.parse::<OperationId>().is_err(), "{bad:?}");
        }
        assert_eq!("My_upload-1.bin".parse::<OperationId>().unwrap().as_str(), "My_upload-1.bin");
        assert_ne!(OperationId::random().unwrap(), OperationId::random().unwrap());
    }

    #[test]
    fn ended_operations_are_evicted_at_the_limit() {
        let operations = Operations::default();
        let mut running: Vec<_> = (0..MAX_OPERATIONS).map(|n| begin(&operations, &n.to_string()).unwrap()).collect();
        assert_eq!(begin(&operations, "more").unwrap_err().kind(), ErrorKind::RateLimited);
        assert_eq!(begin(&operations, "7").unwrap_err().kind(), ErrorKind::Conflict);
        drop(running.swap_remove(7));
        assert!(operations.find(&"7".parse().unwrap()).unwrap().progress.borrow().is_over(), "dropped is failed");
        drop(running.swap_remove(8));
        let _one = begin(&operations, "one").unwrap();
        assert!(operations.find(&"7".parse().unwrap()).is_none(), "the oldest finished operation is removed");
        assert!(operations.find(&"8".parse().unwrap()).is_some());
        let _two = begin(&operations, "two").unwrap();
        assert_eq!(begin(&operations, "three").unwrap_err().kind(), ErrorKind::RateLimited);
    }

    #[test]
    fn operation_reports_its_end_once() {
        let operations = Operations::default();
        let operation = begin(&operations, "x").unwrap();
        operation.advance(10, 1);
        operation.done(Cid::default(), 20, 3);
        operation.fail(&Error::internal("too late"));
        drop(operation);
        let known = operations.find(&"x".parse().unwrap()).unwrap();
        let progress = known.progress.borrow();
        assert_eq!(progress.state, OperationState::Done { cid: Cid::default(), size: 20 });
        assert_eq!((progress.bytes, progress.blocks, progress.changes), (20, 3, 2));
    }
}

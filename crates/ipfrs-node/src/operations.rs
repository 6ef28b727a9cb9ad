//! Operations that take a while: who they are, how far they are, how they ended.
//!
//! Nothing polls: whoever works tells its [`Operation`] what it has done, and whoever watches is woken by that.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::Node;

/// Most operations that are known, running and over.
const MAX_OPERATIONS: usize = 10_000;

/// How long an operation that is over can still be asked for.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Longest ID.
const MAX_ID_BYTES: usize = 128;

/// The pace is taken over one to two of these.
const PACE_WINDOW: Duration = Duration::from_secs(2);

/// The name of an operation: 1 to 128 letters, digits, `-`, `_` and `.`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OperationId(Arc<str>);

impl OperationId {
    /// A new one: 32 hexadecimal digits that nobody can guess.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the system has no random numbers.
    pub fn random() -> Result<Self> {
        Ok(Self(random_id()?.into()))
    }

    /// The ID as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// 128 random bits as hexadecimal digits.
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

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Takes in a file, in one request or in several.
    Upload,
    /// Imports files and directories.
    Add,
}

impl OperationKind {
    /// The stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Add => "add",
        }
    }
}

/// Where an operation is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// Work is being done.
    Running,
    /// Waits for the client's next request.
    Paused,
    /// Ended well.
    Done {
        /// What was made.
        cid: Cid,
        /// Bytes of content.
        size: u64,
    },
    /// Ended without what it was for.
    Failed {
        /// Kind of the failure.
        kind: ErrorKind,
        /// Why, for a person.
        message: String,
    },
}

/// How far an operation is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Which one.
    pub id: OperationId,
    /// What it does.
    pub kind: OperationKind,
    /// Where it is.
    pub state: OperationState,
    /// Bytes of content that were taken in.
    pub bytes: u64,
    /// Bytes of content in all, where that is known.
    pub total: Option<u64>,
    /// Blocks that were made of them and are durable.
    pub blocks: u64,
    /// How often this has changed. The last number stays the last.
    pub changes: u64,
    pace: Pace,
}

/// Bytes at an instant.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Instant,
    bytes: u64,
}

/// From what the rate is taken.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Where the work began.
    start: Point,
    /// One to two windows ago.
    earlier: Point,
    /// Up to one window ago.
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
    /// Whether nothing will change any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, OperationState::Done { .. } | OperationState::Failed { .. })
    }

    /// Bytes per second: over the last seconds while it runs; when it is over, since it began or last went on.
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

    /// Seconds until the end at this rate, where the end is known and something moves.
    #[must_use]
    pub fn eta_seconds(&self) -> Option<u64> {
        let rate = self.rate_bytes_per_second();
        let left = self.total?.checked_sub(self.bytes)?;
        (self.state == OperationState::Running && rate > 0).then(|| left.div_ceil(rate))
    }
}

/// One running operation. Whoever has it works on it; when it is dropped before its end, the operation has failed.
#[derive(Debug)]
pub(crate) struct Operation {
    progress: watch::Sender<Progress>,
    registry: Operations,
}

impl Operation {
    /// Its ID.
    #[must_use]
    pub(crate) fn id(&self) -> OperationId {
        self.progress.borrow().id.clone()
    }

    /// Tells how far it is: bytes that were taken in and blocks that were made, in all.
    pub(crate) fn advance(&self, bytes: u64, blocks: u64) {
        self.change(|progress| {
            (progress.bytes, progress.blocks) = (bytes, blocks);
            progress.pace.advance(bytes);
        });
    }

    /// Tells that it waits for its client, which has sent `bytes` so far.
    pub(crate) fn pause(&self, bytes: u64) {
        self.change(|progress| (progress.state, progress.bytes) = (OperationState::Paused, bytes));
    }

    /// Tells that it goes on. The time since it paused does not count as work.
    pub(crate) fn resume(&self) {
        self.change(|progress| {
            progress.state = OperationState::Running;
            progress.pace = Pace::from(progress.bytes);
        });
    }

    /// Tells that it ended well: `size` bytes of content are in `blocks` blocks under `cid`.
    pub(crate) fn done(&self, cid: Cid, size: u64, blocks: u64) {
        self.end(OperationState::Done { cid, size }, |progress| (progress.bytes, progress.blocks) = (size, blocks));
    }

    /// Tells that it failed, and why.
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
            self.registry.0.known.lock().over.push_back((Instant::now(), self.id()));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_modify(|progress| {
            progress.changes += 1;
            change(progress);
        });
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.fail(&Error::new(ErrorKind::Gone, "given up before its end: the client went away, or the daemon stopped"));
    }
}

/// All operations of a node. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operations(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<Known>,
    /// Changes when an operation begins.
    begun: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<OperationId, watch::Receiver<Progress>>,
    /// Those that are over, oldest first.
    over: VecDeque<(Instant, OperationId)>,
}

impl Known {
    /// Forgets what was over long ago.
    fn forget_old(&mut self) {
        while self.over.front().is_some_and(|(end, _)| end.elapsed() >= REMEMBERED) {
            self.forget_oldest();
        }
    }

    /// Forgets the operation that has been over for longest; false when none is over.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.over.pop_front();
        oldest.is_some_and(|(_, id)| self.by_id.remove(&id).is_some())
    }
}

impl Operations {
    /// Begins an operation for which `bytes` of `total` were taken in before.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the ID is that of another one, [`ErrorKind::RateLimited`] when too many run.
    pub(crate) fn begin(
        &self,
        id: OperationId,
        kind: OperationKind,
        bytes: u64,
        total: Option<u64>,
    ) -> Result<Operation> {
        let mut known = self.0.known.lock();
        known.forget_old();
        if known.by_id.contains_key(&id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("the operation ID {id} is taken: choose another, or leave it out"),
            ));
        }
        if known.by_id.len() >= MAX_OPERATIONS && !known.forget_oldest() {
            return Err(Error::new(
                ErrorKind::RateLimited,
                format!("{MAX_OPERATIONS} operations are under way: try again later"),
            ));
        }
        let (state, pace) = (OperationState::Running, Pace::from(bytes));
        let progress = Progress { id: id.clone(), kind, state, bytes, total, blocks: 0, changes: 0, pace };
        let (sender, receiver) = watch::channel(progress);
        known.by_id.insert(id, receiver);
        drop(known);
        self.0.begun.send_replace(());
        Ok(Operation { progress: sender, registry: self.clone() })
    }

    fn find(&self, id: &OperationId) -> Option<watch::Receiver<Progress>> {
        let mut known = self.0.known.lock();
        known.forget_old();
        known.by_id.get(id).cloned()
    }
}

impl Node {
    /// The progress of an operation, from its current state to its end. One that is not known is waited for, so that a
    /// client that chose the ID can watch from the first byte.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when it has not begun within `patience`, or was over for more than five minutes.
    pub async fn watch_operation(&self, id: &OperationId, patience: Duration) -> Result<watch::Receiver<Progress>> {
        let operations = &self.inner.operations;
        let mut begun = operations.0.begun.subscribe();
        let found = async {
            loop {
                if let Some(progress) = operations.find(id) {
                    return Some(progress);
                }
                begun.changed().await.ok()?;
            }
        };
        let found = timeout(patience, found).await.ok().flatten();
        found.ok_or_else(|| {
            Error::not_found(format!(
                "no operation {id}: it has not begun within {} s, or ended more than {} s ago",
                patience.as_secs(),
                REMEMBERED.as_secs()
            ))
        })
    }

    /// The operations that are not over, in no order.
    #[must_use]
    pub fn operations(&self) -> Vec<Progress> {
        let known = self.inner.operations.0.known.lock();
        known.by_id.values().map(|progress| progress.borrow().clone()).filter(|progress| !progress.is_over()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(operations: &Operations, id: &str) -> Result<Operation> {
        operations.begin(id.parse().unwrap(), OperationKind::Upload, 0, None)
    }

    #[test]
    fn ids_are_plain_words() {
        for bad in ["", "a b", "a/b", "é", "a\nb", &"a".repeat(129)] {
            assert!(bad.parse::<OperationId>().is_err(), "{bad:?}");
        }
        assert_eq!("My_upload-1.bin".parse::<OperationId>().unwrap().as_str(), "My_upload-1.bin");
        assert_ne!(OperationId::random().unwrap(), OperationId::random().unwrap());
    }

    #[test]
    fn the_number_of_operations_is_bounded_and_those_that_are_over_make_room() {
        let operations = Operations::default();
        let mut running: Vec<_> = (0..MAX_OPERATIONS).map(|n| begin(&operations, &n.to_string()).unwrap()).collect();
        assert_eq!(begin(&operations, "more").unwrap_err().kind(), ErrorKind::RateLimited);
        assert_eq!(begin(&operations, "7").unwrap_err().kind(), ErrorKind::Conflict);
        drop(running.swap_remove(7));
        assert!(operations.find(&"7".parse().unwrap()).unwrap().borrow().is_over(), "dropped is failed");
        drop(running.swap_remove(8));
        let _one = begin(&operations, "one").unwrap();
        assert!(operations.find(&"7".parse().unwrap()).is_none(), "the oldest that was over is forgotten");
        assert!(operations.find(&"8".parse().unwrap()).is_some());
        let _two = begin(&operations, "two").unwrap();
        assert_eq!(begin(&operations, "three").unwrap_err().kind(), ErrorKind::RateLimited);
    }

    #[test]
    fn the_end_is_told_once_and_stays() {
        let operations = Operations::default();
        let operation = begin(&operations, "x").unwrap();
        operation.advance(10, 1);
        operation.done(Cid::default(), 20, 3);
        operation.fail(&Error::internal("too late"));
        drop(operation);
        let progress = operations.find(&"x".parse().unwrap()).unwrap();
        let progress = progress.borrow();
        assert_eq!(progress.state, OperationState::Done { cid: Cid::default(), size: 20 });
        assert_eq!((progress.bytes, progress.blocks, progress.changes), (20, 3, 2));
    }
}

//! The log of a topic: its latest events, in batches that watchers share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Event, EventData, RESUMABLE};

/// Maximum number of events in a log.
const MAX_EVENTS: usize = 16_384;

/// Maximum number of events in a batch.
const MAX_BATCH_EVENTS: usize = 1_024;

/// Successive events of one topic, which are delivered together.
#[derive(Debug)]
pub struct EventBatch {
    /// The events, in order.
    pub events: Box<[Event]>,
    encoded: OnceLock<EncodedEvents>,
}

/// Events as a front-end sends them.
#[derive(Debug, Clone)]
pub struct EncodedEvents {
    /// The events one after another.
    pub bytes: Bytes,
    /// End of each event in `bytes`.
    pub ends: Box<[usize]>,
}

impl EventBatch {
    fn new(events: Vec<Event>) -> Arc<Self> {
        Arc::new(Self { events: events.into(), encoded: OnceLock::new() })
    }

    /// Returns the events as `encode` makes them. It is called for the first of all watchers only, so there can be only
    /// one encoding in a process.
    pub fn encoded(&self, encode: impl FnOnce(&[Event]) -> EncodedEvents) -> &EncodedEvents {
        self.encoded.get_or_init(|| encode(&self.events))
    }

    pub(super) fn first(&self) -> u64 {
        self.events.first().map_or(0, |event| event.seq)
    }

    pub(super) fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq)
    }
}

/// Events of one topic.
#[derive(Debug)]
pub(super) struct TopicLog {
    is_recorded: AtomicBool,
    watchers: AtomicUsize,
    state: Mutex<State>,
    /// Number of the last event that can be delivered.
    delivered: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// Number of the last event.
    last: u64,
    /// Events that are not in a batch yet.
    pending: Vec<Event>,
    batches: VecDeque<Arc<EventBatch>>,
    /// Number of events in `batches`.
    recorded: usize,
    /// Time at which the last watcher left.
    unwatched_since: Instant,
}

impl Default for TopicLog {
    fn default() -> Self {
        let state = State {
            last: 0,
            pending: Vec::new(),
            batches: VecDeque::new(),
            recorded: 0,
            unwatched_since: Instant::now(),
        };
        Self {
            is_recorded: AtomicBool::default(),
            watchers: AtomicUsize::default(),
            state: Mutex::new(state),
            delivered: watch::Sender::new(0),
        }
    }
}

/// Result of reading a log.
pub(super) enum Read {
    /// The batch with the next event.
    Batch(Arc<EventBatch>),
    /// The next events are no longer there. The log begins after this one.
    LostUpTo(u64),
    /// No more events.
    End,
}

impl TopicLog {
    pub(super) fn is_recorded(&self) -> bool {
        self.is_recorded.load(Ordering::Relaxed)
    }

    /// Counts events that are not recorded.
    pub(super) fn count(&self, events: u64) {
        let mut state = self.state.lock();
        // A watcher may have come since the caller looked. Batches have no gaps, so the gap is between two of them.
        state.seal();
        state.last += events;
    }

    /// Appends events. Returns whether they have to be delivered.
    pub(super) fn append(&self, events: impl IntoIterator<Item = EventData>) -> bool {
        let events = events.into_iter();
        let mut state = self.state.lock();
        if !self.is_recorded() {
            state.last += events.count() as u64;
            return false;
        }
        let (time, before) = (SystemTime::now(), state.last);
        for data in events {
            state.last += 1;
            let seq = state.last;
            state.pending.push(Event { seq, time, data });
            // A burst must not use more memory than the log.
            if state.pending.len() == MAX_BATCH_EVENTS {
                state.seal();
            }
        }
        state.last > before
    }

    /// Makes all events available to watchers. Stops recording if there was no watcher for a long time.
    pub(super) fn deliver(&self) {
        let last = {
            let mut state = self.state.lock();
            state.seal();
            if self.watchers.load(Ordering::Relaxed) == 0 && state.unwatched_since.elapsed() >= RESUMABLE {
                self.is_recorded.store(false, Ordering::Relaxed);
                (state.batches, state.recorded) = (VecDeque::new(), 0);
            }
            state.last
        };
        self.delivered.send_if_modified(|delivered| std::mem::replace(delivered, last) != last);
    }

    /// Registers a watcher and begins to record. Returns the number of the last event so far, and the channel that
    /// wakes the watcher.
    pub(super) fn enter(&self) -> (u64, watch::Receiver<u64>) {
        let state = self.state.lock();
        self.watchers.fetch_add(1, Ordering::Relaxed);
        self.is_recorded.store(true, Ordering::Relaxed);
        (state.last, self.delivered.subscribe())
    }

    /// Removes a watcher.
    pub(super) fn leave(&self) {
        let mut state = self.state.lock();
        self.watchers.fetch_sub(1, Ordering::Relaxed);
        state.unwatched_since = Instant::now();
    }

    /// Wakes all watchers, although there may be nothing for them.
    pub(super) fn wake(&self) {
        self.delivered.send_modify(|_| {});
    }

    pub(super) fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Returns the batch with the event after `seen`.
    pub(super) fn read(&self, seen: u64) -> Read {
        let state = self.state.lock();
        let at = state.batches.partition_point(|batch| batch.last() <= seen);
        match state.batches.get(at) {
            Some(batch) if batch.first() <= seen + 1 => Read::Batch(Arc::clone(batch)),
            Some(batch) => Read::LostUpTo(batch.first() - 1),
            // Events that happened while nothing was recorded.
            None if seen < state.last && state.pending.is_empty() => Read::LostUpTo(state.last),
            None => Read::End,
        }
    }
}

impl State {
    /// Puts the pending events into a batch.
    fn seal(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let batch = EventBatch::new(std::mem::take(&mut self.pending));
        self.recorded += batch.events.len();
        self.batches.push_back(batch);
        while self.recorded > MAX_EVENTS {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.recorded -= oldest.events.len();
        }
    }
}

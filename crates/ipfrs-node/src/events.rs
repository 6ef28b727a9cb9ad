//! Events: what happened to blocks, pins, operations, gc and retrieval, for those who watch.
//!
//! Each topic has a [`log`](self::log) of its latest events, which all watchers share. A writer appends to it and never
//! waits: a watcher that is too slow learns how many events it missed. Without watchers, an event is only counted.

mod log;
mod watch;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::PinMode;
use tokio::sync::{Mutex, Notify};

use self::log::TopicLog;
use crate::{GcReport, Progress};

pub use self::log::{EncodedEvents, EventBatch};
pub use self::watch::{Delivered, EventWatch};

/// Time between two deliveries to one watcher, so that many events are delivered together.
const PACE: Duration = Duration::from_millis(20);

/// Additional time for each watcher: a delivery to thousands takes a bounded share of a processor.
const PACE_PER_WATCHER: Duration = Duration::from_micros(50);

/// Maximum time between two deliveries.
const MAX_PACE: Duration = Duration::from_millis(500);

/// Time for which events are still recorded after the last watcher has left, so that it can return and resume.
const RESUMABLE: Duration = Duration::from_secs(300);

/// Subject of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Blocks that were stored or removed.
    Blocks,
    /// Pins that were created or removed.
    Pins,
    /// Operations: their progress and their end.
    Operations,
    /// Garbage collections.
    Gc,
    /// Content that was fetched from other servers and peers.
    Retrieval,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 5] = [Self::Blocks, Self::Pins, Self::Operations, Self::Gc, Self::Retrieval];

    /// Returns the stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Pins => "pins",
            Self::Operations => "operations",
            Self::Gc => "gc",
            Self::Retrieval => "retrieval",
        }
    }
}

impl FromStr for Topic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no topic {text:?}: the topics are {names}"))
        })
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Content of an event.
#[derive(Debug, Clone)]
pub enum EventData {
    /// A block was stored that was not in the store before.
    BlockAdded {
        /// Content ID of the block.
        cid: Cid,
        /// Bytes of the block.
        size: u64,
    },
    /// A block was removed.
    BlockRemoved {
        /// Content ID of the block.
        cid: Cid,
    },
    /// A pin was created or renamed.
    PinAdded {
        /// Content ID that is pinned.
        cid: Cid,
        /// Scope of the pin.
        mode: PinMode,
        /// Name of the pin, which may be empty.
        name: String,
    },
    /// A pin was removed.
    PinRemoved {
        /// Content ID that was pinned.
        cid: Cid,
    },
    /// An operation began, advanced or ended.
    Operation(Progress),
    /// A garbage collection began, advanced or ended.
    Gc(GcPhase),
    /// The retrieval of a root ended: all requests that needed it did.
    #[cfg(feature = "retrieval")]
    Retrieved(ipfrs_retrieval::Ended),
}

/// Phase of a garbage collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GcPhase {
    /// The run has begun.
    Started,
    /// Number of blocks that are known to be kept so far.
    Marked(u64),
    /// Number of blocks in the store that were examined so far.
    Swept(u64),
    /// The store reclaims the space of the removed blocks.
    Compacting,
    /// The run succeeded.
    Done(GcReport),
    /// The run failed.
    Failed {
        /// Kind of the failure.
        kind: ErrorKind,
        /// Cause of the failure, for people.
        message: String,
    },
}

/// An event with its number and time.
#[derive(Debug, Clone)]
pub struct Event {
    /// Number of the event in its topic, from 1 without gaps.
    pub seq: u64,
    /// Time of the event.
    pub time: SystemTime,
    /// Content of the event.
    pub data: EventData,
}

/// The logs of all topics. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Arc<Logs>);

#[derive(Debug)]
struct Logs {
    logs: [TopicLog; Topic::ALL.len()],
    /// Identifies this process: numbers of another one mean nothing here.
    instance: u64,
    /// Notified when there is something to deliver.
    wake: Arc<Notify>,
    /// Whether the task that delivers is running.
    is_delivering: AtomicBool,
    /// Held while pins change, so that their events have the same order.
    pin_order: Mutex<()>,
}

impl Default for Logs {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let instance = u64::try_from(since_epoch.as_micros()).unwrap_or_default();
        Self {
            logs: Default::default(),
            instance,
            wake: Arc::default(),
            is_delivering: AtomicBool::default(),
            pin_order: Mutex::default(),
        }
    }
}

impl Events {
    fn log(&self, topic: Topic) -> &TopicLog {
        &self.0.logs[topic as usize]
    }

    /// Whether events of a topic are recorded. Otherwise [`count`](Self::count) suffices.
    pub(crate) fn are_recorded(&self, topic: Topic) -> bool {
        self.log(topic).is_recorded()
    }

    /// Returns the lock for changes of pins.
    pub(crate) fn pin_order(&self) -> &Mutex<()> {
        &self.0.pin_order
    }

    /// Counts events that are not recorded.
    pub(crate) fn count(&self, topic: Topic, events: usize) {
        self.log(topic).count(events as u64);
    }

    /// Appends events to the log of a topic. Never waits.
    pub(crate) fn emit(&self, topic: Topic, events: impl IntoIterator<Item = EventData>) {
        if self.log(topic).append(events) {
            self.0.wake.notify_one();
        }
    }
}

impl Logs {
    /// Makes all events available to watchers. Returns the time until the next delivery, or `None` if nothing is
    /// recorded any more.
    fn deliver(&self) -> Option<Duration> {
        self.logs.iter().for_each(TopicLog::deliver);
        let watchers: usize = self.logs.iter().map(TopicLog::watchers).sum();
        let pace = PACE + PACE_PER_WATCHER.saturating_mul(u32::try_from(watchers).unwrap_or(u32::MAX));
        self.logs.iter().any(TopicLog::is_recorded).then(|| pace.min(MAX_PACE))
    }
}

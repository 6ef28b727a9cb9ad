//! Watching a topic, and the task that delivers events to watchers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use ipfrs_core::{Error, Result};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::log::{EventBatch, Read};
use super::{Event, Events, Logs, RESUMABLE, Topic};
use crate::Node;

/// The events of a topic for one watcher.
#[derive(Debug)]
pub struct EventWatch {
    topic: Topic,
    events: Events,
    /// Number of the last event that the watcher has received.
    seen: u64,
    changes: watch::Receiver<u64>,
}

/// A delivery to a watcher.
#[derive(Debug)]
pub enum Delivered {
    /// Events from this index of a batch on.
    Events(Arc<EventBatch>, usize),
    /// Number of events that are lost, because the watcher was too slow or was away for too long.
    Lagged(u64),
}

impl Delivered {
    /// Returns the delivered events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        match self {
            Self::Events(batch, first) => &batch.events[*first..],
            Self::Lagged(_) => &[],
        }
    }
}

impl EventWatch {
    /// Returns the number of the last event that was delivered, or that happened before the watch.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Waits for the next events. Dropping the future loses none.
    pub async fn next(&mut self) -> Delivered {
        loop {
            self.events.keep_delivering();
            // Marked as seen before reading: later events wake this task.
            self.changes.borrow_and_update();
            match self.events.log(self.topic).read(self.seen) {
                Read::Batch(batch) => {
                    let first = usize::try_from(self.seen + 1 - batch.first()).unwrap_or(usize::MAX);
                    self.seen = batch.last();
                    return Delivered::Events(batch, first);
                }
                Read::LostUpTo(last) => {
                    let missed = last - self.seen;
                    self.seen = last;
                    return Delivered::Lagged(missed);
                }
                // The sender cannot be gone: it belongs to the log.
                Read::End => drop(self.changes.changed().await),
            }
        }
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        self.events.log(self.topic).leave();
    }
}

impl Node {
    /// Watches a topic from now on, or with `after` from the event that follows this number. Must be called within a
    /// Tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `after` is larger than the number of the last event:
    /// numbers begin anew with the process, see [`events_instance`](Self::events_instance).
    pub fn watch_events(&self, topic: Topic, after: Option<u64>) -> Result<EventWatch> {
        let events = self.inner.events.clone();
        let (last, changes) = events.log(topic).enter();
        let watch = EventWatch { topic, events, seen: after.unwrap_or(last), changes };
        match after {
            Some(after) if after > last => Err(Error::invalid(format!(
                "after = {after}: the last event of the topic {topic} has the number {last}, so omit it"
            ))),
            _ => Ok(watch),
        }
    }

    /// Returns an identifier of this process. Numbers of events mean nothing in another one.
    #[must_use]
    pub fn events_instance(&self) -> String {
        format!("{:x}", self.inner.events.0.instance)
    }
}

impl Events {
    /// Starts the task that delivers, unless it is running.
    fn keep_delivering(&self) {
        let logs = &self.0;
        if !logs.is_delivering.load(Ordering::Relaxed) && !logs.is_delivering.swap(true, Ordering::Relaxed) {
            tokio::spawn(deliver(Delivery(Arc::downgrade(logs)), Arc::clone(&logs.wake)));
        }
    }
}

/// The right to deliver. Whatever ends the task, a watcher starts it again.
struct Delivery(Weak<Logs>);

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(logs) = self.0.upgrade() else { return };
        logs.is_delivering.store(false, Ordering::Relaxed);
        logs.logs.iter().for_each(super::TopicLog::wake);
    }
}

/// Delivers events until a topic has had no watcher for a long time: the first event at once, later ones together.
async fn deliver(delivery: Delivery, wake: Arc<tokio::sync::Notify>) {
    while let Some(pace) = delivery.0.upgrade().and_then(|logs| logs.deliver()) {
        sleep(pace).await;
        // Without events, the task checks from time to time whether there are watchers.
        let _ = timeout(RESUMABLE, wake.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventData;
    use super::*;
    use ipfrs_core::Cid;

    fn added(count: u64) -> impl Iterator<Item = EventData> {
        (0..count).map(|size| EventData::BlockAdded { cid: Cid::default(), size })
    }

    fn watch(events: &Events, after: Option<u64>) -> EventWatch {
        let (last, changes) = events.log(Topic::Blocks).enter();
        EventWatch { topic: Topic::Blocks, events: events.clone(), seen: after.unwrap_or(last), changes }
    }

    #[tokio::test(start_paused = true)]
    async fn watchers_get_every_event_once_and_in_order() {
        let events = Events::default();
        events.emit(Topic::Blocks, added(5));
        assert!(!events.are_recorded(Topic::Blocks));
        let mut first = watch(&events, None);
        assert_eq!(first.seen(), 5);
        for _ in 0..10 {
            events.emit(Topic::Blocks, added(700));
        }
        let mut seqs = Vec::new();
        while seqs.len() < 7_000 {
            seqs.extend(first.next().await.events().iter().map(|event| event.seq));
        }
        assert_eq!(seqs, (6..7_006).collect::<Vec<_>>());
        // One that comes later resumes in the middle of a batch.
        let mut second = watch(&events, Some(1_100));
        assert_eq!(second.next().await.events()[0].seq, 1_101);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_watchers_learn_how_much_they_missed() {
        let events = Events::default();
        let mut slow = watch(&events, None);
        events.emit(Topic::Blocks, added(100_000));
        let Delivered::Lagged(missed) = slow.next().await else { panic!() };
        assert!((82_000..=84_000).contains(&missed), "{missed}");
        assert_eq!(slow.next().await.events()[0].seq, missed + 1);
        // Events before the first watcher.
        let fresh = Events::default();
        fresh.count(Topic::Blocks, 9);
        assert!(matches!(watch(&fresh, Some(4)).next().await, Delivered::Lagged(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn watchers_that_return_resume() {
        let events = Events::default();
        let mut first = watch(&events, None);
        events.emit(Topic::Blocks, added(1));
        assert_eq!(first.next().await.events().len(), 1);
        drop(first);
        events.emit(Topic::Blocks, added(1));
        assert!(events.are_recorded(Topic::Blocks));
        assert_eq!(watch(&events, Some(1)).next().await.events()[0].seq, 2);
    }
}

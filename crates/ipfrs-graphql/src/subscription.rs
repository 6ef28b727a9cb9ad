//! Subscriptions.

#![allow(clippy::unused_async, reason = "the macro makes fields of asynchronous functions")]

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::{Context, ErrorExtensions, SimpleObject};
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, timestamp};
use ipfrs_middleware::Lifecycle;
use ipfrs_node::{Delivered, Event, EventData, GcPhase, Topic};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::node;
use crate::error::{FieldResult, LAGGED, failed};
use crate::scalars::{Cid, Long};
use crate::types::operation::Operation;
use crate::types::pin::PinType;
use crate::types::store::Bandwidth;

/// Time for which an operation with a chosen ID may begin after the subscription.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Root of subscriptions.
pub(crate) struct Subscription;

/// A block that was stored.
#[derive(SimpleObject)]
struct BlockAdded {
    /// Number of the event.
    seq: Long,
    /// Time of the event (RFC 3339).
    time: String,
    /// Content ID of the block.
    cid: Cid,
    /// Number of bytes.
    size: Long,
}

/// A pin that was created or removed.
#[derive(SimpleObject)]
struct PinChanged {
    /// Number of the event.
    seq: Long,
    /// Time of the event (RFC 3339).
    time: String,
    /// Content ID.
    cid: Cid,
    /// Whether it is pinned now.
    is_pinned: bool,
    /// Scope of the pin; null if it was removed.
    #[graphql(name = "type")]
    pin_type: Option<PinType>,
    /// Name of the pin.
    name: Option<String>,
}

/// Progress of a garbage collection.
#[derive(SimpleObject)]
struct GcProgress {
    /// Number of the event.
    seq: Long,
    /// Time of the event (RFC 3339).
    time: String,
    /// Phase of the run: started, marked, swept, compacting, done or failed.
    phase: &'static str,
    /// Number of blocks that are kept (marked), examined (swept) or removed (done).
    blocks: Option<Long>,
    /// Bytes of disk space that were reclaimed (done).
    freed_bytes: Option<Long>,
    /// Cause of the failure.
    error: Option<String>,
}

/// Events of the node. A client that is too slow gets an error with the code lagged, and then later events.
#[async_graphql::Subscription]
impl Subscription {
    /// Blocks that are stored and were not in the store before.
    async fn block_added(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Begins behind the event with this number, which may be long ago.")] after: Option<Long>,
        #[graphql(desc = "The version.instance that the number came from.")] instance: Option<String>,
    ) -> FieldResult<impl Stream<Item = FieldResult<BlockAdded>> + use<>> {
        let added = |event: &Event| match &event.data {
            EventData::BlockAdded { cid, size } => Some(BlockAdded {
                seq: Long(event.seq),
                time: timestamp::format_milliseconds(event.time),
                cid: Cid(*cid),
                size: Long(*size),
            }),
            _ => None,
        };
        events(context, Topic::Blocks, Resume { after, instance }, added)
    }

    /// Pins that are created or removed.
    async fn pin_changed(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only the pins of this content ID.")] cid: Option<Cid>,
        #[graphql(desc = "Begins behind the event with this number, which may be long ago.")] after: Option<Long>,
        #[graphql(desc = "The version.instance that the number came from.")] instance: Option<String>,
    ) -> FieldResult<impl Stream<Item = FieldResult<PinChanged>> + use<>> {
        let changed = move |event: &Event| {
            let (seq, time) = (Long(event.seq), timestamp::format_milliseconds(event.time));
            let change = match &event.data {
                EventData::PinAdded { cid, mode, name } => {
                    let (pin_type, name) = (Some((*mode).into()), Some(name.clone()));
                    PinChanged { seq, time, cid: Cid(*cid), is_pinned: true, pin_type, name }
                }
                EventData::PinRemoved { cid } => {
                    PinChanged { seq, time, cid: Cid(*cid), is_pinned: false, pin_type: None, name: None }
                }
                _ => return None,
            };
            cid.is_none_or(|cid| cid == change.cid).then_some(change)
        };
        events(context, Topic::Pins, Resume { after, instance }, changed)
    }

    /// Progress of operations: of one, from its current state to its end, or of all.
    async fn operation_progress(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "ID of the operation, which may begin within a minute.")] id: Option<String>,
    ) -> FieldResult<impl Stream<Item = FieldResult<Operation>> + use<>> {
        let Some(id) = id else {
            let operation = |event: &Event| match &event.data {
                EventData::Operation(progress) => Some(Operation(progress.clone())),
                _ => None,
            };
            return Ok(events(context, Topic::Operations, Resume::default(), operation)?.left_stream());
        };
        let id = id.parse().map_err(failed)?;
        let node = node(context)?.clone();
        let draining = lifecycle(context)?;
        let watched = async move { node.watch_operation(&id, MAX_WAIT).await.map_err(failed) };
        let states = stream::once(watched).flat_map(|watched| match watched {
            Err(e) => stream::iter([Err(e)]).left_stream(),
            Ok(progress) => stream::unfold(Some((progress, true)), |state| async move {
                let (mut progress, is_first) = state?;
                if !is_first {
                    progress.changed().await.ok()?;
                }
                let now = progress.borrow_and_update().clone();
                let next = (!now.is_over()).then_some((progress, false));
                Some((Ok(Operation(now)), next))
            })
            .right_stream(),
        });
        Ok(states.take_until(Box::pin(async move { draining.drain_begun().await })).right_stream())
    }

    /// Progress of garbage collections.
    async fn gc_progress(
        &self,
        context: &Context<'_>,
    ) -> FieldResult<impl Stream<Item = FieldResult<GcProgress>> + use<>> {
        events(context, Topic::Gc, Resume::default(), |event| match &event.data {
            EventData::Gc(phase) => Some(GcProgress::of(event, phase)),
            _ => None,
        })
    }

    /// Traffic of all listeners, at regular times.
    async fn bandwidth(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Seconds between two values, from 1 to 3600.", default = 1)] interval_seconds: i32,
    ) -> FieldResult<impl Stream<Item = FieldResult<Bandwidth>> + use<>> {
        let seconds = u64::try_from(interval_seconds).ok().filter(|seconds| (1..=3_600).contains(seconds));
        let seconds = seconds.ok_or_else(|| {
            failed(Error::invalid(format!("intervalSeconds = {interval_seconds}: accepted values are 1 to 3600")))
        })?;
        let bandwidth = node(context)?.bandwidth();
        let mut ticks = interval(Duration::from_secs(seconds));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let values = stream::unfold((ticks, bandwidth), |(mut ticks, bandwidth)| async move {
            ticks.tick().await;
            Some((Ok(Bandwidth::of(&bandwidth)), (ticks, bandwidth)))
        });
        let draining = lifecycle(context)?;
        Ok(values.take_until(Box::pin(async move { draining.drain_begun().await })))
    }
}

/// Position at which a subscription begins.
#[derive(Default)]
struct Resume {
    after: Option<Long>,
    instance: Option<String>,
}

fn lifecycle(context: &Context<'_>) -> FieldResult<Lifecycle> {
    context.data::<Lifecycle>().cloned()
}

/// Returns the events of a topic that `item` selects, until the daemon drains.
fn events<T, F>(
    context: &Context<'_>,
    topic: Topic,
    resume: Resume,
    item: F,
) -> FieldResult<impl Stream<Item = FieldResult<T>> + use<T, F>>
where
    T: Send + 'static,
    F: Fn(&Event) -> Option<T> + Send + Sync + 'static,
{
    let Resume { after, instance } = resume;
    let node = node(context)?;
    // How many events of another process are lost is unknown.
    let is_foreign = instance.is_some_and(|instance| instance != node.events_instance());
    let after = after.filter(|_| !is_foreign).map(|after| after.0);
    let watch = node.watch_events(topic, after).map_err(failed)?;
    let batches = stream::unfold(watch, |mut watch| async move {
        let delivered = watch.next().await;
        Some((delivered, watch))
    });
    let items = items_of(batches, topic, item);
    let items = stream::iter(is_foreign.then(|| Err(lagged(topic, None)))).chain(items);
    let draining = lifecycle(context)?;
    Ok(items.take_until(Box::pin(async move { draining.drain_begun().await })))
}

/// Returns the items of batches. Each is made when it is asked for: thousands of subscriptions may share a batch, and
/// slow clients take only a few of its events.
fn items_of<T, F>(batches: impl Stream<Item = Delivered>, topic: Topic, item: F) -> impl Stream<Item = FieldResult<T>>
where
    F: Fn(&Event) -> Option<T> + Send + Sync + 'static,
{
    let item = Arc::new(item);
    batches.flat_map(move |delivered| {
        let lost = match &delivered {
            Delivered::Lagged(missed) => Some(Err(lagged(topic, Some(*missed)))),
            Delivered::Events(..) => None,
        };
        let item = Arc::clone(&item);
        let mut index = 0;
        let made = iter::from_fn(move || {
            let rest = delivered.events().get(index..)?;
            let (at, made) = rest.iter().enumerate().find_map(|(at, event)| Some((at, item(event)?)))?;
            index += at + 1;
            Some(Ok(made))
        });
        stream::iter(lost.into_iter().chain(made))
    })
}

fn lagged(topic: Topic, missed: Option<u64>) -> async_graphql::Error {
    let text = match missed {
        Some(missed) => format!("{missed} events of the topic {topic} are lost: read faster, or subscribe to less"),
        None => format!("events of the topic {topic} are lost: the daemon has restarted"),
    };
    async_graphql::Error::new(text).extend_with(|_, extensions| {
        extensions.set("code", LAGGED);
        extensions.set("missed", missed);
    })
}

impl GcProgress {
    fn of(event: &Event, phase: &GcPhase) -> Self {
        let (seq, time) = (Long(event.seq), timestamp::format_milliseconds(event.time));
        let plain = |phase, blocks: Option<u64>| Self {
            seq,
            time,
            phase,
            blocks: blocks.map(Long),
            freed_bytes: None,
            error: None,
        };
        match phase {
            GcPhase::Started => plain("started", None),
            GcPhase::Marked(blocks) => plain("marked", Some(*blocks)),
            GcPhase::Swept(blocks) => plain("swept", Some(*blocks)),
            GcPhase::Compacting => plain("compacting", None),
            GcPhase::Done(report) => {
                Self { freed_bytes: Some(Long(report.freed_bytes)), ..plain("done", Some(report.removed)) }
            }
            GcPhase::Failed { kind, message } => {
                let error = Error::new(*kind, message.clone()).public_message().into_owned();
                Self { error: Some(error), ..plain("failed", None) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ipfrs_node::{BlockFormat, MemoryStore, Node, PutBlock};

    use super::*;

    #[tokio::test]
    async fn items_are_made_when_they_are_asked_for() {
        let repo = tempfile::tempdir().unwrap();
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
        let mut watch = node.watch_events(Topic::Blocks, None).unwrap();
        for byte in 0..100 {
            let block = PutBlock { data: vec![byte].into(), cid: None, format: BlockFormat::default() };
            node.put_block(block).await.unwrap();
        }
        let mut batches = Vec::new();
        let count = |batches: &[Delivered]| batches.iter().map(|batch| batch.events().len()).sum::<usize>();
        while count(&batches) < 100 {
            batches.push(watch.next().await);
        }
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let even = move |event: &Event| {
            counted.fetch_add(1, Ordering::Relaxed);
            event.seq.is_multiple_of(2).then_some(event.seq)
        };
        let items = items_of(stream::iter(batches), Topic::Blocks, even);
        let mut items = std::pin::pin!(items);
        assert_eq!(items.next().await.unwrap().unwrap(), 2);
        assert_eq!(made.load(Ordering::Relaxed), 2);
        let rest: Vec<_> = items.map(Result::unwrap).collect().await;
        assert_eq!(rest, (2..=50).map(|half| half * 2).collect::<Vec<_>>());
        assert_eq!(made.load(Ordering::Relaxed), 100);
    }
}

//! Lines of a response in batches, so that long lists do not delay other requests.

use std::future::poll_fn;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::turns::Turns;
use ipfrs_core::{Error, Result, cores};
use ipfrs_middleware::Client;
use ipfrs_node::{RequestContext, current_context, with_context};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::coop::has_budget_remaining;
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Maximum number of lines of a batch.
const BATCH_LINES: usize = 128;

/// Number of bytes at which a batch is complete.
const BATCH_BYTES: usize = 32 * 1024;

/// Number of batches that wait for the client.
const WAITING_BATCHES: usize = 1;

/// One place for each batch that a task is making, as many as there are cores. A client that is alone occupies half of
/// them, so that runtime workers are free for other requests.
static PLACES: LazyLock<Turns<Client>> = LazyLock::new(|| Turns::new(cores(), 1));

/// Returns the same lines in batches of those that are ready at the same time. The body makes the first batch. If that
/// is full, or if the lines take all of the time that a task may use at once, a task makes the others: it waits for a
/// turn of the client for each, and lets other tasks run after it. Call this in the handler, which knows the client.
pub(super) fn batched<S>(lines: S) -> BoxStream<'static, Result<Bytes>>
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    batched_with(PLACES.clone(), lines)
}

fn batched_with<S>(places: Turns<Client>, lines: S) -> BoxStream<'static, Result<Bytes>>
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
{
    let maker = Maker { places, client: Client::current(), context: current_context() };
    let next = |(source, maker): (Source<S>, Maker)| async move {
        let (batch, source) = source.next(&maker).await?;
        Some((batch, (source, maker)))
    };
    stream::unfold((Source::Body(lines), maker), next).boxed()
}

/// Source of the next batch.
enum Source<S> {
    /// The lines that were ready so far fit into one batch, so the body makes the next one, too.
    Body(S),
    /// A task has to be spawned, since the last batch was full.
    Spawn(S),
    Task(Receiver<Result<Bytes>>, AbortOnDropHandle<()>),
    Failed(Error),
    Ended,
}

impl<S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static> Source<S> {
    async fn next(mut self, maker: &Maker) -> Option<(Result<Bytes>, Self)> {
        loop {
            self = match self {
                Self::Body(mut lines) => {
                    let Batch { lines: ready, end } = poll_fn(|cx| short_batch(&mut lines, cx)).await;
                    let next = match end {
                        End::Full | End::Exhausted => Self::Spawn(lines),
                        End::Waiting => Self::Body(lines),
                        End::Complete => Self::Ended,
                        End::Failed(error) => Self::Failed(error),
                    };
                    match joined(ready) {
                        Some(batch) => return Some((Ok(batch), next)),
                        None => next,
                    }
                }
                Self::Spawn(lines) => maker.spawn(lines),
                Self::Task(mut batches, making) => match batches.recv().await {
                    Some(batch) => return Some((batch, Self::Task(batches, making))),
                    None => match making.await {
                        Ok(()) => Self::Ended,
                        // The body must not appear complete.
                        Err(e) => Self::Failed(Error::internal("making a list failed").with_source(e)),
                    },
                },
                Self::Failed(error) => return Some((Err(error), Self::Ended)),
                Self::Ended => return None,
            };
        }
    }
}

/// Waits for the next line, or for another [`End`] than [`End::Waiting`].
fn short_batch<S>(lines: &mut S, cx: &mut Context<'_>) -> Poll<Batch>
where
    S: Stream<Item = Result<Bytes>> + Unpin,
{
    let batch = Batch::of_ready(lines, cx);
    match batch.end {
        End::Waiting if batch.lines.is_empty() => Poll::Pending,
        _ => Poll::Ready(batch),
    }
}

/// Lines that were ready at the same time.
struct Batch {
    lines: Vec<Bytes>,
    end: End,
}

/// Reason why a batch has no more lines.
enum End {
    Full,
    /// No further line is ready.
    Waiting,
    /// The lines have used up the budget of the task, and have woken it.
    Exhausted,
    Complete,
    Failed(Error),
}

impl Batch {
    fn of_ready<S>(lines: &mut S, cx: &mut Context<'_>) -> Self
    where
        S: Stream<Item = Result<Bytes>> + Unpin,
    {
        let (mut ready, mut bytes) = (Vec::new(), 0);
        let end = loop {
            if ready.len() >= BATCH_LINES || bytes >= BATCH_BYTES {
                break End::Full;
            }
            match lines.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(line))) => {
                    bytes += line.len();
                    ready.push(line);
                }
                Poll::Ready(Some(Err(error))) => break End::Failed(error),
                Poll::Ready(None) => break End::Complete,
                Poll::Pending if has_budget_remaining() => break End::Waiting,
                Poll::Pending => break End::Exhausted,
            }
        };
        Self { lines: ready, end }
    }
}

/// Returns lines in one piece, without a copy of a single one; `None` if there are none.
fn joined(mut lines: Vec<Bytes>) -> Option<Bytes> {
    if lines.len() < 2 {
        return lines.pop();
    }
    let mut batch = Vec::with_capacity(lines.iter().map(Bytes::len).sum());
    for line in &lines {
        batch.extend_from_slice(line);
    }
    Some(batch.into())
}

/// The request for which tasks make batches.
struct Maker {
    places: Turns<Client>,
    client: Client,
    context: RequestContext,
}

impl Maker {
    fn spawn<S>(&self, lines: S) -> Source<S>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
    {
        let (sender, batches) = channel(WAITING_BATCHES);
        let making = make_batches(lines, self.places.clone(), self.client, sender);
        let making = self.client.scope(with_context(self.context.clone(), making)).in_current_span();
        Source::Task(batches, AbortOnDropHandle::new(tokio::spawn(making)))
    }
}

async fn make_batches<S>(mut lines: S, places: Turns<Client>, client: Client, sender: Sender<Result<Bytes>>)
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    loop {
        // Before the turn, because the client may read slowly. This fails only if the client has disconnected.
        let Ok(space) = sender.reserve().await else { return };
        let turn = places.take(client).await;
        let Batch { lines: ready, end } = poll_fn(|cx| Poll::Ready(Batch::of_ready(&mut lines, cx))).await;
        drop(turn);
        match joined(ready) {
            Some(batch) => space.send(Ok(batch)),
            // An error needs the space.
            None => drop(space),
        }
        match end {
            End::Full => yield_now().await,
            End::Waiting | End::Exhausted => woken().await,
            End::Complete => return,
            End::Failed(error) => {
                let _ = sender.send(Err(error)).await;
                return;
            }
        }
    }
}

/// Waits until the task is woken, by something that was polled before.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt, TryStreamExt};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::coop::consume_budget;

    use super::*;

    const LINES: usize = 20 * BATCH_LINES;

    /// Returns lines that are ready, and a counter of those that were made.
    fn ready_lines(count: usize) -> (impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static, Arc<AtomicUsize>) {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let lines = stream::iter(0..count).map(move |number| {
            counter.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from(format!("{number}\n")))
        });
        (lines, made)
    }

    fn expected(count: usize) -> Vec<u8> {
        (0..count).map(|number| format!("{number}\n")).collect::<String>().into_bytes()
    }

    async fn whole(batches: BoxStream<'static, Result<Bytes>>) -> Vec<u8> {
        batches.try_collect::<Vec<_>>().await.unwrap().concat::<u8>()
    }

    /// Runs `work` beside a task that reads the counter whenever it can. Returns its largest step.
    async fn largest_step<T>(counter: Arc<AtomicUsize>, work: impl Future<Output = T>) -> (usize, T) {
        // A task of its own, which runs only if the others let it.
        let watching = tokio::spawn(async move {
            let (mut last, mut largest) = (0, 0);
            loop {
                let now = counter.load(Ordering::Relaxed);
                largest = largest.max(now - last);
                last = now;
                if now >= LINES {
                    return largest;
                }
                yield_now().await;
            }
        });
        let done = work.await;
        (watching.await.unwrap(), done)
    }

    #[tokio::test]
    async fn long_list_lets_other_tasks_run_after_each_batch() {
        let (lines, made) = ready_lines(LINES);
        let (largest, text) = largest_step(made, whole(batched(lines))).await;
        assert_eq!(text, expected(LINES));
        assert!(largest <= 2 * BATCH_LINES, "{largest}");
    }

    #[tokio::test]
    async fn list_that_selects_nothing_moves_to_a_task() {
        let examined = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&examined);
        let selected = stream::iter(0..LINES).filter_map(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            async {
                consume_budget().await;
                None::<Result<Bytes>>
            }
        });
        let places = Turns::new(1, 1);
        let other = places.take(Client::default()).await;
        let mut batches = batched_with(places, selected.boxed());
        let mut first = batches.next();
        for _ in 0..100 {
            assert!(futures::poll!(&mut first).is_pending());
            yield_now().await;
        }
        let before = examined.load(Ordering::Relaxed);
        assert!(before < LINES, "{before} items were examined without a turn");
        drop(other);
        assert!(first.await.is_none());
        assert_eq!(examined.load(Ordering::Relaxed), LINES);
    }

    #[tokio::test]
    async fn batches_after_the_first_wait_for_a_turn() {
        let places = Turns::new(1, 1);
        let other = places.take(Client::of([192, 0, 2, 1].into())).await;
        let (short, _) = ready_lines(BATCH_LINES - 1);
        assert_eq!(whole(batched_with(places.clone(), short)).await, expected(BATCH_LINES - 1));
        let (long, made) = ready_lines(LINES);
        let mut batches = batched_with(places.clone(), long);
        let mut text = batches.next().await.unwrap().unwrap().to_vec();
        assert_eq!(text, expected(BATCH_LINES));
        for _ in 0..100 {
            assert!(batches.next().now_or_never().is_none());
            yield_now().await;
        }
        assert_eq!(made.load(Ordering::Relaxed), BATCH_LINES);
        drop(other);
        text.extend(whole(batches).await);
        assert_eq!(text, expected(LINES));
        // No place is held after the end.
        assert!(places.take(Client::default()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn lines_are_sent_as_soon_as_they_are_ready() {
        let (made, lines) = unbounded_channel::<Result<Bytes>>();
        let lines = stream::unfold(lines, |mut lines| async move {
            let line = lines.recv().await?;
            Some((line, lines))
        });
        let mut batches = batched_with(Turns::new(1, 1), lines.boxed());
        // The body makes the first batches, and a task those after the many lines.
        for count in [1, 2, 2 * BATCH_LINES, 1, 2] {
            for _ in 0..count {
                made.send(Ok(Bytes::from_static(b"0\n"))).unwrap();
            }
            let mut bytes = 0;
            for _ in 0..1_000 {
                match batches.next().now_or_never() {
                    Some(batch) => bytes += batch.unwrap().unwrap().len(),
                    None => yield_now().await,
                }
            }
            assert_eq!(bytes, 2 * count);
        }
        drop(made);
        assert!(batches.next().await.is_none());
    }

    #[tokio::test]
    async fn unread_list_holds_no_place() {
        let places = Turns::new(1, 1);
        let (lines, made) = ready_lines(LINES);
        let mut batches = batched_with(places.clone(), lines);
        for _ in 0..2 {
            assert!(batches.next().await.unwrap().is_ok());
        }
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(made.load(Ordering::Relaxed) < LINES);
        assert!(places.take(Client::default()).now_or_never().is_some());
    }

    #[tokio::test]
    async fn error_follows_the_lines_before_it() {
        for count in [0, 1, BATCH_LINES, BATCH_LINES + 1, LINES] {
            let (lines, _) = ready_lines(count);
            let mut batches = batched(lines.chain(stream::iter([Err(Error::invalid("no"))])));
            let mut text = Vec::new();
            let error = loop {
                match batches.next().await.unwrap() {
                    Ok(batch) => text.extend_from_slice(&batch),
                    Err(error) => break error,
                }
            };
            assert_eq!((text, error.message()), (expected(count), "no"));
            assert!(batches.next().await.is_none());
        }
    }
}

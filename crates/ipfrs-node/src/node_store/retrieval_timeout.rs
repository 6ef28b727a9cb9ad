//! The time limit for reading blocks.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use prometheus::IntCounter;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::refusals::{Limit, Refusals};

/// Settings for reading blocks from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadConfig {
    /// Maximum wait for the next block, above zero (`gateway.retrieval_timeout_seconds`).
    pub timeout: Duration,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30) }
    }
}

/// Maximum time that a caller waits for the next block from the store.
#[derive(Debug, Clone)]
pub(crate) struct RetrievalTimeout {
    longest: Duration,
    timed_out: IntCounter,
}

impl RetrievalTimeout {
    pub(crate) fn new(longest: Duration, refusals: &Refusals) -> Self {
        Self { longest, timed_out: refusals.counter(Limit::RetrievalTimeout) }
    }

    /// Returns the output of `operation`. If it is ready at the first poll, as for blocks in memory, no timer is
    /// created.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] if it takes too long; `what` describes the operation.
    pub(crate) async fn wait<T>(
        &self,
        what: impl Fn() -> String,
        operation: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut operation = pin!(operation);
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx))).await {
            return done;
        }
        timeout(self.longest, operation).await.unwrap_or_else(|_| Err(self.over(&what())))
    }

    /// Returns the same items with a time limit for each. The items stand for `count` results in all; `result_count`
    /// returns the number of results in an item. After a time-out, each remaining result is an error, at least one.
    pub(crate) fn stream<T: 'static>(
        &self,
        items: BoxStream<'static, Result<T>>,
        count: usize,
        result_count: fn(&T) -> usize,
    ) -> TimedStream<T> {
        TimedStream { items: Ok(items), left: count, result_count, read_timeout: self.clone(), deadline: None }
    }

    fn over(&self, what: &str) -> Error {
        self.timed_out.inc();
        let seconds = self.longest.as_secs();
        let limit = format!("gateway.retrieval_timeout_seconds = {seconds}");
        let remedy = "try again later; if the disk is always this slow, raise the limit";
        Error::new(ErrorKind::Timeout, format!("the store did not return {what} in {seconds} s ({limit}): {remedy}"))
    }
}

/// Maximum delay after which an expired deadline still counts as a time-out. If it is noticed later, the consumer was
/// not polling in the meantime.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Stream of blocks with a time limit for each item, made by [`RetrievalTimeout::stream`].
pub(crate) struct TimedStream<T> {
    /// Remaining items, or the error after a time-out.
    items: Result<BoxStream<'static, Result<T>>>,
    /// Number of results that are still expected.
    left: usize,
    /// Returns the number of results in an item.
    result_count: fn(&T) -> usize,
    read_timeout: RetrievalTimeout,
    /// Deadline of the current wait; `None` while no item is pending.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T: 'static> Stream for TimedStream<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let items = match &mut this.items {
            Ok(items) => items,
            Err(_) if this.left == 0 => return Poll::Ready(None),
            Err(error) => {
                this.left -= 1;
                return Poll::Ready(Some(Err(Error::new(error.kind(), error.message()))));
            }
        };
        if let Poll::Ready(item) = items.poll_next_unpin(cx) {
            this.deadline = None;
            let result_count = item.as_ref().map_or(0, |item| item.as_ref().map_or(1, this.result_count));
            this.left = this.left.saturating_sub(result_count);
            return Poll::Ready(item);
        }
        let longest = this.read_timeout.longest;
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(longest)));
        while deadline.as_mut().poll(cx).is_ready() {
            // Engines make progress only when polled. If the client read nothing for a while, the store was not at
            // fault.
            if deadline.deadline().elapsed() <= NOTICED_WITHIN {
                this.items = Err(this.read_timeout.over("a block"));
                this.left = this.left.max(1);
                return self.poll_next(cx);
            }
            deadline.as_mut().reset(Instant::now() + longest);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stream_timeout_fails_all_remaining_results() {
        let refusals = Refusals::new(IntCounterVec::new(Opts::new("refusals", "of a test"), &["limit"]).unwrap());
        let read_timeout = RetrievalTimeout::new(Duration::from_secs(30), &refusals);
        // Single results, several in one item, all of them, and none.
        let lengths: [&[usize]; 4] = [&[1, 1, 1], &[5, 2], &[4, 6], &[]];
        for lengths in lengths {
            let ready_items: Vec<_> = lengths.iter().map(|length| Ok(vec![(); *length])).collect();
            let items = read_timeout.stream(stream::iter(ready_items).chain(stream::pending()).boxed(), 10, Vec::len);
            let left = 10 - lengths.iter().sum::<usize>();
            let items: Vec<_> = items.take(lengths.len() + left).collect().await;
            let (ready_items, failed) = items.split_at(lengths.len());
            assert!(ready_items.iter().zip(lengths).all(|(item, length)| item.as_ref().unwrap().len() == *length));
            assert_eq!(failed.len(), left);
            assert!(failed.iter().all(|item| item.as_ref().unwrap_err().kind() == ErrorKind::Timeout));
        }
        assert_eq!(refusals.counter(Limit::RetrievalTimeout).get(), 3, "each time-out is counted once");
        // If the number of results is unknown, a time-out yields one error.
        let items = read_timeout.stream::<()>(stream::iter([Ok(())]).chain(stream::pending()).boxed(), 0, |()| 0);
        let items: Vec<_> = items.collect().await;
        assert!(matches!(&items[..], [Ok(()), Err(error)] if error.kind() == ErrorKind::Timeout), "{items:?}");
        // An error item stands for one result.
        let ready_items = stream::iter([Err(Error::internal("this one")), Ok(())]).chain(stream::pending());
        let items: Vec<_> = read_timeout.stream(ready_items.boxed(), 4, |()| 1).collect().await;
        let kinds: Vec<_> = items.into_iter().map(|item| item.map_err(|error| error.kind())).collect();
        assert_eq!(kinds, [Err(ErrorKind::Internal), Ok(()), Err(ErrorKind::Timeout), Err(ErrorKind::Timeout)]);
    }
}

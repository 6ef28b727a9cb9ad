//! Limits of requests: which there are, how often each struck, and the longest wait for a block.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use prometheus::{IntCounter, IntCounterVec};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::Node;

/// How blocks are got from the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetrievalConfig {
    /// The longest wait for the next block, above zero (`gateway.retrieval_timeout_seconds`).
    pub timeout: Duration,
}

impl Default for RetrievalConfig {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30) }
    }
}

/// What requests are refused for, or broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A block did not come in time (`gateway.retrieval_timeout_seconds`).
    RetrievalTimeout,
    /// The whole request took too long (`gateway.max_request_seconds`).
    RequestTime,
    /// There were too many requests at the same time (`gateway.max_concurrent_requests`).
    ConcurrentRequests,
    /// One client had too many requests at the same time (`gateway.max_requests_per_client`, or its share of all).
    RequestsPerClient,
    /// There were too many calls of gRPC at the same time (`grpc.max_concurrent_calls`).
    ConcurrentCalls,
    /// One client had too many calls of gRPC at the same time (`grpc.max_calls_per_client`, or its share of all).
    CallsPerClient,
    /// Permits were short, and the client took nothing of its response.
    StalledResponse,
    /// The bodies of requests took all of the memory for them.
    RequestMemory,
    /// The bodies of one client's requests took its share of the memory for them.
    RequestMemoryShare,
    /// The client took nothing of its answer for too long (`server.write_timeout_seconds`).
    WriteTimeout,
    /// The content is larger than what is served in a form that cannot be verified (`gateway.max_deserialized_bytes`).
    DeserializedBytes,
    /// A range was asked of a file that is too large for that (`gateway.max_range_request_bytes`).
    RangeRequestBytes,
    /// A DAG, a block or a path is over one of the bounds of [`ipfrs_core::limits`].
    Dag,
    /// The head of a request is too large, or has too many headers (`server.max_header_bytes`).
    HeaderBytes,
    /// The target of a request is too long.
    TargetBytes,
    /// The head of a request was not complete in time (`server.header_timeout_seconds`).
    HeaderTimeout,
    /// An upload paused for too long (`gateway.upload_idle_seconds`).
    UploadIdle,
    /// The body of a request, or a part of it, is too large: the limits of batches, blocks and uploads.
    BodyBytes,
    /// Work that requests share was full: imports, memory for work on requests, operations, records.
    Capacity,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::RetrievalTimeout,
        Self::RequestTime,
        Self::ConcurrentRequests,
        Self::RequestsPerClient,
        Self::ConcurrentCalls,
        Self::CallsPerClient,
        Self::StalledResponse,
        Self::RequestMemory,
        Self::RequestMemoryShare,
        Self::WriteTimeout,
        Self::DeserializedBytes,
        Self::RangeRequestBytes,
        Self::Dag,
        Self::HeaderBytes,
        Self::TargetBytes,
        Self::HeaderTimeout,
        Self::UploadIdle,
        Self::BodyBytes,
        Self::Capacity,
    ];

    /// The name in metrics: that of the key, without section and unit.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RetrievalTimeout => "retrieval_timeout",
            Self::RequestTime => "max_request",
            Self::ConcurrentRequests => "max_concurrent_requests",
            Self::RequestsPerClient => "max_requests_per_client",
            Self::ConcurrentCalls => "max_concurrent_calls",
            Self::CallsPerClient => "max_calls_per_client",
            Self::StalledResponse => "stalled_response",
            Self::RequestMemory => "request_memory",
            Self::RequestMemoryShare => "request_memory_share",
            Self::WriteTimeout => "write_timeout",
            Self::DeserializedBytes => "max_deserialized",
            Self::RangeRequestBytes => "max_range_request",
            Self::Dag => "dag",
            Self::HeaderBytes => "max_header",
            Self::TargetBytes => "max_target",
            Self::HeaderTimeout => "header_timeout",
            Self::UploadIdle => "upload_idle",
            Self::BodyBytes => "max_body",
            Self::Capacity => "capacity",
        }
    }
}

/// How often each limit struck. Cloning shares the counts.
#[derive(Debug, Clone)]
pub(crate) struct Refusals(IntCounterVec);

impl Refusals {
    /// Counts in `family`, whose label is the limit.
    pub(crate) fn new(family: IntCounterVec) -> Self {
        for limit in Limit::ALL {
            family.with_label_values(&[limit.name()]);
        }
        Self(family)
    }

    pub(crate) fn counter(&self, limit: Limit) -> IntCounter {
        self.0.with_label_values(&[limit.name()])
    }

    /// Counts a failure, where it is one over a bound of DAGs.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() == ErrorKind::TooLarge {
            self.counter(Limit::Dag).inc();
        }
    }
}

impl Node {
    /// Counts that a limit which a front-end keeps has struck.
    pub fn count_refusal(&self, limit: Limit) {
        self.inner.metrics.refusals.counter(limit).inc();
    }
}

/// How long whoever asks the store for blocks waits for the next one.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    longest: Duration,
    struck: IntCounter,
}

impl Patience {
    pub(crate) fn new(longest: Duration, refusals: &Refusals) -> Self {
        Self { longest, struck: refusals.counter(Limit::RetrievalTimeout) }
    }

    /// What `answer` gives. What is there at once, as blocks in memory are, costs no timer.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when it takes too long; `what` names it.
    pub(crate) async fn wait<T>(
        &self,
        what: impl Fn() -> String,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut answer = pin!(answer);
        if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
            return done;
        }
        timeout(self.longest, answer).await.unwrap_or_else(|_| Err(self.over(&what())))
    }

    /// The same items, each within the time. They are `count` answers together, of which an item is so many as `answers` says. Where
    /// one takes too long, each that is left is an error, and there is at least one.
    pub(crate) fn stream<T: 'static>(
        &self,
        items: BoxStream<'static, Result<T>>,
        count: usize,
        answers: fn(&T) -> usize,
    ) -> Patient<T> {
        Patient { items: Ok(items), left: count, answers, patience: self.clone(), deadline: None }
    }

    fn over(&self, what: &str) -> Error {
        self.struck.inc();
        let seconds = self.longest.as_secs();
        let limit = format!("gateway.retrieval_timeout_seconds = {seconds}");
        let remedy = "try again later; if the disk is this slow as a rule, set the limit higher";
        Error::new(ErrorKind::Timeout, format!("{what} did not come from the store in {seconds} s ({limit}): {remedy}"))
    }
}

/// How late a deadline may be noticed: who looks later than this was not waiting for the store meanwhile.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Blocks that are waited for so long and no longer; made by [`Patience::stream`].
pub(crate) struct Patient<T> {
    /// Or why they are not waited for any more.
    items: Result<BoxStream<'static, Result<T>>>,
    /// Answers that are to come.
    left: usize,
    /// How many of them an item is.
    answers: fn(&T) -> usize,
    patience: Patience,
    /// While an item is waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T: 'static> Stream for Patient<T> {
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
            let answers = item.as_ref().map_or(0, |item| item.as_ref().map_or(1, this.answers));
            this.left = this.left.saturating_sub(answers);
            return Poll::Ready(item);
        }
        let longest = this.patience.longest;
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(longest)));
        while deadline.as_mut().poll(cx).is_ready() {
            // Engines work when they are polled: a client that took nothing for a while has kept this one from working.
            if deadline.deadline().elapsed() <= NOTICED_WITHIN {
                this.items = Err(this.patience.over("a block"));
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
    use prometheus::Opts;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_that_is_left_is_an_error_when_one_does_not_come() {
        let refusals = Refusals::new(IntCounterVec::new(Opts::new("refusals", "of a test"), &["limit"]).unwrap());
        let patience = Patience::new(Duration::from_secs(30), &refusals);
        // One by one, and several together; all of them, and none.
        let lengths: [&[usize]; 4] = [&[1, 1, 1], &[5, 2], &[4, 6], &[]];
        for lengths in lengths {
            let come: Vec<_> = lengths.iter().map(|length| Ok(vec![(); *length])).collect();
            let items = patience.stream(stream::iter(come).chain(stream::pending()).boxed(), 10, Vec::len);
            let left = 10 - lengths.iter().sum::<usize>();
            let items: Vec<_> = items.take(lengths.len() + left).collect().await;
            let (come, failed) = items.split_at(lengths.len());
            assert!(come.iter().zip(lengths).all(|(item, length)| item.as_ref().unwrap().len() == *length));
            assert_eq!(failed.len(), left);
            assert!(failed.iter().all(|item| item.as_ref().unwrap_err().kind() == ErrorKind::Timeout));
        }
        assert_eq!(refusals.counter(Limit::RetrievalTimeout).get(), 3, "each time-out struck once");
        // Of those that nobody has counted, one is.
        let items = patience.stream::<()>(stream::iter([Ok(())]).chain(stream::pending()).boxed(), 0, |()| 0);
        let items: Vec<_> = items.collect().await;
        assert!(matches!(&items[..], [Ok(()), Err(error)] if error.kind() == ErrorKind::Timeout), "{items:?}");
        // An error in the place of an item is one of them.
        let come = stream::iter([Err(Error::internal("this one")), Ok(())]).chain(stream::pending());
        let items: Vec<_> = patience.stream(come.boxed(), 4, |()| 1).collect().await;
        let kinds: Vec<_> = items.into_iter().map(|item| item.map_err(|error| error.kind())).collect();
        assert_eq!(kinds, [Err(ErrorKind::Internal), Ok(()), Err(ErrorKind::Timeout), Err(ErrorKind::Timeout)]);
    }
}

//! Deadline of a request, which its connection and its handler share.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind};
use tokio::time::{Instant, Sleep, sleep_until};

use ipfrs_node::{Limit, Node};

/// Deadline of a request (`gateway.max_request_seconds`). Clones share the deadline.
///
/// The time starts with the head of the request and restarts with each piece of its body. A long upload is therefore
/// bounded by `gateway.upload_idle_seconds`, and the processing after its last byte by this deadline. The connection
/// adds the deadline to the extensions of the request. The handler normally returns its own error in time. If the
/// client reads nothing, the handler is not polled and the connection enforces the deadline.
#[derive(Debug, Clone)]
pub struct RequestDeadline(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    node: Node,
    longest: Duration,
    start: Instant,
    /// Milliseconds from `start` to the last piece of the request's body.
    body_millis: AtomicU64,
    is_lifted: AtomicBool,
    has_struck: AtomicBool,
}

impl RequestDeadline {
    /// Returns the deadline of a request whose head has just arrived and that may take `longest`.
    #[must_use]
    pub fn new(node: &Node, longest: Duration) -> Self {
        Self(Arc::new(Shared {
            node: node.clone(),
            longest,
            start: Instant::now(),
            body_millis: AtomicU64::new(0),
            is_lifted: AtomicBool::new(false),
            has_struck: AtomicBool::new(false),
        }))
    }

    /// Restarts the time, because a piece of the request's body has arrived.
    pub fn extend(&self) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.body_millis.store(millis, Ordering::Relaxed);
    }

    /// Removes the deadline, for a request whose work must not be interrupted.
    pub fn lift(&self) {
        self.0.is_lifted.store(true, Ordering::Relaxed);
    }

    /// Returns the time of the deadline; `None` if there is none.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        if self.0.is_lifted.load(Ordering::Relaxed) {
            return None;
        }
        let begun = Duration::from_millis(self.0.body_millis.load(Ordering::Relaxed));
        self.0.start.checked_add(begun)?.checked_add(self.0.longest)
    }

    /// Becomes ready once the deadline has passed by `grace`. `timer` is created when needed and kept between calls.
    pub fn poll_over(&self, timer: &mut Option<Pin<Box<Sleep>>>, grace: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at().and_then(|at| at.checked_add(grace)) else { return Poll::Pending };
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }

    /// Counts that the deadline was enforced and returns the error for the client.
    #[must_use]
    pub fn strike(&self) -> Error {
        self.count();
        self.error()
    }

    /// Counts that the response is cut off and returns the error for the log; `None` if the deadline was enforced
    /// before.
    #[must_use]
    pub fn cut(&self) -> Option<Error> {
        self.count().then(|| self.error())
    }

    /// Counts the first enforcement. Returns whether this call was the first.
    fn count(&self) -> bool {
        let is_first = !self.0.has_struck.swap(true, Ordering::Relaxed);
        if is_first {
            self.0.node.count_refusal(Limit::RequestTime);
        }
        is_first
    }

    fn error(&self) -> Error {
        let seconds = self.0.longest.as_secs();
        let what = format!("the request took longer than {seconds} s (gateway.max_request_seconds = {seconds})");
        let remedy = "request less at a time (Range, entity-bytes), send less at a time, or raise the limit";
        Error::new(ErrorKind::Timeout, format!("{what}: {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use prometheus::Registry;
    use prometheus::proto::Metric;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    async fn node(repo: &tempfile::TempDir, registry: &Registry) -> Node {
        Node::builder(repo.path()).registry(registry).open().await.unwrap()
    }

    #[tokio::test]
    async fn deadline_moves_with_the_body_and_ends_when_lifted() {
        let (repo, registry) = (tempfile::tempdir().unwrap(), Registry::new());
        let node = node(&repo, &registry).await;
        tokio::time::pause();
        let start = Instant::now();
        let deadline = RequestDeadline::new(&node, LONGEST);
        assert_eq!(deadline.at(), Some(start + LONGEST));
        tokio::time::advance(LONGEST / 2).await;
        deadline.extend();
        let mut timer = None;
        poll_fn(|cx| deadline.poll_over(&mut timer, Duration::ZERO, cx)).await;
        let taken = start.elapsed();
        assert!((LONGEST * 3 / 2..LONGEST * 2).contains(&taken), "{taken:?}");
        deadline.lift();
        assert_eq!(deadline.at(), None);
        let over = poll_fn(|cx| Poll::Ready(deadline.poll_over(&mut timer, Duration::ZERO, cx))).await;
        assert!(over.is_pending());
    }

    #[tokio::test]
    async fn deadline_enforced_twice_is_counted_once() {
        let (repo, registry) = (tempfile::tempdir().unwrap(), Registry::new());
        let node = node(&repo, &registry).await;
        let deadline = RequestDeadline::new(&node, LONGEST);
        for _ in 0..2 {
            let error = deadline.clone().strike();
            assert!(error.message().contains("gateway.max_request_seconds = 60"), "{error}");
        }
        assert!(deadline.cut().is_none(), "the client was informed");
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "ipfrs_refusals_total").unwrap();
        let of_time = |metric: &&Metric| metric.get_label()[0].value() == Limit::RequestTime.name();
        assert_eq!(family.get_metric().iter().find(of_time).unwrap().get_counter().get_value(), 1.0);
    }
}

//! Execution of a call from Python: a Rust future that is waited for, or passed to asyncio.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use ipfrs_core::Result;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;

use crate::awaitable::awaitable;
use crate::error::Outcome;
use crate::panics::guarded;
use crate::runtime::{Origin, runtime};

/// Maximum time for which a thread waits before it checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Number of bytes that are copied before yielding, about 10 ms of work.
const BREATH_BYTES: usize = 32 * 1024 * 1024;

/// Number of entries or blocks that are collected before yielding.
const ITEMS_PER_BREATH: usize = 512;

/// Whether Python calls wait for values or return awaitables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Blocking,
    Asynchronous,
}

/// Waits for `work`, or returns an awaitable for it. In blocking mode, the first poll holds the GIL, because
/// releasing it costs more than a result that is ready immediately. Later polls run on this thread without the GIL.
/// `KeyboardInterrupt`, and cancelling the awaitable, drop the future.
pub(crate) fn run<'py, T>(
    py: Python<'py>,
    mode: Mode,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    match mode {
        Mode::Blocking => match wait(py, work, None) {
            Ok(value) => value.into_bound_py_any(py),
            Err(failure) => Err(failure.into_exception(py)),
        },
        Mode::Asynchronous => awaitable(py, work),
    }
}

/// A call that a waiting thread makes periodically.
pub(crate) struct Periodic<'a> {
    /// Time between two calls.
    pub(crate) interval: Duration,
    /// The function to call. An error ends the wait.
    pub(crate) call: &'a mut dyn FnMut(Python<'_>) -> PyResult<()>,
}

/// Waits for `work` on this thread.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Outcome<T>> + Send,
    mut periodic: Option<Periodic<'_>>,
) -> Outcome<T> {
    let (_entered, origin) = (runtime()?.enter(), Origin::here());
    let mut work = pin!(guarded(work));
    let parked = Arc::new(Parked { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(parked.clone());
    if let Poll::Ready(outcome) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
        return outcome;
    }
    let for_signals = takes_signals(py)?.then_some(SIGNAL_INTERVAL);
    let mut last_call = Instant::now();
    loop {
        let for_call = periodic.as_ref().map(|periodic| periodic.interval.saturating_sub(last_call.elapsed()));
        let max_wait = [for_signals, for_call].into_iter().flatten().min();
        let outcome = py.detach(|| parked.drive(work.as_mut(), &waker, max_wait));
        if let Some(outcome) = outcome {
            return outcome;
        }
        py.check_signals()?;
        // A signal handler may fork. The work continues in the parent only.
        origin.check(py)?;
        if let Some(periodic) = periodic.as_mut().filter(|periodic| last_call.elapsed() >= periodic.interval) {
            (periodic.call)(py)?;
            last_call = Instant::now();
        }
    }
}

/// Whether Python runs signal handlers on the current thread.
fn takes_signals(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    main.eq(threading.call_method0(intern!(py, "get_ident"))?)
}

/// Waker of a thread that waits for its future.
struct Parked {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Parked {
    /// Polls the future each time it is woken, until it is ready or `max_wait` has elapsed.
    fn drive<F: Future>(&self, mut work: Pin<&mut F>, waker: &Waker, max_wait: Option<Duration>) -> Option<F::Output> {
        let end = max_wait.map(|max_wait| Instant::now() + max_wait);
        loop {
            if self.is_woken.swap(false, Ordering::Acquire)
                && let Poll::Ready(output) = work.as_mut().poll(&mut Context::from_waker(waker))
            {
                return Some(output);
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return None,
                _ if self.is_woken.load(Ordering::Acquire) => {}
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

/// Yields to other work. A waiting thread releases the GIL and checks for signals, and a task yields to the runtime.
pub(crate) async fn breathe() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Counter of copied bytes, which [yields](breathe) periodically.
#[derive(Debug, Default)]
pub(crate) struct Breath {
    bytes: usize,
}

impl Breath {
    /// Adds `bytes` to the count, and yields if it has reached the limit.
    pub(crate) async fn after(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= BREATH_BYTES {
            self.bytes = 0;
            breathe().await;
        }
    }
}

/// Collects all items of a stream, and yields periodically even if all items are available immediately.
pub(crate) async fn all_of<T>(items: impl Stream<Item = Result<T>>) -> Result<Vec<T>> {
    let mut items = pin!(items);
    let mut collected = Vec::new();
    while let Some(item) = items.next().await {
        collected.push(item?);
        if collected.len().is_multiple_of(ITEMS_PER_BREATH) {
            breathe().await;
        }
    }
    Ok(collected)
}

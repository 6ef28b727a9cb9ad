//! One call from Python: a future of Rust that is waited for, or given to asyncio.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures::{FutureExt, Stream, StreamExt};
use ipfrs_core::{Error, Result};
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;

use crate::awaitable::awaitable;
use crate::error::{Failure, Outcome};
use crate::runtime::{is_forked, runtime};

/// How long a thread waits at most before it looks whether the user wants to end it.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes that are copied before others may do something, about 10 ms of work.
const BREATH_BYTES: usize = 32 * 1024 * 1024;

/// Entries and blocks that are gathered before others may do something.
const ITEMS_PER_BREATH: usize = 512;

/// Whether Python waits for values or is given awaitables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Blocking,
    Asynchronous,
}

/// Waits for `work`, or gives an awaitable of it. Waiting, the first poll is done with the GIL held: what is ready at once
/// costs less than giving the GIL away. Everything after it is done without, on this thread. `KeyboardInterrupt`, and the
/// cancellation of the awaitable, drop the future.
pub(crate) fn run<'py, T>(
    py: Python<'py>,
    mode: Mode,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    if is_forked() {
        return Err(Failure::Forked.into_exception(py));
    }
    match mode {
        Mode::Blocking => match wait(py, work, None) {
            Ok(value) => value.into_bound_py_any(py),
            Err(failure) => Err(failure.into_exception(py)),
        },
        Mode::Asynchronous => awaitable(py, work),
    }
}

/// What is done now and then by a thread that waits.
pub(crate) struct Periodic<'a> {
    /// How often.
    pub(crate) interval: Duration,
    /// An error ends the waiting.
    pub(crate) call: &'a mut dyn FnMut(Python<'_>) -> PyResult<()>,
}

/// Waits for `work` on this thread.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    work: impl Future<Output = Outcome<T>> + Send,
    mut periodic: Option<Periodic<'_>>,
) -> Outcome<T> {
    let _entered = runtime()?.enter();
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
        let patience = [for_signals, for_call].into_iter().flatten().min();
        let outcome = py.detach(|| parked.drive(work.as_mut(), &waker, patience));
        if let Some(outcome) = outcome {
            return outcome;
        }
        py.check_signals()?;
        if let Some(periodic) = periodic.as_mut().filter(|periodic| last_call.elapsed() >= periodic.interval) {
            (periodic.call)(py)?;
            last_call = Instant::now();
        }
    }
}

/// The same work, where a defect ends the call and not the program: to Python a panic is no `Exception`.
pub(crate) fn guarded<T>(work: impl Future<Output = Outcome<T>>) -> impl Future<Output = Outcome<T>> {
    AssertUnwindSafe(work).catch_unwind().map(|caught| {
        let failed = |_| Err(Error::internal("the call ended in a defect of ipfrs: please report it").into());
        caught.unwrap_or_else(failed)
    })
}

/// Whether this is the thread that Python runs handlers of signals on.
fn takes_signals(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?.getattr(intern!(py, "ident"))?;
    main.eq(threading.call_method0(intern!(py, "get_ident"))?)
}

/// A thread that waits for its future.
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
    /// Polls whenever it is woken, until the future is ready or `patience` is over.
    fn drive<F: Future>(&self, mut work: Pin<&mut F>, waker: &Waker, patience: Option<Duration>) -> Option<F::Output> {
        let end = patience.map(|patience| Instant::now() + patience);
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

/// Lets others go first: a thread that waits gives the GIL away, and looks for signals; a task makes room for others.
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

/// Counts bytes that are copied, and [breathes](breathe) now and then.
#[derive(Debug, Default)]
pub(crate) struct Breath {
    bytes: usize,
}

impl Breath {
    /// So many bytes more were copied.
    pub(crate) async fn after(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= BREATH_BYTES {
            self.bytes = 0;
            breathe().await;
        }
    }
}

/// Everything that comes, with room for others now and then, however much of it is there at once.
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

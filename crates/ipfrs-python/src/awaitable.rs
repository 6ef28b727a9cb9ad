//! Rust futures as asyncio futures.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::asyncio::InvalidStateError;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, intern};
use tokio::task::AbortHandle;

use crate::attached::{self, with_gil};
use crate::error::{Failure, Outcome};
use crate::panics::guarded;
use crate::runtime::{Origin, runtime};

/// Returns the event loop that runs on this thread.
///
/// # Errors
/// Returns `RuntimeError` if there is none.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "asyncio"))?.call_method0(intern!(py, "get_running_loop"))
}

/// Returns `work` as an `asyncio.Future` of the running loop. The first poll happens on this thread, so that a result
/// that is ready immediately needs no other thread. The runtime continues the work. Cancelling the asyncio future
/// drops it.
pub(crate) fn awaitable<'py, T>(
    py: Python<'py>,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    let runtime = runtime().map_err(|e| Failure::from(e).into_exception(py))?;
    let event_loop = running_loop(py)?;
    let future = event_loop.call_method0(intern!(py, "create_future"))?;
    let mut work = Box::pin(guarded(work));
    let first = {
        let _entered = runtime.enter();
        // A no-op waker loses no wakeup, because the runtime polls a task immediately after it is spawned.
        with_gil(py, || work.as_mut().poll(&mut Context::from_waker(Waker::noop())))
    };
    if let Poll::Ready(outcome) = first {
        let delivery = Delivery { future: future.clone().unbind(), value: value(py, outcome) };
        delivery.__call__(py)?;
        return Ok(future);
    }
    let waiting = Arc::new(Waiting { event_loop: event_loop.unbind(), future: future.clone().unbind() });
    let task = runtime.spawn(async move {
        let outcome = work.await;
        attached::send(move |py| waiting.deliver(py, outcome));
    });
    future.call_method1(
        intern!(py, "add_done_callback"),
        (OnDone { task: task.abort_handle(), origin: Origin::here() },),
    )?;
    Ok(future)
}

fn value<T: for<'a> IntoPyObject<'a>>(py: Python<'_>, outcome: Outcome<T>) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(value) => value.into_py_any(py),
        Err(failure) => Err(failure.into_exception(py)),
    }
}

/// The asyncio future that waits for a result, and its loop.
struct Waiting {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Waiting {
    fn deliver<T: for<'a> IntoPyObject<'a>>(&self, py: Python<'_>, outcome: Outcome<T>) {
        let delivery = Delivery { future: self.future.clone_ref(py), value: value(py, outcome) };
        // If the loop is closed, no task waits for the result.
        let _ = self.event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), (delivery,));
    }
}

/// Callback through which the loop sets the result.
#[pyclass(frozen)]
struct Delivery {
    future: Py<PyAny>,
    value: PyResult<Py<PyAny>>,
}

#[pymethods]
impl Delivery {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        let set = match &self.value {
            Ok(value) => self.future.call_method1(py, intern!(py, "set_result"), (value,)),
            Err(error) => self.future.call_method1(py, intern!(py, "set_exception"), (error.value(py),)),
        };
        match set {
            // The asyncio future was cancelled.
            Err(error) if error.is_instance_of::<InvalidStateError>(py) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Callback of the loop for a future that is done or cancelled.
#[pyclass(frozen)]
struct OnDone {
    task: AbortHandle,
    origin: Origin,
}

#[pymethods]
impl OnDone {
    /// Aborts the task. This has no effect if the task has already finished.
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        if !self.origin.is_foreign() {
            self.task.abort();
        }
    }
}

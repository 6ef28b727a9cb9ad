//! Futures of Rust that asyncio waits for.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pyo3::exceptions::asyncio::InvalidStateError;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, intern};
use tokio::task::AbortHandle;

use crate::attached::{self, with_gil};
use crate::error::{Failure, Outcome};
use crate::run::guarded;
use crate::runtime::{is_forked, runtime};

/// The loop that runs on this thread.
///
/// # Errors
/// `RuntimeError` when there is none.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "asyncio"))?.call_method0(intern!(py, "get_running_loop"))
}

/// `work` as an `asyncio.Future` of the running loop. It begins at once, on this thread: what is ready then costs no other
/// thread. The rest is done by the runtime; cancelling the future drops it.
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
        // The task polls at once when it is spawned, so that whoever wakes nobody until then is not missed.
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
    future.call_method1(intern!(py, "add_done_callback"), (OnDone { task: task.abort_handle() },))?;
    Ok(future)
}

fn value<T: for<'a> IntoPyObject<'a>>(py: Python<'_>, outcome: Outcome<T>) -> PyResult<Py<PyAny>> {
    match outcome {
        Ok(value) => value.into_py_any(py),
        Err(failure) => Err(failure.into_exception(py)),
    }
}

/// Who waits, and where.
struct Waiting {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Waiting {
    fn deliver<T: for<'a> IntoPyObject<'a>>(&self, py: Python<'_>, outcome: Outcome<T>) {
        let delivery = Delivery { future: self.future.clone_ref(py), value: value(py, outcome) };
        // A loop that is closed has nobody waiting.
        let _ = self.event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), (delivery,));
    }
}

/// What the loop calls when a value has come.
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
            // It was cancelled meanwhile.
            Err(error) if error.is_instance_of::<InvalidStateError>(py) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// What the loop calls when nobody waits any more.
#[pyclass(frozen)]
struct OnDone {
    task: AbortHandle,
}

#[pymethods]
impl OnDone {
    /// Where the value has come there is nothing left to end.
    fn __call__(&self, _future: &Bound<'_, PyAny>) {
        if !is_forked() {
            self.task.abort();
        }
    }
}

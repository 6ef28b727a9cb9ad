//! Calls that report progress to Python, from the waiting thread or the asyncio loop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::{IntoPyObjectExt, intern};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::attached;
use crate::awaitable::running_loop;
use crate::backing::Progress;
use crate::error::Outcome;
use crate::run::{Mode, Periodic, run, wait};

/// Minimum time between two calls of the callback.
const INTERVAL: Duration = Duration::from_millis(100);

/// Runs `work` as [`run`] does, and calls `callback` periodically and at the end, with the number of bytes done and
/// the total (or `None`). An exception from the callback ends the work and is raised.
pub(crate) fn run_with_progress<'py, T>(
    py: Python<'py>,
    mode: Mode,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
    progress: Progress,
    callback: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'a> IntoPyObject<'a> + Send + 'static,
{
    match mode {
        Mode::Blocking => {
            let mut call = |py: Python<'_>| callback.call1(py, progress.now()).map(drop);
            let periodic = Periodic { interval: INTERVAL, call: &mut call };
            let done = wait(py, work, Some(periodic)).map_err(|failure| failure.into_exception(py))?;
            call(py)?;
            done.into_bound_py_any(py)
        }
        Mode::Asynchronous => {
            let event_loop = running_loop(py)?.unbind();
            let reporter = Reporter { places: Arc::new((event_loop, callback)) };
            run(py, mode, async move {
                let reporting = async {
                    loop {
                        sleep(INTERVAL).await;
                        if let Err(failure) = reporter.report(&progress).await {
                            return failure;
                        }
                    }
                };
                let done = tokio::select! {
                    biased;
                    done = work => done?,
                    failure = reporting => return Err(failure),
                };
                reporter.report(&progress).await?;
                Ok(done)
            })
        }
    }
}

/// A callback and the event loop that calls it.
struct Reporter {
    /// The loop and the callback. Shared, because cloning a Python reference requires the GIL.
    places: Arc<(Py<PyAny>, Py<PyAny>)>,
}

impl Reporter {
    /// Schedules a call on the loop, and waits for it. Returns the exception of the callback or of a closed loop.
    async fn report(&self, progress: &Progress) -> Outcome<()> {
        let (sender, receiver) = oneshot::channel();
        let (done, total) = progress.now();
        let places = Arc::clone(&self.places);
        let schedule = move |py: Python<'_>| {
            let (event_loop, callback) = &*places;
            let call = Call { callback: callback.clone_ref(py), done, total, raised: Mutex::new(Some(sender)) };
            event_loop.call_method1(py, intern!(py, "call_soon_threadsafe"), (call,)).map(drop)
        };
        attached::call(schedule).await??;
        // A loop that ends without the call drops the sender. In this case, no task waits for the work any more.
        Ok(receiver.await.unwrap_or(Ok(()))?)
    }
}

/// One scheduled call of the callback.
#[pyclass(frozen)]
struct Call {
    callback: Py<PyAny>,
    done: u64,
    total: Option<u64>,
    raised: Mutex<Option<oneshot::Sender<PyResult<()>>>>,
}

#[pymethods]
impl Call {
    fn __call__(&self, py: Python<'_>) {
        let outcome = self.callback.call1(py, (self.done, self.total)).map(drop);
        if let Some(raised) = self.raised.lock().take() {
            // If the task was cancelled, the receiver no longer exists.
            let _ = raised.send(outcome);
        }
    }
}

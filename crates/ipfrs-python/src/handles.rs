//! What goes on over several calls: bytes that are written piece by piece, and bytes that are read so.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::{Error, Result};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::backing::{Added, Pieces};
use crate::buffer::{Borrowed, View};
use crate::error::{Failure, Outcome};
use crate::run::{Mode, breathe, run};
use crate::runtime::{Kept, is_forked, runtime};

/// Bytes of a piece, and how many pieces may wait: 2 MiB for each writer.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_AHEAD: usize = 8;

/// What an import gives in the end.
#[derive(Debug)]
pub(crate) enum Imported {
    File(Added),
    Roots(Vec<String>),
}

impl<'py> IntoPyObject<'py> for Imported {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::File(added) => added.into_tuple().into_bound_py_any(py),
            Self::Roots(roots) => roots.into_bound_py_any(py),
        }
    }
}

/// Takes the bytes of a file, or of a CAR, as they come. Dropped or aborted before `finish`, nothing is kept.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Writer {
    open: Kept<Mutex<Option<Open>>>,
    abort: AbortHandle,
    mode: Mode,
}

/// An import that goes on.
struct Open {
    /// `None` is the end: a channel that closes without it is a writer that was dropped.
    pieces: mpsc::Sender<Option<Bytes>>,
    import: AbortOnDropHandle<Outcome<Imported>>,
}

impl Writer {
    /// Begins `import` with what will be written. It ends when `ending` is cancelled.
    pub(crate) fn begin<F>(import: impl FnOnce(Pieces) -> F, ending: CancellationToken, mode: Mode) -> Result<Self>
    where
        F: Future<Output = Result<Imported>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let next = |mut receiver: mpsc::Receiver<Option<Bytes>>| async move {
            match receiver.recv().await {
                Some(Some(piece)) => Some((Ok(piece), receiver)),
                Some(None) => None,
                None => Some((Err(Error::invalid("the writer was dropped before it was finished")), receiver)),
            }
        };
        let import = import(stream::unfold(receiver, next).fuse().boxed());
        let until_end = async move {
            tokio::select! {
                biased;
                () = ending.cancelled() => Err(Failure::Closed),
                imported = import => Ok(imported?),
            }
        };
        let import = AbortOnDropHandle::new(runtime()?.spawn(until_end));
        let abort = import.abort_handle();
        Ok(Self { open: Kept::new(Arc::new(Mutex::new(Some(Open { pieces: sender, import })))), abort, mode })
    }
}

#[pymethods]
impl Writer {
    /// Writes all of `data`, and waits until there is room for it.
    fn write<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (data, open) = (Borrowed::readable(data)?, self.open.share());
        run(py, self.mode, async move {
            if data.len() > PIECE_BYTES {
                breathe().await;
            }
            let mut open = open.lock().await;
            let Some(import) = open.as_mut() else { return Err(Failure::Closed) };
            let mut at = 0;
            while at < data.len() {
                let piece = data.copy(at, PIECE_BYTES);
                at += piece.len();
                if import.pieces.send(Some(piece)).await.is_err() {
                    return Err(failure(open.take()).await);
                }
            }
            Ok(())
        })
    }

    /// Waits until everything is durable.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open.share();
        run(py, self.mode, async move {
            let Some(Open { pieces, import }) = open.lock().await.take() else { return Err(Failure::Closed) };
            // Where nobody takes it any more, the import says why.
            let _ = pieces.send(None).await;
            ended(import).await
        })
    }

    /// Ends it: what was written stays unpinned, for the next collection to remove.
    fn abort(&self) {
        // In the child of a fork it is the parent's to end.
        if !is_forked() {
            self.abort.abort();
        }
    }
}

async fn ended(import: AbortOnDropHandle<Outcome<Imported>>) -> Outcome<Imported> {
    match import.await {
        Ok(imported) => imported,
        Err(e) if e.is_cancelled() => Err(Failure::Closed),
        Err(e) => Err(Error::internal("an import ended unexpectedly").with_source(e).into()),
    }
}

/// Why an import takes nothing any more.
async fn failure(open: Option<Open>) -> Failure {
    let Some(Open { import, .. }) = open else { return Failure::Closed };
    match ended(import).await {
        Err(failure) => failure,
        Ok(_) => Error::invalid("there is more than the import takes: what comes behind a CAR is not read").into(),
    }
}

/// Bytes on their way, in pieces of at most some megabytes.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Chunks {
    pieces: Kept<Mutex<Option<Pieces>>>,
    /// Bytes in all, where that is known.
    #[pyo3(get)]
    size: Option<u64>,
    closed: Arc<AtomicBool>,
    mode: Mode,
}

impl Chunks {
    /// Gives `pieces` out until whatever they come from is `closed`.
    pub(crate) fn new(pieces: Pieces, size: Option<u64>, closed: Arc<AtomicBool>, mode: Mode) -> Self {
        Self { pieces: Kept::new(Arc::new(Mutex::new(Some(pieces)))), size, closed, mode }
    }
}

#[pymethods]
impl Chunks {
    /// The next piece, or `None` at the end and after it.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (pieces, closed) = (self.pieces.share(), Arc::clone(&self.closed));
        run(py, self.mode, async move {
            let mut pieces = pieces.lock().await;
            if closed.load(Ordering::Acquire) {
                *pieces = None;
                return Err(Failure::Closed);
            }
            let Some(left) = pieces.as_mut() else { return Ok(None) };
            let piece = left.next().await;
            // What ended, well or not, is not asked again.
            if !matches!(piece, Some(Ok(_))) {
                *pieces = None;
            }
            Ok(piece.transpose()?.map(View))
        })
    }

    /// Reads no further.
    fn close(&self, py: Python<'_>) {
        if is_forked() {
            return;
        }
        if let Ok(mut pieces) = self.pieces.share().try_lock() {
            let dropped = pieces.take();
            py.detach(|| drop(dropped));
        }
    }
}

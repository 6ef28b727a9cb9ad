//! Objects for operations that span several calls: writers and streams of pieces.

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
use crate::runtime::{Kept, runtime};

/// Size of a piece in bytes. At most [`PIECES_AHEAD`] pieces are queued, which is 2 MiB per writer.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_AHEAD: usize = 8;

/// Result of a finished import.
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

/// A sink for the bytes of a file or a CAR. If it is dropped or aborted before `finish`, nothing is kept.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Writer {
    open: Kept<Mutex<Option<Open>>>,
    abort: AbortHandle,
    mode: Mode,
}

/// A running import.
struct Open {
    /// Queue of pieces. `None` marks the end. A channel that closes without it means that the writer was dropped.
    pieces: mpsc::Sender<Option<Bytes>>,
    import: AbortOnDropHandle<Outcome<Imported>>,
}

impl Writer {
    /// Starts `import` with the pieces that will be written. Cancelling `ending` ends it.
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
    /// Writes all of `data`, waiting for space in the queue.
    fn write<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (data, open) = (Borrowed::readable(data)?, self.open.share(py)?);
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

    /// Finishes the import. Waits until all data is durable.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open.share(py)?;
        run(py, self.mode, async move {
            let Some(Open { pieces, import }) = open.lock().await.take() else { return Err(Failure::Closed) };
            // If the import has already ended, its result contains the reason.
            let _ = pieces.send(None).await;
            ended(import).await
        })
    }

    /// Aborts the import. Blocks that were written remain unpinned, and the next garbage collection removes them.
    fn abort(&self) {
        // In a forked child, the import belongs to the parent.
        if self.open.here().is_some() {
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

/// Returns the reason that an import no longer accepts data.
async fn failure(open: Option<Open>) -> Failure {
    let Some(Open { import, .. }) = open else { return Failure::Closed };
    match ended(import).await {
        Err(failure) => failure,
        Ok(_) => Error::invalid("the import accepts no more data: bytes after the end of a CAR are not read").into(),
    }
}

/// A stream of bytes, in pieces of at most a few megabytes.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Chunks {
    pieces: Kept<Mutex<Option<Pieces>>>,
    /// Total size in bytes, if known.
    #[pyo3(get)]
    size: Option<u64>,
    closed: Arc<AtomicBool>,
    mode: Mode,
}

impl Chunks {
    /// Creates a stream that returns `pieces` until `closed` is set by their backend.
    pub(crate) fn new(pieces: Pieces, size: Option<u64>, closed: Arc<AtomicBool>, mode: Mode) -> Self {
        Self { pieces: Kept::new(Arc::new(Mutex::new(Some(pieces)))), size, closed, mode }
    }
}

#[pymethods]
impl Chunks {
    /// Returns the next piece, or `None` at the end and on later calls.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (pieces, closed) = (self.pieces.share(py)?, Arc::clone(&self.closed));
        run(py, self.mode, async move {
            let mut pieces = pieces.lock().await;
            if closed.load(Ordering::Acquire) {
                *pieces = None;
                return Err(Failure::Closed);
            }
            let Some(left) = pieces.as_mut() else { return Ok(None) };
            let piece = left.next().await;
            // Do not poll a stream after its end or an error.
            if !matches!(piece, Some(Ok(_))) {
                *pieces = None;
            }
            Ok(piece.transpose()?.map(View))
        })
    }

    /// Stops reading and drops the stream.
    fn close(&self, py: Python<'_>) {
        if let Some(Ok(mut pieces)) = self.pieces.here().map(|pieces| pieces.try_lock()) {
            let dropped = pieces.take();
            py.detach(|| drop(dropped));
        }
    }
}

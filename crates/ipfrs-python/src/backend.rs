//! The class that Python calls: a [`Backing`] with blocking or asynchronous methods.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::backing::{AddOptions, Backing, BlockOptions, Entry, Pieces, PinEntry, Progress, Stat};
use crate::buffer::{Borrowed, View};
use crate::error::{Failure, Outcome};
use crate::handles::{Chunks, Imported, Writer};
use crate::local::Local;
use crate::payload::{Memory, NameText, Shape, fill, gather};
use crate::progress::run_with_progress;
use crate::remote::Remote;
use crate::run::{Mode, breathe, run};
use crate::runtime::{Kept, Process, runtime};

/// Maximum number of bytes that are copied while holding the GIL.
const SMALL_BYTES: usize = 64 * 1024;

/// A node or a client of a daemon. Each method creates one future, and either waits for it or passes it to asyncio.
#[pyclass(frozen, module = "ipfrs._native")]
pub(crate) struct Backend {
    /// The backing in this process. The lock is held only with the GIL, so never during a fork.
    open: Mutex<Open>,
    /// The daemon of a client, which a forked child connects to again.
    endpoint: Option<Endpoint>,
    closed: Arc<AtomicBool>,
    mode: Mode,
}

/// A backing in one process.
struct Open {
    backing: Kept<dyn Backing>,
    /// Cancelled by `close`, which ends operations that span several calls.
    ending: Kept<CancellationToken>,
}

impl Open {
    /// Wraps `backing`, which is closed when the interpreter exits, if not before.
    fn new(backing: Arc<dyn Backing>) -> Self {
        let ending = CancellationToken::new();
        Process::current().close_at_exit(&backing, &ending);
        Self { backing: Kept::new(backing), ending: Kept::new(Arc::new(ending)) }
    }
}

/// How to reach a daemon.
struct Endpoint {
    url: String,
    token: Option<String>,
    timeout: Option<f64>,
}

impl Endpoint {
    fn connect(&self, py: Python<'_>) -> PyResult<Remote> {
        let remote = Remote::new(&self.url, self.token.as_deref(), self.timeout);
        remote.map_err(|e| Failure::from(e).into_exception(py))
    }
}

impl Backend {
    fn over(open: Open, endpoint: Option<Endpoint>, asynchronous: bool) -> Self {
        let mode = if asynchronous { Mode::Asynchronous } else { Mode::Blocking };
        Self { open: Mutex::new(open), endpoint, closed: Arc::new(AtomicBool::new(false)), mode }
    }

    /// Returns the backing and its token. In a forked child, a client is created anew.
    ///
    /// # Errors
    /// `ForkedError` in a child for the node of the parent.
    fn parts(&self, py: Python<'_>) -> PyResult<(Arc<dyn Backing>, Arc<CancellationToken>)> {
        // No Python object is created while the lock is held, because another thread may wait for it with the GIL.
        let here = |open: &Open| open.backing.here().cloned().zip(open.ending.here().cloned());
        if let Some(parts) = here(&self.open.lock()) {
            return Ok(parts);
        }
        let Some(endpoint) = &self.endpoint else { return Err(Failure::Forked.into_exception(py)) };
        let connected = Open::new(Arc::new(endpoint.connect(py)?));
        let mut open = self.open.lock();
        // Another thread may have connected in the meantime.
        let parts = here(&open).or_else(|| {
            let parts = here(&connected);
            // The connection of the parent is leaked, not closed.
            *open = connected;
            parts
        });
        drop(open);
        parts.ok_or_else(|| Failure::Forked.into_exception(py))
    }

    /// Returns the backing.
    ///
    /// # Errors
    /// Returns an error if this backend is closed, or as [`Self::parts`].
    fn backing(&self, py: Python<'_>) -> PyResult<Arc<dyn Backing>> {
        let (backing, _) = self.parts(py)?;
        if self.closed.load(Ordering::Acquire) { Err(Failure::Closed.into_exception(py)) } else { Ok(backing) }
    }

    /// Converts an error of `work` to [`Failure::Closed`] if the backend has been closed in the meantime.
    fn unless_closed<T>(
        &self,
        work: impl Future<Output = Outcome<T>> + Send + 'static,
    ) -> impl Future<Output = Outcome<T>> + Send + 'static {
        let closed = Arc::clone(&self.closed);
        async move {
            match work.await {
                Err(Failure::Error(_)) if closed.load(Ordering::Acquire) => Err(Failure::Closed),
                outcome => outcome,
            }
        }
    }

    fn call<'py, T, F>(&self, py: Python<'py>, work: impl FnOnce(Arc<dyn Backing>) -> F) -> PyResult<Bound<'py, PyAny>>
    where
        T: for<'a> IntoPyObject<'a> + Send + 'static,
        F: Future<Output = Outcome<T>> + Send + 'static,
    {
        let backing = self.backing(py)?;
        run(py, self.mode, self.unless_closed(work(backing)))
    }

    /// Starts an import that is written in pieces.
    fn begin<'py, F>(
        &self,
        py: Python<'py>,
        import: impl FnOnce(Arc<dyn Backing>, Pieces) -> F + Send + 'static,
    ) -> PyResult<Bound<'py, PyAny>>
    where
        F: Future<Output = ipfrs_core::Result<Imported>> + Send + 'static,
    {
        let (ending, mode) = (self.parts(py)?.1.child_token(), self.mode);
        self.call(py, move |backing| async move {
            // Report errors of opening here, and not when the first piece is written.
            backing.open().await?;
            Ok(Writer::begin(move |pieces| import(backing, pieces), ending, mode)?)
        })
    }
}

#[pymethods]
impl Backend {
    /// Creates a backend for the node of a repo. The first call that needs the node opens it.
    #[staticmethod]
    #[pyo3(signature = (path, config, asynchronous))]
    fn node(py: Python<'_>, path: Option<PathBuf>, config: Option<String>, asynchronous: bool) -> PyResult<Self> {
        let local = Local::new(path, config.as_deref()).map_err(|e| Failure::from(e).into_exception(py))?;
        Ok(Self::over(Open::new(Arc::new(local)), None, asynchronous))
    }

    /// Creates a backend for the daemon at a URL. Sends no request yet.
    #[staticmethod]
    #[pyo3(signature = (url, token, timeout, asynchronous))]
    fn client(
        py: Python<'_>,
        url: String,
        token: Option<String>,
        timeout: Option<f64>,
        asynchronous: bool,
    ) -> PyResult<Self> {
        let endpoint = Endpoint { url, token, timeout };
        let remote = endpoint.connect(py)?;
        Ok(Self::over(Open::new(Arc::new(remote)), Some(endpoint), asynchronous))
    }

    /// Whether this object was inherited from the parent of the process, and was not used in this process.
    #[getter]
    fn is_inherited(&self) -> bool {
        self.open.lock().backing.origin().is_foreign()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn open<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.open().await?) })
    }

    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (backing, ending) = self.parts(py)?;
        self.closed.store(true, Ordering::Release);
        ending.cancel();
        run(py, self.mode, async move { Ok(backing.close().await?) })
    }

    fn version<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.version().await?) })
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.stats().await?) })
    }

    fn put<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        codec: String,
        mhtype: String,
        pin: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data = Borrowed::readable(data)?;
        self.call(py, |backing| async move {
            let data = copy_all(vec![data]).await.pop().unwrap_or_default();
            Ok(backing.put(data, BlockOptions { codec, mhtype, pin }).await?)
        })
    }

    fn put_many<'py>(
        &self,
        py: Python<'py>,
        blocks: Vec<Bound<'py, PyAny>>,
        codec: String,
        mhtype: String,
        pin: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let blocks = blocks.iter().map(Borrowed::readable).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |backing| async move {
            Ok(backing.put_many(copy_all(blocks).await, BlockOptions { codec, mhtype, pin }).await?)
        })
    }

    fn get<'py>(&self, py: Python<'py>, cid: String) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(View(backing.get(cid).await?)) })
    }

    fn get_many<'py>(&self, py: Python<'py>, cids: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move {
            let blocks = backing.get_many(cids).await?;
            Ok(blocks.into_iter().map(|block| block.map(View)).collect::<Vec<_>>())
        })
    }

    fn has_many<'py>(&self, py: Python<'py>, cids: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.has_many(cids).await?) })
    }

    fn size<'py>(&self, py: Python<'py>, cid: String) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.size(cid).await?) })
    }

    fn remove<'py>(&self, py: Python<'py>, cids: Vec<String>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, move |backing| async move { Ok(backing.remove(cids, force).await?) })
    }

    fn add<'py>(&self, py: Python<'py>, data: &Bound<'py, PyAny>, options: AddOptions) -> PyResult<Bound<'py, PyAny>> {
        // Borrow until the end of the call. The thread that sends the data to a daemon could only release it later.
        let data = Arc::new(Borrowed::readable(data)?);
        self.call(py, |backing| async move {
            if data.len() > SMALL_BYTES {
                breathe().await;
            }
            Ok(backing.add(data.pieces(), options).await?.into_tuple())
        })
    }

    fn add_path<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        options: AddOptions,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (backing, reported) = (self.backing(py)?, Progress::default());
        let counted = progress.is_some().then(|| reported.clone());
        let work = async move { Ok(backing.add_path(path, options, counted).await?.into_tuple()) };
        let work = self.unless_closed(work);
        match progress {
            Some(callback) => run_with_progress(py, self.mode, work, reported, callback),
            None => run(py, self.mode, work),
        }
    }

    fn begin_add<'py>(&self, py: Python<'py>, options: AddOptions) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, |backing, pieces| async move { backing.add(pieces, options).await.map(Imported::File) })
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        path: NameText,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mode = self.mode;
        self.call(py, move |backing| async move { gather(backing.read(path.0, offset, length).await?, mode).await })
    }

    fn readinto<'py>(
        &self,
        py: Python<'py>,
        path: NameText,
        buffer: &Bound<'py, PyAny>,
        offset: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Borrowed::writable(buffer)?;
        self.call(py, move |backing| async move {
            let content = backing.read(path.0, offset, Some(buffer.len() as u64)).await?;
            Ok(fill(content, &buffer).await?)
        })
    }

    fn chunks<'py>(
        &self,
        py: Python<'py>,
        path: NameText,
        offset: u64,
        length: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (closed, mode) = (Arc::clone(&self.closed), self.mode);
        self.call(py, move |backing| async move {
            let content = backing.read(path.0, offset, length).await?;
            Ok(Chunks::new(content.pieces, Some(content.size), closed, mode))
        })
    }

    fn list<'py>(&self, py: Python<'py>, path: NameText) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move {
            Ok(backing.list(path.0).await?.into_iter().map(Entry::into_tuple).collect::<Vec<_>>())
        })
    }

    fn stat<'py>(&self, py: Python<'py>, path: NameText) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(Stat::into_tuple(backing.stat(path.0).await?)) })
    }

    fn resolve<'py>(&self, py: Python<'py>, path: NameText) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.resolve(path.0).await?) })
    }

    fn pin<'py>(
        &self,
        py: Python<'py>,
        path: NameText,
        recursive: bool,
        name: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, move |backing| async move { Ok(backing.pin(path.0, recursive, name).await?) })
    }

    fn unpin<'py>(&self, py: Python<'py>, path: NameText, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, move |backing| async move { Ok(backing.unpin(path.0, recursive).await?) })
    }

    fn pins<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move {
            Ok(backing.pins().await?.into_iter().map(PinEntry::into_tuple).collect::<Vec<_>>())
        })
    }

    fn export_car<'py>(&self, py: Python<'py>, path: NameText) -> PyResult<Bound<'py, PyAny>> {
        let (closed, mode) = (Arc::clone(&self.closed), self.mode);
        self.call(
            py,
            move |backing| async move { Ok(Chunks::new(backing.export_car(path.0).await?, None, closed, mode)) },
        )
    }

    fn begin_import_car<'py>(&self, py: Python<'py>, pin_roots: bool) -> PyResult<Bound<'py, PyAny>> {
        self.begin(py, move |backing, pieces| async move {
            backing.import_car(pieces, pin_roots).await.map(Imported::Roots)
        })
    }

    fn collect<'py>(&self, py: Python<'py>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, move |backing| async move { Ok(backing.collect(force).await?) })
    }

    fn tensors<'py>(&self, py: Python<'py>, path: NameText) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.tensors(path.0).await?) })
    }

    fn tensor<'py>(&self, py: Python<'py>, path: NameText, name: String, slice: String) -> PyResult<Bound<'py, PyAny>> {
        let mode = self.mode;
        self.call(py, move |backing| async move {
            let tensor = backing.tensor(path.0, name, slice).await?;
            Ok((tensor.dtype, Shape(tensor.shape), Memory::of(tensor.content, mode).await?))
        })
    }

    fn tensor_into<'py>(
        &self,
        py: Python<'py>,
        path: NameText,
        name: String,
        slice: String,
        buffer: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let buffer = Borrowed::writable(buffer)?;
        self.call(py, move |backing| async move {
            let tensor = backing.tensor(path.0, name, slice).await?;
            let (bytes, room) = (tensor.content.size, buffer.len() as u64);
            if bytes != room {
                let shape = tensor.shape;
                let message = format!(
                    "the buffer has {room} bytes, but the tensor has {bytes}: pass one of shape {shape:?} and type {}",
                    tensor.dtype
                );
                return Err(ipfrs_core::Error::invalid(message).into());
            }
            fill(tensor.content, &buffer).await?;
            Ok((tensor.dtype, Shape(tensor.shape)))
        })
    }

    fn tensor_stats<'py>(&self, py: Python<'py>, path: NameText, name: String) -> PyResult<Bound<'py, PyAny>> {
        self.call(py, |backing| async move { Ok(backing.tensor_stats(path.0, name).await?) })
    }
}

/// Copies borrowed buffers and releases them.
async fn copy_all(borrowed: Vec<Borrowed>) -> Vec<bytes::Bytes> {
    if borrowed.iter().map(Borrowed::len).sum::<usize>() > SMALL_BYTES {
        breathe().await;
    }
    borrowed.into_iter().map(|data| data.copy(0, data.len())).collect()
}

impl Drop for Backend {
    fn drop(&mut self) {
        let open = self.open.get_mut();
        let (Some(backing), Some(ending)) = (open.backing.here(), open.ending.here()) else { return };
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        ending.cancel();
        // `drop` cannot wait for the close, or report its result.
        let backing = Arc::clone(backing);
        if let Ok(runtime) = runtime() {
            runtime.spawn(async move { drop(backing.close().await) });
        }
    }
}

//! Conversion of results to Python objects.

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::{Error, Result};
use ipfrs_node::LinkName;
use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyMemoryView, PyString, PyTuple};

use crate::attached;
use crate::backing::{Added, Content, Entry, PinEntry, Stat, TensorList};
use crate::buffer::{Borrowed, NewBytes, View};
use crate::error::Outcome;
use crate::run::{Breath, Mode, breathe};

/// Maximum number of bytes that are copied while holding the GIL. Releasing it would cost more.
const SMALL_BYTES: u64 = 64 * 1024;

/// Runs work that needs the GIL in the middle of a call.
async fn with_python<T: Send + 'static>(
    mode: Mode,
    work: impl FnOnce(Python<'_>) -> PyResult<T> + Send + 'static,
) -> Outcome<T> {
    match mode {
        Mode::Blocking => Ok(Python::attach(work)?),
        Mode::Asynchronous => Ok(attached::call(work).await??),
    }
}

/// Returns all of `content` as one `bytes` object, which is allocated once and filled without the GIL.
pub(crate) async fn gather(mut content: Content, mode: Mode) -> Outcome<Py<PyBytes>> {
    let size = content.size;
    let mut bytes = with_python(mode, move |py| NewBytes::allocate(py, size)).await?;
    if size > SMALL_BYTES {
        breathe().await;
    }
    let mut breath = Breath::default();
    while let Some(piece) = content.pieces.next().await {
        let piece = piece?;
        bytes.push(&piece)?;
        breath.after(piece.len()).await;
    }
    Ok(bytes.finish()?)
}

/// Copies all of `content` to the start of a buffer, and returns its size in bytes.
pub(crate) async fn fill(mut content: Content, buffer: &Borrowed) -> Result<usize> {
    if content.size > SMALL_BYTES {
        breathe().await;
    }
    let (mut filled, mut breath) = (0, Breath::default());
    while let Some(piece) = content.pieces.next().await {
        let piece = piece?;
        buffer.put(filled, &piece)?;
        filled += piece.len();
        breath.after(piece.len()).await;
    }
    match filled as u64 == content.size {
        true => Ok(filled),
        false => Err(Error::corrupt(format!("received only {filled} of {} bytes", content.size))),
    }
}

/// Bytes that Python receives as a read-only `memoryview`, either of the block that contains them or of a copy.
pub(crate) enum Memory {
    Block(Bytes),
    Copy(Py<PyBytes>),
}

impl Memory {
    /// Reads all of `content`, without a copy if it is a single piece.
    pub(crate) async fn of(mut content: Content, mode: Mode) -> Outcome<Self> {
        let first = content.pieces.next().await.transpose()?.unwrap_or_default();
        if first.len() as u64 == content.size {
            return Ok(Self::Block(first));
        }
        let pieces = futures::stream::iter([Ok(first)]).chain(content.pieces).boxed();
        Ok(Self::Copy(gather(Content { size: content.size, pieces }, mode).await?))
    }
}

impl<'py> IntoPyObject<'py> for Memory {
    type Target = PyMemoryView;
    type Output = Bound<'py, PyMemoryView>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        match self {
            Self::Block(bytes) => View(bytes).into_pyobject(py),
            Self::Copy(bytes) => PyMemoryView::from(bytes.bind(py)),
        }
    }
}

/// A name or path as a Python string. Bytes that are not UTF-8 become surrogates, as in file names (`os.fsdecode`,
/// PEP 383), independently of the locale.
pub(crate) struct NameText(pub(crate) LinkName);

/// Encoding and error handler that represent bytes that are not UTF-8 as surrogates.
const SURROGATES: (&str, &str) = ("utf-8", "surrogateescape");

impl<'a, 'py> FromPyObject<'a, 'py> for NameText {
    type Error = PyErr;

    fn extract(object: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let error = match object.extract::<String>() {
            Ok(text) => return Ok(Self(text.into())),
            Err(error) => error,
        };
        if !error.is_instance_of::<PyUnicodeEncodeError>(object.py()) {
            return Err(error);
        }
        let bytes = object.call_method1(intern!(object.py(), "encode"), SURROGATES)?;
        Ok(Self(bytes.extract::<Vec<u8>>()?.into()))
    }
}

impl<'py> IntoPyObject<'py> for NameText {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.0.to_str() {
            Some(text) => Ok(PyString::new(py, text).into_any()),
            None => PyBytes::new(py, self.0.as_bytes()).call_method1(intern!(py, "decode"), SURROGATES),
        }
    }
}

/// Sizes of dimensions, converted to a tuple.
pub(crate) struct Shape(pub(crate) Vec<u64>);

impl<'py> IntoPyObject<'py> for Shape {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0)
    }
}

impl<'py> IntoPyObject<'py> for TensorList {
    type Target = PyTuple;
    type Output = Bound<'py, PyTuple>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let metadata = PyDict::new(py);
        for (key, text) in self.metadata {
            metadata.set_item(key, text)?;
        }
        let tensors: Vec<_> = self
            .tensors
            .into_iter()
            .map(|tensor| (tensor.name, tensor.dtype, Shape(tensor.shape), tensor.bytes, tensor.offset))
            .collect();
        (self.cid, self.format, metadata, tensors).into_pyobject(py)
    }
}

impl Added {
    pub(crate) fn into_tuple(self) -> (String, u64) {
        (self.cid, self.size)
    }
}

impl Entry {
    pub(crate) fn into_tuple(self) -> (NameText, String, &'static str, u64) {
        (NameText(self.name), self.cid, self.kind, self.size)
    }
}

/// `cid, kind, size, blocks, mode, mtime`.
pub(crate) type StatTuple = (String, &'static str, u64, Option<u64>, Option<u32>, Option<f64>);

impl Stat {
    pub(crate) fn into_tuple(self) -> StatTuple {
        (self.cid, self.kind, self.size, self.links, self.mode, self.mtime)
    }
}

impl PinEntry {
    pub(crate) fn into_tuple(self) -> (String, &'static str, String) {
        (self.cid, self.kind, self.name)
    }
}

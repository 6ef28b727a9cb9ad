//! Memory lent to Python, and memory borrowed from Python, without copies.
//!
//! This module contains all `unsafe` code of this crate. The stable ABI includes the buffer protocol only since
//! Python 3.11. The functions and the two slots that are used here exist with the same layouts in every version since
//! 3.9, so they are declared here.
//!
//! 1. [`View`] lends memory, as a `memoryview` of a small object that owns a [`Bytes`]. The view keeps the object
//!    alive as long as the view, or anything derived from it, lives. The object keeps the `Bytes` alive, and a
//!    `Bytes` over a mapped pack keeps the mapping and its file alive. The memory therefore stays valid after the
//!    node was closed, and after its pack was removed from disk. It is read-only for Python as well as for Rust.
//! 2. [`Borrowed`] borrows memory. While it lives, the owner can neither free nor move the memory (`bytearray`
//!    refuses to grow, and NumPy to resize). Other code may *write* to it concurrently, as it may while a file is
//!    read into it. There is therefore never a reference into the memory, only copies through raw pointers, whose
//!    worst outcome is mixed bytes.
//! 3. [`NewBytes`] fills a `bytes` object that no other code has seen yet.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::{Error, Result};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMemoryView, PyType};

use crate::attached;
use crate::backing::Pieces;
use crate::error::invalid;
use crate::run::breathe;
use crate::runtime::Origin;

/// Size of the pieces in which a borrowed buffer is copied, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// Number of pieces that are copied before yielding.
const PIECES_PER_BREATH: usize = 128;

/// `PyBUF_SIMPLE` and `PyBUF_WRITABLE`.
const READABLE: c_int = 0;
const WRITABLE: c_int = 1;

/// `Py_bf_getbuffer`. pyo3 defines it only for versions in which the stable ABI includes it.
const GET_BUFFER_SLOT: c_int = 1;

/// `Py_TPFLAGS_IMMUTABLETYPE`. Python supports it since 3.10, and 3.9 ignores the bit.
const IMMUTABLE_TYPE: u32 = 1 << 8;

/// CPython's `Py_buffer`, whose layout has not changed since 3.0.
#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
    fn PyBuffer_FillInfo(
        view: *mut RawBuffer,
        object: *mut ffi::PyObject,
        buf: *mut c_void,
        len: ffi::Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// Bytes that Python receives as a read-only `memoryview`.
#[derive(Debug, Clone)]
pub(crate) struct View(pub(crate) Bytes);

/// Layout of the Python object that exports a view.
#[repr(C)]
struct Exporter {
    head: ffi::PyObject,
    bytes: Bytes,
    origin: Origin,
}

impl<'py> IntoPyObject<'py> for View {
    type Target = PyMemoryView;
    type Output = Bound<'py, PyMemoryView>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(&export(py, self.0)?)
    }
}

/// Creates the Python object that owns `bytes`.
fn export(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = TYPE.get_or_try_init(py, || exporter_type(py))?.bind(py);
    // SAFETY: the GIL is held, and `class` is the type of `exporter_type`, whose instances have room for an
    // `Exporter`. PyType_GenericAlloc returns a new, zeroed instance, or NULL with an exception set. Both fields are
    // written before other code sees the object, so that `get_buffer` and `dealloc` always find it initialized.
    // Nothing in between can fail.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.as_type_ptr(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        let exporter = object.as_ptr().cast::<Exporter>();
        ptr::write(&raw mut (*exporter).bytes, bytes);
        ptr::write(&raw mut (*exporter).origin, Origin::here());
        Ok(object)
    }
}

fn exporter_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_new, pfunc: refuse_new as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        ffi::PyType_Slot { slot: GET_BUFFER_SLOT, pfunc: get_buffer as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"ipfrs._native.Block".as_ptr(),
        basicsize: size_of::<Exporter>() as c_int,
        itemsize: 0,
        // The type is not a base type and has no cycle collector, because an instance refers to no Python object but
        // its type. The type is immutable, because another `__new__` could create instances with uninitialized
        // `bytes`.
        flags: ffi::Py_TPFLAGS_DEFAULT as u32 | IMMUTABLE_TYPE,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the GIL is held. The spec and its slots, terminated by slot 0, live through the call, which copies
    // them. The name is static. Each function has the signature of its slot. `Exporter` begins with `PyObject`, as
    // all objects do.
    unsafe {
        let class = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        Ok(class.cast_into::<PyType>()?.unbind())
    }
}

/// Python code cannot create instances, because their `bytes` would be uninitialized.
unsafe extern "C" fn refuse_new(
    _class: *mut ffi::PyTypeObject,
    _args: *mut ffi::PyObject,
    _kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls a slot with the GIL held. The text is static, and the exception type lives as long as
    // Python.
    unsafe {
        ffi::PyErr_SetString(ffi::PyExc_TypeError, c"ipfrs makes these itself".as_ptr());
    }
    ptr::null_mut()
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython calls this once, with the GIL held, for an object of this type without any references, so no
    // view is left. `bytes` and `origin` were written by `export`, and are not used again. PyObject_Free belongs to the
    // allocator of the object, because its type has no cycle collector. The object held a reference to its type, as
    // instances of heap types do.
    unsafe {
        let class = ffi::Py_TYPE(object);
        // In a forked child, the mapping belongs to the parent, and releasing it might wait for the parent's locks.
        if !(*object.cast::<Exporter>()).origin.is_foreign() {
            ptr::drop_in_place(&raw mut (*object.cast::<Exporter>()).bytes);
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn get_buffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int {
    // SAFETY: CPython calls a slot with the GIL held, with an object of this type and a view to fill. The bytes do
    // not move or change while the object lives, and PyBuffer_FillInfo makes the view hold a reference to it. It
    // rejects requests for writable views. A `Bytes` has at most isize::MAX bytes.
    unsafe {
        let bytes = &(*object.cast::<Exporter>()).bytes;
        PyBuffer_FillInfo(view, object, bytes.as_ptr().cast_mut().cast(), bytes.len() as _, 1, flags)
    }
}

/// Borrowed memory of a Python object. Dropping it releases the memory.
pub(crate) struct Borrowed {
    /// Boxed, because the owner may store its address.
    view: Option<Box<RawBuffer>>,
    /// The thread that borrowed the memory, which is a thread that can hold the GIL.
    thread: ThreadId,
    /// The process that borrowed the memory.
    origin: Origin,
}

// SAFETY: the memory does not move before PyBuffer_Release, whichever thread accesses it, and it is only accessed
// through raw pointers (item 2 of the module documentation). The rest of the view belongs to the owner, and only
// PyBuffer_Release accesses it, with the GIL held.
unsafe impl Send for Borrowed {}
// SAFETY: as above. Methods that take `&self` copy through raw pointers and do not modify the view.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    /// Borrows the bytes of any object with the buffer protocol.
    ///
    /// # Errors
    /// Returns `TypeError` if the object does not support the buffer protocol, and
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if its bytes are not contiguous.
    pub(crate) fn readable(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::borrow(data, READABLE)
    }

    /// Borrows the bytes for writing.
    ///
    /// # Errors
    /// Returns the errors of [`readable`](Self::readable), and `BufferError` if the buffer is read-only.
    pub(crate) fn writable(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::borrow(data, WRITABLE)
    }

    fn borrow(data: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let py = data.py();
        let mut view = Box::new(RawBuffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the GIL is held, `data` is a live object, and `view` has the layout of CPython's `Py_buffer`. With
        // these flags, the call either fills in one C-contiguous run of `len` bytes at `buf`, or sets an exception
        // and leaves nothing to release.
        if unsafe { PyObject_GetBuffer(data.as_ptr(), &raw mut *view, flags) } == 0 {
            return Ok(Self { view: Some(view), thread: thread::current().id(), origin: Origin::here() });
        }
        let error = PyErr::fetch(py);
        let is_in_parts = error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyBufferError>(py);
        match is_in_parts && flags == READABLE {
            true => Err(invalid(
                py,
                format!(
                    "the bytes of this {} are not contiguous ({}): copy it first, for example with bytes(data) or \
                     numpy.ascontiguousarray(data)",
                    data.get_type().name()?,
                    error.value(py)
                ),
            )),
            false => Err(error),
        }
    }

    /// Returns the size of the buffer in bytes.
    pub(crate) fn len(&self) -> usize {
        self.view.as_ref().map_or(0, |view| usize::try_from(view.len).unwrap_or(0))
    }

    /// Returns a copy of `length` bytes at `offset`, or of all bytes from there if there are fewer.
    pub(crate) fn copy(&self, offset: usize, length: usize) -> Bytes {
        let length = length.min(self.len().saturating_sub(offset));
        let Some(view) = self.view.as_ref().filter(|_| length > 0) else { return Bytes::new() };
        let mut copy = Vec::<u8>::with_capacity(length);
        // SAFETY: `offset + length` is within the run of `len` bytes at `buf`, which is valid until the view is
        // released. The copy is newly allocated with sufficient capacity, so the two do not overlap. Its bytes are
        // written before its length is set.
        unsafe {
            ptr::copy_nonoverlapping(view.buf.cast::<u8>().add(offset), copy.as_mut_ptr(), length);
            copy.set_len(length);
        }
        Bytes::from(copy)
    }

    /// Returns a stream that copies the buffer piece by piece as it is polled.
    pub(crate) fn pieces(self: &Arc<Self>) -> Pieces {
        let take = |(buffer, at): (Arc<Self>, usize)| async move {
            let piece = buffer.copy(at, PIECE_BYTES);
            if at > 0 && at.is_multiple_of(PIECES_PER_BREATH * PIECE_BYTES) {
                breathe().await;
            }
            (!piece.is_empty()).then(|| (Ok(piece.clone()), (buffer, at + piece.len())))
        };
        stream::unfold((Arc::clone(self), 0), take).fuse().boxed()
    }

    /// Writes `piece` at `offset`.
    ///
    /// # Errors
    /// Returns an error if the piece does not fit. ([`writable`](Self::writable) does not borrow read-only buffers.)
    pub(crate) fn put(&self, offset: usize, piece: &[u8]) -> Result<()> {
        let fits = offset.checked_add(piece.len()).is_some_and(|end| end <= self.len());
        let Some(view) = self.view.as_ref().filter(|view| fits && view.readonly == 0) else {
            return Err(Error::internal("received more bytes than the buffer can hold"));
        };
        // SAFETY: the bytes are within the run of `len` bytes at `buf`, which is writable, and valid until the view
        // is released. This uses `ptr::copy`, because `piece` may be a view of the same memory.
        unsafe { ptr::copy(piece.as_ptr(), view.buf.cast::<u8>().add(offset), piece.len()) };
        Ok(())
    }
}

/// A view to be released, on any thread.
struct Unreleased(Box<RawBuffer>);

// SAFETY: only PyBuffer_Release accesses the view, with the GIL held.
unsafe impl Send for Unreleased {}

impl Unreleased {
    fn release(mut self, _: Python<'_>) {
        // SAFETY: the GIL is held. The view was filled by PyObject_GetBuffer, and `self` is consumed, so it is
        // released once.
        unsafe { PyBuffer_Release(&raw mut *self.0) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(view) = self.view.take().map(Unreleased) else { return };
        if self.origin.is_foreign() {
            return;
        }
        if thread::current().id() == self.thread {
            // If Python is exiting, the view cannot be released.
            let _ = Python::try_attach(|py| view.release(py));
        } else {
            // Runtime workers must not wait for the GIL.
            attached::send(move |py| view.release(py));
        }
    }
}

/// A `bytes` object that is being filled, and that no other code has seen yet.
pub(crate) struct NewBytes {
    object: Option<Py<PyBytes>>,
    start: *mut u8,
    size: usize,
    filled: usize,
}

// SAFETY: `start` points into `object`, which it keeps alive and which has no other references until `finish`.
unsafe impl Send for NewBytes {}

impl NewBytes {
    /// Allocates an object of `size` bytes, all of which must then be written.
    ///
    /// # Errors
    /// Returns `MemoryError` if there is not enough memory.
    pub(crate) fn allocate(py: Python<'_>, size: u64) -> PyResult<Self> {
        let length = ffi::Py_ssize_t::try_from(size).map_err(|_| PyMemoryError::new_err(()))?;
        // SAFETY: the GIL is held. Given no bytes to copy, CPython returns a new object with room for `length` bytes,
        // or NULL with an exception set. According to its documentation, the object may be written to as long as it
        // has no other references. For a length of 0, it is a shared object, but then nothing is written to it.
        unsafe {
            let object = ffi::PyBytes_FromStringAndSize(ptr::null(), length);
            let object = Bound::from_owned_ptr_or_err(py, object)?.cast_into::<PyBytes>()?;
            let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>();
            Ok(Self { object: Some(object.unbind()), start, size: length.unsigned_abs(), filled: 0 })
        }
    }

    /// Appends a piece. This does not need the GIL.
    ///
    /// # Errors
    /// Returns an error if the piece does not fit.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<()> {
        if piece.len() > self.size - self.filled {
            return Err(Error::corrupt(format!("a file has more than its declared {} bytes", self.size)));
        }
        // SAFETY: the piece fits behind the filled part. `object` is alive, and no other code accesses it.
        unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.start.add(self.filled), piece.len()) };
        self.filled += piece.len();
        Ok(())
    }

    /// Returns the object, which must be complete.
    ///
    /// # Errors
    /// Returns an error if bytes are missing, because uninitialized memory must not be exposed.
    pub(crate) fn finish(mut self) -> Result<Py<PyBytes>> {
        let object = self.object.take().filter(|_| self.filled == self.size);
        let short = || Error::corrupt(format!("a file has only {} of its declared {} bytes", self.filled, self.size));
        object.ok_or_else(short)
    }
}

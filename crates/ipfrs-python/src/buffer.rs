//! Memory that is lent to Python, and memory of Python's that is borrowed, without copies on the way.
//!
//! All `unsafe` of this crate is here. The stable ABI has the buffer protocol from Python 3.11 on; the functions and the two
//! slots that are used here are in every version since 3.9, with the same layouts, so they are declared here.
//!
//! 1. [`View`] lends: a `memoryview` of a tiny object that owns a [`Bytes`]. The view holds the object as long as it, or
//!    anything made of it, lives; the object holds the `Bytes`; and a `Bytes` over a mapped pack holds the mapping and its
//!    file. So the memory is there even after the node was closed, and after its pack was removed from the disk. It is
//!    read-only for Python as for everybody else.
//! 2. [`Borrowed`] borrows: while it lives, the owner may neither free nor move the memory (`bytearray` refuses to grow,
//!    NumPy to resize). Others may *write* to it meanwhile, as they may while a file is read into it. So there is never a
//!    reference into it, only copies through raw pointers, whose worst outcome is mixed bytes.
//! 3. [`NewBytes`] fills a `bytes` that nobody else has seen yet.
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
use crate::runtime::is_forked;

/// Bytes that are copied of a borrowed buffer at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Pieces between two moments for others.
const PIECES_PER_BREATH: usize = 128;

/// `PyBUF_SIMPLE` and `PyBUF_WRITABLE`.
const READABLE: c_int = 0;
const WRITABLE: c_int = 1;

/// `Py_bf_getbuffer`, of which pyo3 has the name only where the stable ABI promises it.
const GET_BUFFER_SLOT: c_int = 1;

/// `Py_TPFLAGS_IMMUTABLETYPE`, which is known from 3.10 on; to 3.9 the bit means nothing.
const IMMUTABLE_TYPE: u32 = 1 << 8;

/// CPython's `Py_buffer`, which is the same since 3.0.
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

/// Bytes that Python sees as a read-only `memoryview`.
#[derive(Debug, Clone)]
pub(crate) struct View(pub(crate) Bytes);

/// The object that a view is of.
#[repr(C)]
struct Exporter {
    head: ffi::PyObject,
    bytes: Bytes,
}

impl<'py> IntoPyObject<'py> for View {
    type Target = PyMemoryView;
    type Output = Bound<'py, PyMemoryView>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(&export(py, self.0)?)
    }
}

/// Makes the object that owns `bytes`.
fn export(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyAny>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = TYPE.get_or_try_init(py, || exporter_type(py))?.bind(py);
    // SAFETY: the GIL is held, and `class` is the type of `exporter_type`, whose instances have room for an `Exporter`.
    // PyType_GenericAlloc gives a new, zeroed one, or NULL with an exception. `bytes` is written before anybody else sees the
    // object, so that `get_buffer` and `dealloc` always find it; nothing between can fail.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.as_type_ptr(), 0);
        let object = Bound::from_owned_ptr_or_err(py, object)?;
        ptr::write(&raw mut (*object.as_ptr().cast::<Exporter>()).bytes, bytes);
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
        // Not a base type, and without a cycle collector: an instance refers to no Python object but its type. Nobody may give
        // it another `__new__`, which would make instances that own nothing.
        flags: ffi::Py_TPFLAGS_DEFAULT as u32 | IMMUTABLE_TYPE,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the GIL is held. The spec and its slots, ended by slot 0, live through the call, which copies them; the name is
    // static. Each function has the signature of its slot. Sizes: `Exporter` begins with `PyObject`, as all objects do.
    unsafe {
        let class = Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))?;
        Ok(class.cast_into::<PyType>()?.unbind())
    }
}

/// Nobody makes one from Python: it would own nothing.
unsafe extern "C" fn refuse_new(
    _class: *mut ffi::PyTypeObject,
    _args: *mut ffi::PyObject,
    _kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: CPython calls a slot with the GIL held. The text is static; the exception type lives as long as Python.
    unsafe {
        ffi::PyErr_SetString(ffi::PyExc_TypeError, c"ipfrs makes these itself".as_ptr());
    }
    ptr::null_mut()
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython calls this once, with the GIL held, with an object of this type that nobody refers to any more, so no
    // view is left. `bytes` was written by `export`, and is not looked at again. The object came from the allocator that
    // PyObject_Free is of, since its type has no cycle collector; it held a reference to its type, as instances of types that
    // were made at run time do.
    unsafe {
        let class = ffi::Py_TYPE(object);
        // In the child of a fork the mapping is the parent's to take care of: giving it back may wait for its locks.
        if !is_forked() {
            ptr::drop_in_place(&raw mut (*object.cast::<Exporter>()).bytes);
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn get_buffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int {
    // SAFETY: CPython calls a slot with the GIL held, with an object of this type and a view to fill. The bytes do not move
    // or change while the object lives, and PyBuffer_FillInfo makes the view hold it. It refuses who asks for a writable one.
    // A `Bytes` has at most isize::MAX bytes.
    unsafe {
        let bytes = &(*object.cast::<Exporter>()).bytes;
        PyBuffer_FillInfo(view, object, bytes.as_ptr().cast_mut().cast(), bytes.len() as _, 1, flags)
    }
}

/// Memory of a Python object, which is given back when this is dropped.
pub(crate) struct Borrowed {
    /// Boxed, because the owner may remember where it is.
    view: Option<Box<RawBuffer>>,
    /// The one that borrowed it, and holds the GIL now and then.
    thread: ThreadId,
}

// SAFETY: the memory stays where it is until PyBuffer_Release, whichever thread looks at it, and is read and written through
// raw pointers only (fact 2). The rest of the view belongs to the owner and is only touched by PyBuffer_Release, with the GIL.
unsafe impl Send for Borrowed {}
// SAFETY: as above; the methods that take `&self` copy through raw pointers and change nothing of the view.
unsafe impl Sync for Borrowed {}

impl Borrowed {
    /// The bytes of anything with the buffer protocol.
    ///
    /// # Errors
    /// `TypeError` for what has none; [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) where they are not in one piece.
    pub(crate) fn readable(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::borrow(data, READABLE)
    }

    /// The same, to write to.
    ///
    /// # Errors
    /// As [`readable`](Self::readable), and `BufferError` for what is read-only.
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
        // SAFETY: the GIL is held, `data` is a live object, and `view` a `Py_buffer` of CPython's layout. With these flags the
        // answer is one C-contiguous run of `len` bytes at `buf`, or an exception and nothing to release.
        if unsafe { PyObject_GetBuffer(data.as_ptr(), &raw mut *view, flags) } == 0 {
            return Ok(Self { view: Some(view), thread: thread::current().id() });
        }
        let error = PyErr::fetch(py);
        let is_in_parts = error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyBufferError>(py);
        match is_in_parts && flags == READABLE {
            true => Err(invalid(
                py,
                format!(
                    "the bytes of this {} do not lie in one piece ({}): copy it first, as bytes(data) or \
                     numpy.ascontiguousarray(data) do",
                    data.get_type().name()?,
                    error.value(py)
                ),
            )),
            false => Err(error),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.view.as_ref().map_or(0, |view| usize::try_from(view.len).unwrap_or(0))
    }

    /// A copy of `length` bytes at `offset`, or of as many as there are.
    pub(crate) fn copy(&self, offset: usize, length: usize) -> Bytes {
        let length = length.min(self.len().saturating_sub(offset));
        let Some(view) = self.view.as_ref().filter(|_| length > 0) else { return Bytes::new() };
        let mut copy = Vec::<u8>::with_capacity(length);
        // SAFETY: `offset + length` is within the run of `len` bytes at `buf`, which is there while the view is not released.
        // The copy is new memory with room for them, so the two do not overlap; its bytes are written before its length is.
        unsafe {
            ptr::copy_nonoverlapping(view.buf.cast::<u8>().add(offset), copy.as_mut_ptr(), length);
            copy.set_len(length);
        }
        Bytes::from(copy)
    }

    /// All of it, copied piece by piece by whoever takes them.
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

    /// Puts `piece` at `offset`.
    ///
    /// # Errors
    /// When there is no room for it. (What is lent read-only cannot be borrowed as [`writable`](Self::writable).)
    pub(crate) fn put(&self, offset: usize, piece: &[u8]) -> Result<()> {
        let has_room = offset.checked_add(piece.len()).is_some_and(|end| end <= self.len());
        let Some(view) = self.view.as_ref().filter(|view| has_room && view.readonly == 0) else {
            return Err(Error::internal("more bytes came than there is room for"));
        };
        // SAFETY: the bytes are within the run of `len` bytes at `buf`, which may be written and is there while the view is
        // not released. `ptr::copy`, because `piece` may be a view of the same memory.
        unsafe { ptr::copy(piece.as_ptr(), view.buf.cast::<u8>().add(offset), piece.len()) };
        Ok(())
    }
}

/// A view that is to be given back, on whichever thread.
struct Unreleased(Box<RawBuffer>);

// SAFETY: it is only touched by PyBuffer_Release, with the GIL held.
unsafe impl Send for Unreleased {}

impl Unreleased {
    fn release(mut self, _: Python<'_>) {
        // SAFETY: the GIL is held, and the view was filled by PyObject_GetBuffer and is released this one time.
        unsafe { PyBuffer_Release(&raw mut *self.0) }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(view) = self.view.take().map(Unreleased) else { return };
        if is_forked() {
            return;
        }
        if thread::current().id() == self.thread {
            // Where Python is ending there is nobody to give it back to.
            let _ = Python::try_attach(|py| view.release(py));
        } else {
            // A worker of the runtime must not wait for the GIL.
            attached::send(move |py| view.release(py));
        }
    }
}

/// A `bytes` that is being filled, and that nobody else has seen.
pub(crate) struct NewBytes {
    object: Option<Py<PyBytes>>,
    start: *mut u8,
    size: usize,
    filled: usize,
}

// SAFETY: `start` points into `object`, which it keeps alive, and which nobody else refers to until `finish`.
unsafe impl Send for NewBytes {}

impl NewBytes {
    /// Memory for `size` bytes, all of which must be written.
    ///
    /// # Errors
    /// `MemoryError` when there is not enough.
    pub(crate) fn allocate(py: Python<'_>, size: u64) -> PyResult<Self> {
        let length = ffi::Py_ssize_t::try_from(size).map_err(|_| PyMemoryError::new_err(()))?;
        // SAFETY: the GIL is held. Without bytes to copy, CPython gives a new object with room for `length` bytes which nobody
        // else refers to and which may be written to until somebody does (its documentation says so); or NULL with an
        // exception. For 0 bytes it is a shared object, into which nothing is written then.
        unsafe {
            let object = ffi::PyBytes_FromStringAndSize(ptr::null(), length);
            let object = Bound::from_owned_ptr_or_err(py, object)?.cast_into::<PyBytes>()?;
            let start = ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>();
            Ok(Self { object: Some(object.unbind()), start, size: length.unsigned_abs(), filled: 0 })
        }
    }

    /// Adds a piece. Needs no GIL.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<()> {
        if piece.len() > self.size - self.filled {
            return Err(Error::corrupt(format!("a file has more than the {} bytes that it should have", self.size)));
        }
        // SAFETY: there is room for the piece behind what is filled. `object` is alive and nobody else looks at it.
        unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), self.start.add(self.filled), piece.len()) };
        self.filled += piece.len();
        Ok(())
    }

    /// The object, which has all of its bytes.
    ///
    /// # Errors
    /// When some are missing: nobody may see what they would be.
    pub(crate) fn finish(mut self) -> Result<Py<PyBytes>> {
        let object = self.object.take().filter(|_| self.filled == self.size);
        let short =
            || Error::corrupt(format!("a file has {} bytes of the {} that it should have", self.filled, self.size));
        object.ok_or_else(short)
    }
}

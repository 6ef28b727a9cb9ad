//! Conversion of errors to Python exceptions. The kind determines the class in `ipfrs.errors`.

use std::error::Error as _;
use std::io;

use ipfrs_core::{Error, ErrorKind};
use pyo3::intern;
use pyo3::prelude::*;

/// Reason that a call returns no value.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of ipfrs.
    Error(Error),
    /// The backend is closed.
    Closed,
    /// The process was forked.
    Forked,
    /// An exception raised by Python code during the call.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

/// Result of a call.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Converts the failure to a Python exception.
    pub(crate) fn into_exception(self, py: Python<'_>) -> PyErr {
        let (code, message) = match &self {
            Self::Python(error) => return error.clone_ref(py),
            Self::Closed => ("closed", "it is closed: open another one".to_owned()),
            Self::Forked => (
                "forked",
                "this object belongs to the process that this one was forked from: create another one here. A store can be \
                 open in one process at a time; the others use a Client of a daemon"
                    .to_owned(),
            ),
            Self::Error(error) => (of_file(error).unwrap_or(error.kind().code()), error.message().to_owned()),
        };
        exception(py, code, &message).unwrap_or_else(|failure| failure)
    }
}

/// Returns the code for a local file, as opposed to content, that was not found or to which access is denied.
fn of_file(error: &Error) -> Option<&'static str> {
    match error.source()?.downcast_ref::<io::Error>()?.kind() {
        io::ErrorKind::NotFound if error.kind() == ErrorKind::NotFound => Some("file_not_found"),
        io::ErrorKind::PermissionDenied => Some("file_permission"),
        _ => None,
    }
}

fn exception(py: Python<'_>, code: &str, message: &str) -> PyResult<PyErr> {
    let classes = py.import(intern!(py, "ipfrs.errors"))?.getattr(intern!(py, "BY_KIND"))?;
    let class = classes.get_item(code)?;
    Ok(PyErr::from_value(class.call1((message,))?))
}

/// Returns the exception for invalid arguments.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    Failure::from(Error::invalid(message)).into_exception(py)
}

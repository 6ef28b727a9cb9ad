//! Options of an import, from a Python dictionary with the names of Kubo's options.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use crate::backing::AddOptions;
use crate::error::invalid;
use crate::payload::NameText;

/// Names of all options.
const NAMES: [&str; 24] = [
    "profile",
    "cid_version",
    "raw_leaves",
    "chunker",
    "hash",
    "inline",
    "inline_limit",
    "trickle",
    "mode",
    "mtime",
    "preserve_mode",
    "preserve_mtime",
    "max_file_links",
    "max_directory_links",
    "max_hamt_fanout",
    "nocopy",
    "fscache",
    "only_hash",
    "wrap_with_directory",
    "pin",
    "pin_name",
    "name",
    "hidden",
    "dereference_symlinks",
];

/// Value of `inline_limit` if only `inline` is given, as in Kubo.
const DEFAULT_INLINE_LIMIT_BYTES: usize = 32;

/// The permission bits, without the bits for the file type.
const MAX_MODE: u32 = 0o7777;

const NANOS_PER_SECOND: f64 = 1e9;

impl<'py> FromPyObject<'_, 'py> for AddOptions {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let given = Given(object.cast::<PyDict>()?.to_owned());
        given.check_names()?;
        let defaults = Self::default();
        let pin = given.get("pin")?.unwrap_or(defaults.pin);
        let pin_name: String = given.get("pin_name")?.unwrap_or_default();
        if !pin && !pin_name.is_empty() {
            let message = "pin_name names a pin, but pin=False creates none: omit one of them";
            return Err(invalid(object.py(), message));
        }
        let inline_limit = given.get("inline_limit")?.unwrap_or(DEFAULT_INLINE_LIMIT_BYTES);
        Ok(Self {
            profile: given.get("profile")?,
            cid_version: given.get("cid_version")?,
            raw_leaves: given.get("raw_leaves")?,
            chunker: given.get("chunker")?,
            hash: given.get("hash")?,
            inline_limit: given.get("inline")?.unwrap_or(false).then_some(inline_limit),
            trickle: given.get("trickle")?,
            // As in Kubo, a mode or a time of 0 means none.
            mode: given.mode()?.filter(|mode| *mode != 0),
            mtime: given.mtime()?.filter(|mtime| *mtime != (0, 0)),
            preserve_mode: given.get("preserve_mode")?.unwrap_or(false),
            preserve_mtime: given.get("preserve_mtime")?.unwrap_or(false),
            max_file_links: given.get("max_file_links")?,
            max_directory_links: given.get("max_directory_links")?,
            hamt_fanout: given.get("max_hamt_fanout")?,
            nocopy: given.get("nocopy")?.unwrap_or(false),
            fscache: given.get("fscache")?.unwrap_or(false),
            only_hash: given.get("only_hash")?.unwrap_or(false),
            wrap_with_directory: given.get("wrap_with_directory")?.unwrap_or(false),
            pin,
            pin_name,
            name: given.get::<NameText>("name")?.map(|name| name.0).unwrap_or_default(),
            hidden: given.get("hidden")?.unwrap_or(false),
            dereference_symlinks: given.get("dereference_symlinks")?.unwrap_or(false),
        })
    }
}

/// The dictionary given by the caller.
struct Given<'py>(Bound<'py, PyDict>);

impl<'py> Given<'py> {
    fn check_names(&self) -> PyResult<()> {
        for key in self.0.keys() {
            let key: String = key.extract()?;
            if !NAMES.contains(&key.as_str()) {
                let message = format!("there is no option {key:?} of add: the options are {}", NAMES.join(", "));
                return Err(invalid(self.0.py(), message));
            }
        }
        Ok(())
    }

    fn value(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    fn get<T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(&self, name: &str) -> PyResult<Option<T>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let extracted = value.extract::<T>().map_err(|error: PyErr| {
            let py = self.0.py();
            // The public name of this option differs from Kubo's.
            let name = if name == "wrap_with_directory" { "wrap" } else { name };
            let message = format!("option {name}={value}: {}", error.value(py));
            match error.is_instance_of::<PyTypeError>(py) {
                true => PyTypeError::new_err(message),
                false => invalid(py, message),
            }
        });
        extracted.map(Some)
    }

    /// Returns the Unix permissions.
    fn mode(&self) -> PyResult<Option<u32>> {
        match self.get::<u32>("mode")? {
            Some(mode) if mode > MAX_MODE => {
                let message =
                    format!("option mode={mode:#o}: permissions are at most {MAX_MODE:#o}, as stat.S_IMODE gives");
                Err(invalid(self.0.py(), message))
            }
            mode => Ok(mode),
        }
    }

    /// Returns seconds since 1970, with nanoseconds from the fraction of a float.
    fn mtime(&self) -> PyResult<Option<(i64, u32)>> {
        match self.value("mtime")? {
            Some(value) if !value.is_instance_of::<PyInt>() => {
                let seconds: f64 = self.get("mtime")?.unwrap_or_default();
                if !seconds.is_finite() || seconds.abs() >= i64::MAX as f64 {
                    return Err(invalid(self.0.py(), format!("option mtime={seconds}: it is not a valid time")));
                }
                let whole = seconds.floor();
                // Less than one second, with the precision of the float.
                let nanos = ((seconds - whole) * NANOS_PER_SECOND).min(NANOS_PER_SECOND - 1.0);
                Ok(Some((whole as i64, nanos as u32)))
            }
            _ => Ok(self.get("mtime")?.map(|seconds| (seconds, 0))),
        }
    }
}

//! The formats that tensors are sent in, and what stands before and behind their bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ipfrs_core::{Error, Result};

use crate::{Dtype, Order, arrow, npy, safetensors};

/// How the bytes of a tensor are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TensorFormat {
    /// The elements alone.
    #[default]
    Raw,
    /// An `.npy` file, version 1.0 of the format.
    Npy,
    /// A `.safetensors` file.
    Safetensors,
    /// An Arrow IPC stream with one record batch of one column, whose values are the tensor's bytes as they are.
    ///
    /// A tensor of two and more dimensions is a column of the canonical extension type
    /// [`arrow.fixed_shape_tensor`](https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor): its
    /// outermost dimension becomes rows. One of one dimension is a column of numbers, a scalar a column of one row. Types
    /// that Arrow does not have are unsigned integers of the same size (`BOOL`, `BF16`, the types of 8 bits); complex
    /// numbers have a last dimension of 2. The field's metadata say `dtype` and `shape`.
    Arrow,
}

impl TensorFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Npy, Self::Safetensors, Self::Arrow];

    /// The name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
            Self::Arrow => "arrow",
        }
    }

    /// What stands around the bytes of a tensor that lie in `order`. Its `name` and `metadata` are of safetensors only.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for types and orders that the format does not have;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for what is more than it holds;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a shape without a size in bytes, and for a name that is the
    /// format's own.
    pub fn frame(
        self,
        name: &str,
        dtype: Dtype,
        shape: &[u64],
        order: Order,
        metadata: &BTreeMap<String, String>,
    ) -> Result<Framing> {
        let head_alone = |head| Framing { head, tail: Vec::new() };
        match self {
            Self::Npy => npy::head(dtype, shape, order).map(head_alone),
            Self::Raw | Self::Safetensors | Self::Arrow if order == Order::ColumnMajor => Err(column_major()),
            Self::Raw => Ok(Framing::default()),
            Self::Safetensors => safetensors::head([(name, dtype, shape)], metadata).map(head_alone),
            Self::Arrow => arrow::frame(dtype, shape),
        }
    }
}

/// Refuses elements that lie in Fortran order where nothing would say that they do.
#[must_use]
pub fn column_major() -> Error {
    Error::unsupported(
        "the array is stored column by column (Fortran order): ask for the format npy, whose header says so, for a slice \
         along one dimension, or save the array with numpy.ascontiguousarray",
    )
}

impl fmt::Display for TensorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TensorFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("unknown format {name:?}: known are {known}"))
        })
    }
}

/// What stands before and behind the bytes of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Framing {
    /// Before the first byte.
    pub head: Vec<u8>,
    /// Behind the last.
    pub tail: Vec<u8>,
}

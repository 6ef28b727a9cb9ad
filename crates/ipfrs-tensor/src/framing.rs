//! The formats in which tensors are sent, and the bytes before and after their elements.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ipfrs_core::{Error, Result};

use crate::{Dtype, Order, arrow, npy, safetensors};

/// The format in which a tensor is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TensorFormat {
    /// The elements without any framing.
    #[default]
    Raw,
    /// An `.npy` file, version 1.0 of the format.
    Npy,
    /// A `.safetensors` file.
    Safetensors,
    /// An Arrow IPC stream with one record batch of one column, whose values are the unchanged bytes of the tensor.
    ///
    /// A tensor of two or more dimensions is a column of the canonical extension type
    /// [`arrow.fixed_shape_tensor`](https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor):
    /// its outermost dimension becomes rows. A tensor of one dimension is a column of numbers, and a scalar is a
    /// column with one row. Types that Arrow lacks become unsigned integers of the same size (`BOOL`, `BF16`, the
    /// 8-bit types), and complex numbers have a last dimension of 2. The metadata of the field contain `dtype` and
    /// `shape`.
    Arrow,
}

impl TensorFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Raw, Self::Npy, Self::Safetensors, Self::Arrow];

    /// Returns the name in user input and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Npy => "npy",
            Self::Safetensors => "safetensors",
            Self::Arrow => "arrow",
        }
    }

    /// Returns the framing of a tensor whose elements are in `order`. Only safetensors uses `name` and `metadata`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for types and orders that the format lacks,
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a tensor that exceeds a limit of the format, and
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a shape without a size in bytes and for a name that the
    /// format reserves.
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

/// Returns the error for elements in Fortran order in a format that cannot declare this order.
#[must_use]
pub fn column_major() -> Error {
    Error::unsupported(
        "the array is stored column by column (Fortran order): use the format npy, which can declare this, or a slice \
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
            Error::invalid(format!("unknown format {name:?}: use one of {known}"))
        })
    }
}

/// The bytes before and after the elements of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Framing {
    /// Bytes before the first element.
    pub head: Vec<u8>,
    /// Bytes after the last element.
    pub tail: Vec<u8>,
}

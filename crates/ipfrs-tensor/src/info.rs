//! Description of a tensor and of the header of its file.

use ipfrs_core::{Error, Result};

use crate::Dtype;

/// Most dimensions of a tensor, as in NumPy (64 since version 2).
pub const MAX_RANK: usize = 64;

/// The format of a file with tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// The safetensors format (<https://github.com/huggingface/safetensors#format>).
    Safetensors,
    /// The `.npy` format (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).
    Npy,
}

impl FileFormat {
    /// Returns the name: `safetensors` or `npy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Npy => "npy",
        }
    }
}

/// Order of the elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// C order: the last index varies fastest.
    RowMajor,
    /// Fortran order: the first index varies fastest. NumPy saves the transpose of an array in this order.
    ColumnMajor,
}

/// A tensor in a file. Its elements are contiguous.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name of the tensor; empty for the tensor of an `.npy` file.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Size of each dimension, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
    /// Offset of the first byte from the start of the file.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Order of the elements. Column-major only for `.npy` files that declare it, and only if the two orders differ.
    pub order: Order,
    /// Whether the numbers are big-endian, which `.npy` files allow.
    pub is_big_endian: bool,
}

impl TensorInfo {
    /// Returns whether the bytes in the file have the form in which tensors are sent: little-endian, in row-major
    /// order.
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        self.order == Order::RowMajor && !self.is_big_endian
    }
}

/// Format and size of the header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Format of the file.
    pub format: FileFormat,
    /// Number of bytes before the first byte of data. [`Catalogue::parse`](crate::Catalogue::parse) reads
    /// exactly these bytes.
    pub bytes: usize,
}

/// Returns the size in bytes of a tensor of `shape`.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the size exceeds 2^64 or is not a whole number of
/// bytes, or if the shape has more than [`MAX_RANK`] dimensions.
pub fn bytes_of(dtype: Dtype, shape: &[u64]) -> Result<u64> {
    let invalid = |why: String| Error::invalid(format!("shape {shape:?} of {dtype}: {why}"));
    if shape.len() > MAX_RANK {
        return Err(Error::invalid(format!(
            "a shape of {} dimensions is over the limit of {MAX_RANK}: merge some",
            shape.len()
        )));
    }
    // Multiplies from the outermost dimension, like the safetensors reference implementation. A product that
    // overflows before a dimension of 0 makes the shape invalid there too.
    let elements = shape.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim));
    let elements = elements.ok_or_else(|| invalid(String::from("its number of elements exceeds 64 bits")))?;
    dtype.bytes_of(elements).ok_or_else(|| {
        invalid(format!("{elements} elements of {} bits are not a whole number of bytes, or exceed 2^64", dtype.bits()))
    })
}

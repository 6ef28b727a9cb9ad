//! What tensors a file holds, found out from its first bytes.

use std::collections::BTreeMap;

use ipfrs_core::{Error, Result};

use crate::Dtype;
use crate::{npy, safetensors};

/// Bytes from the start of a file that [`Header::of`] needs to see, where the file has as many.
pub const PREFIX_BYTES: usize = 12;

/// Most dimensions of a tensor. NumPy has as many at most (64 since version 2).
pub const MAX_RANK: usize = 64;

/// The format of a file with tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// <https://github.com/huggingface/safetensors#format>
    Safetensors,
    /// <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>
    Npy,
}

/// In which order the elements of a tensor lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The last index runs first: C order.
    RowMajor,
    /// The first index runs first: Fortran order, in which NumPy saves arrays that are the transpose of another.
    ColumnMajor,
}

/// One tensor of a file. Its elements lie in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name; empty for the one of an `.npy` file.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Elements of each dimension, outermost first; none for a scalar.
    pub shape: Vec<u64>,
    /// Where its bytes begin, from the start of the file.
    pub offset: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// In which order its elements lie. Row-major but in `.npy` files that say otherwise, and wherever both are alike.
    pub order: Order,
    /// Whether its numbers are big-endian, as they may be in `.npy` files.
    pub is_big_endian: bool,
}

impl TensorInfo {
    /// Whether its bytes in the file are as they are sent: little-endian, in row-major order.
    #[must_use]
    pub fn is_as_sent(&self) -> bool {
        self.order == Order::RowMajor && !self.is_big_endian
    }
}

/// Where the header of a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the file is.
    pub format: FileFormat,
    /// Bytes from the start of the file to the first byte of data: what [`Catalogue::parse`] reads.
    pub bytes: usize,
}

impl Header {
    /// Reads the first [`PREFIX_BYTES`] of a file of `file_bytes`, or all of a shorter one.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for what is neither of the formats, and for a header that is longer
    /// than the file; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for one over the limit of its format;
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for an unknown version.
    pub fn of(prefix: &[u8], file_bytes: u64) -> Result<Self> {
        let header = if prefix.starts_with(npy::MAGIC) { npy::header(prefix)? } else { safetensors::header(prefix)? };
        if header.bytes as u64 > file_bytes {
            let (claimed, format) = (header.bytes, header.format.name());
            return Err(Error::invalid(format!(
                "the {format} header claims to end at byte {claimed}, and the file has {file_bytes}: it is cut off"
            )));
        }
        Ok(header)
    }
}

impl FileFormat {
    /// The name: `safetensors` or `npy`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Npy => "npy",
        }
    }
}

/// All tensors of a file. Every offset and size was checked against the file's: a tensor's bytes are in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    format: FileFormat,
    tensors: Vec<TensorInfo>,
    /// Places in `tensors`, in the order of names.
    by_name: Vec<u32>,
    metadata: BTreeMap<String, String>,
}

impl Catalogue {
    /// Reads a header of exactly [`Header::bytes`] bytes, of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the tensor and what is wrong with it: unknown types, shapes
    /// that overflow or do not fit their bytes, offsets that overlap, leave holes or lie outside of the file, names that
    /// occur twice; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for what NumPy writes and is not offered: Python
    /// objects, texts, dates and structured types.
    pub fn parse(header: &[u8], file_bytes: u64) -> Result<Self> {
        let found = Header::of(&header[..header.len().min(PREFIX_BYTES)], file_bytes)?;
        if header.len() != found.bytes {
            return Err(Error::internal(format!("a header of {} bytes was read as {}", found.bytes, header.len())));
        }
        let (tensors, metadata) = match found.format {
            FileFormat::Npy => (vec![npy::tensor(header, file_bytes)?], BTreeMap::new()),
            FileFormat::Safetensors => safetensors::tensors(header, file_bytes)?,
        };
        Self::new(found.format, tensors, metadata)
    }

    fn new(format: FileFormat, mut tensors: Vec<TensorInfo>, metadata: BTreeMap<String, String>) -> Result<Self> {
        tensors.sort_by(|a, b| (a.offset, a.bytes, &a.name).cmp(&(b.offset, b.bytes, &b.name)));
        let count = u32::try_from(tensors.len()).map_err(|_| Error::too_large("too many tensors in one file"))?;
        let mut by_name: Vec<u32> = (0..count).collect();
        by_name.sort_by(|a, b| tensors[*a as usize].name.cmp(&tensors[*b as usize].name));
        let twice = by_name.windows(2).find(|pair| tensors[pair[0] as usize].name == tensors[pair[1] as usize].name);
        if let Some(&[first, _]) = twice {
            let name = shown(&tensors[first as usize].name);
            return Err(Error::invalid(format!("the header names tensor {name} twice")));
        }
        Ok(Self { format, tensors, by_name, metadata })
    }

    /// What the file is.
    #[must_use]
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// All tensors, in the order of their bytes in the file.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// What safetensors has under `__metadata__`.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// A tensor by its name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names it.
    pub fn get(&self, name: &str) -> Result<&TensorInfo> {
        self.place(name).map(|place| &self.tensors[place])
    }

    /// Which of [`Self::tensors`] has this name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names it.
    pub fn place(&self, name: &str) -> Result<usize> {
        let place = self.by_name.binary_search_by(|place| self.tensors[*place as usize].name.as_str().cmp(name));
        place.map(|place| self.by_name[place] as usize).map_err(|_| {
            let count = self.tensors.len();
            let what = format!("no tensor named {} among the {count} of the file", shown(name));
            Error::not_found(format!("{what}: the list (/info, tensor ls) has their names"))
        })
    }
}

/// A name for a message: quoted, and not longer than a line.
pub(crate) fn shown(name: &str) -> String {
    let short: String = name.chars().take(80).collect();
    if short.len() < name.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// Bytes of a tensor of `shape`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when they are over 2^64 or no whole number, and for more than [`MAX_RANK`]
/// dimensions.
pub fn bytes_of(dtype: Dtype, shape: &[u64]) -> Result<u64> {
    let invalid = |why: String| Error::invalid(format!("shape {shape:?} of {dtype}: {why}"));
    if shape.len() > MAX_RANK {
        return Err(Error::invalid(format!(
            "a shape of {} dimensions is over the limit of {MAX_RANK}: join some",
            shape.len()
        )));
    }
    // From the outermost dimension on, as the reference of safetensors counts: what overflows before a dimension of 0 comes is
    // no shape there.
    let elements = shape.iter().try_fold(1_u64, |all, dim| all.checked_mul(*dim));
    let elements = elements.ok_or_else(|| invalid(String::from("it has more elements than 64 bits count")))?;
    dtype.bytes_of(elements).ok_or_else(|| {
        invalid(format!("{elements} elements of {} bits are no whole number of bytes, or more than 2^64", dtype.bits()))
    })
}

//! The catalogue of the tensors in a file, parsed from the header of the file.

use std::collections::BTreeMap;

use ipfrs_core::{Error, Result};

use crate::info::{FileFormat, Header, TensorInfo};
use crate::shown::shown;
use crate::{npy, safetensors};

/// Bounds of the search for a similar name, which takes some microseconds for each: number of names, once around the
/// unknown name and once from the start; length of a name in bytes, and difference of the lengths.
const MAX_COMPARED_NAMES: usize = 64;
const MAX_COMPARED_BYTES: usize = 128;
const MAX_LENGTH_DIFFERENCE: usize = 2;

/// Minimum Jaro-Winkler similarity of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.85;

/// Number of bytes from the start of a file that [`Header::of`] requires, unless the file is shorter.
pub const PREFIX_BYTES: usize = 12;

impl Header {
    /// Reads the first [`PREFIX_BYTES`] of a file of `file_bytes`, or all of a shorter file.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a file of neither format and for a header that
    /// is longer than the file. Returns [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header that exceeds the
    /// limit of its format, and [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for an unknown version.
    pub fn of(prefix: &[u8], file_bytes: u64) -> Result<Self> {
        let header = if prefix.starts_with(npy::MAGIC) { npy::header(prefix)? } else { safetensors::header(prefix)? };
        if header.bytes as u64 > file_bytes {
            let (claimed, format) = (header.bytes, header.format.name());
            return Err(Error::invalid(format!(
                "the {format} header claims to end at byte {claimed}, but the file has {file_bytes}: it is truncated"
            )));
        }
        Ok(header)
    }
}

/// All tensors of a file. Every offset and size has been checked, so the bytes of each tensor are within the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    format: FileFormat,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, sorted by name.
    by_name: Vec<u32>,
    metadata: BTreeMap<String, String>,
}

impl Catalogue {
    /// Parses a header of exactly [`Header::bytes`] bytes, from a file of `file_bytes`.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for unknown types, shapes that overflow or do not
    /// match their bytes, offsets that overlap, leave holes or are outside of the file, and repeated names. The
    /// message names the tensor and the fault. Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for NumPy
    /// types without support: Python objects, strings, dates and structured types.
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
        let duplicate =
            by_name.windows(2).find(|pair| tensors[pair[0] as usize].name == tensors[pair[1] as usize].name);
        if let Some(&[first, _]) = duplicate {
            let name = shown(&tensors[first as usize].name);
            return Err(Error::invalid(format!("the header names tensor {name} twice")));
        }
        Ok(Self { format, tensors, by_name, metadata })
    }

    /// Returns the format of the file.
    #[must_use]
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// Returns all tensors, in the order of their bytes in the file.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Returns the `__metadata__` of a safetensors file.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Returns the tensor with this name.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) for an unknown name. The message contains the name.
    pub fn get(&self, name: &str) -> Result<&TensorInfo> {
        self.place(name).map(|place| &self.tensors[place])
    }

    /// Returns the index in [`Self::tensors`] of the tensor with this name.
    ///
    /// # Errors
    /// Returns [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) for an unknown name. The message contains the name.
    pub fn place(&self, name: &str) -> Result<usize> {
        let place = self.by_name.binary_search_by(|place| self.tensors[*place as usize].name.as_str().cmp(name));
        place.map(|place| self.by_name[place] as usize).map_err(|_| {
            let count = self.tensors.len();
            let what = format!("no tensor named {} among the {count} of the file", shown(name));
            let remedy = match self.similar(name) {
                Some(similar) => format!("did you mean {}?", shown(similar)),
                None => "/info and `tensor ls` list their names".to_owned(),
            };
            Error::not_found(format!("{what}: {remedy}"))
        })
    }

    /// Returns the name that is most similar to `name`, if one is. Compares names of about the same length: those
    /// around `name` in sorted order, which begin like it, and the first ones of the file.
    fn similar(&self, name: &str) -> Option<&str> {
        if name.len() > MAX_COMPARED_BYTES {
            return None;
        }
        let name_at = |place: &u32| self.tensors[*place as usize].name.as_str();
        let after = self.by_name.partition_point(|place| name_at(place) < name);
        let around =
            after.saturating_sub(MAX_COMPARED_NAMES / 2)..self.by_name.len().min(after + MAX_COMPARED_NAMES / 2);
        let is_near = |other: &&str| !other.is_empty() && other.len().abs_diff(name.len()) <= MAX_LENGTH_DIFFERENCE;
        let first = self.tensors.iter().map(|tensor| tensor.name.as_str()).filter(is_near).take(MAX_COMPARED_NAMES);
        let names = self.by_name[around].iter().map(name_at).filter(is_near).chain(first);
        let compared = names.map(|other| (strsim::jaro_winkler(name, other), other));
        compared
            .filter(|(alike, _)| *alike >= MIN_SIMILARITY)
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, name)| name)
    }
}

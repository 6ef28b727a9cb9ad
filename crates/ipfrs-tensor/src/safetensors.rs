//! The header of safetensors: a length of eight bytes, followed by JSON of that length
//! (<https://github.com/huggingface/safetensors#format>).

use std::collections::BTreeMap;
use std::fmt;

use ipfrs_core::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::Dtype;
use crate::info::{FileFormat, Header, MAX_RANK, Order, TensorInfo, bytes_of};
use crate::shown::shown;

/// Longest JSON, in bytes. The largest model files have a few megabytes; the reference reader accepts 100 MB.
pub const MAX_HEADER_BYTES: u64 = 16 * 1024 * 1024;

/// Number of length bytes before the JSON.
const LENGTH_BYTES: usize = 8;

/// Longest excerpt of a JSON parser's message, in characters.
const MAX_REASON_CHARS: usize = 200;

/// The reserved name, which does not denote a tensor.
const METADATA: &str = "__metadata__";

/// Alignment of the end of written headers, in bytes, so that elements are aligned in memory.
const ALIGNMENT: usize = 8;

pub(crate) fn header(prefix: &[u8]) -> Result<Header> {
    let neither = || Error::invalid("the file is neither safetensors nor .npy: its first bytes match neither format");
    let (length, rest) = prefix.split_first_chunk::<LENGTH_BYTES>().ok_or_else(neither)?;
    if rest.first() != Some(&b'{') {
        return Err(neither());
    }
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(Error::too_large(format!(
            "the safetensors header claims {length} bytes, over the limit of {MAX_HEADER_BYTES}: split the file"
        )));
    }
    let bytes = LENGTH_BYTES + usize::try_from(length).unwrap_or(usize::MAX - LENGTH_BYTES);
    Ok(Header { format: FileFormat::Safetensors, bytes })
}

/// Returns the tensors and the metadata of a header that [`header`] has accepted.
pub(crate) fn tensors(header: &[u8], file_bytes: u64) -> Result<(Vec<TensorInfo>, BTreeMap<String, String>)> {
    let json = header.get(LENGTH_BYTES..).unwrap_or_default();
    let json = std::str::from_utf8(json).map_err(|_| Error::invalid("the safetensors header is not UTF-8"))?;
    let parsed: Parsed = serde_json::from_str(json).map_err(|e| unreadable(&e))?;
    let data = header.len() as u64;
    let data_bytes = file_bytes.saturating_sub(data);
    let mut tensors = Vec::with_capacity(parsed.tensors.len());
    for (name, Described { dtype, shape, data_offsets: [start, end] }) in parsed.tensors {
        let tensor_error = |why: String| Error::invalid(format!("tensor {}: {why}", shown(&name)));
        let dtype: Dtype = dtype.parse().map_err(|e: Error| tensor_error(e.to_string()))?;
        if !dtype.is_in_safetensors() {
            return Err(tensor_error(format!("safetensors has no dtype {dtype}")));
        }
        let bytes = bytes_of(dtype, &shape).map_err(|e| tensor_error(e.to_string()))?;
        if start > end || end > data_bytes {
            return Err(tensor_error(format!(
                "its bytes {start}..{end} are outside the {data_bytes} data bytes of the file"
            )));
        }
        if end - start != bytes {
            return Err(tensor_error(format!("it has {} bytes, but {dtype} {shape:?} needs {bytes}", end - start)));
        }
        let (offset, order) = (data + start, Order::RowMajor);
        tensors.push(TensorInfo { name, dtype, shape, offset, bytes, order, is_big_endian: false });
    }
    check_layout(&mut tensors, data, file_bytes)?;
    Ok((tensors, parsed.metadata))
}

/// Converts a message of the JSON parser, which may repeat the whole header, into an error of bounded length.
fn unreadable(e: &serde_json::Error) -> Error {
    let mut why = e.to_string();
    if let Some((end, _)) = why.char_indices().nth(MAX_REASON_CHARS) {
        why.truncate(end);
        why.push_str(&format!("… at line {} column {}", e.line(), e.column()));
    }
    Error::invalid(format!("the safetensors header cannot be read: {why}"))
}

/// Checks the rule "The byte buffer needs to be entirely indexed, and cannot contain holes."
fn check_layout(tensors: &mut [TensorInfo], data: u64, file_bytes: u64) -> Result<()> {
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    let mut end = data;
    for tensor in tensors {
        let (name, at) = (shown(&tensor.name), tensor.offset - data);
        if tensor.offset < end {
            return Err(Error::invalid(format!(
                "tensor {name} begins at byte {at} of the data, within another tensor"
            )));
        }
        if tensor.offset > end {
            return Err(Error::invalid(format!("the bytes before tensor {name}, at byte {at}, belong to no tensor")));
        }
        end = tensor.offset + tensor.bytes;
    }
    if end != file_bytes {
        let rest = file_bytes - end;
        return Err(Error::invalid(format!("the {rest} bytes after the last tensor belong to no tensor")));
    }
    Ok(())
}

/// Returns the header of a file with these tensors, given by name, type and shape, one after the other.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for shapes without a size in bytes and for a name that
/// is reserved or repeated. Returns [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a type that the format
/// lacks, and [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header over [`MAX_HEADER_BYTES`], which could not
/// be read again.
pub fn head<'a>(
    tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [u64])>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let mut members = BTreeMap::new();
    if !metadata.is_empty() {
        members.insert(METADATA, Member::Metadata(metadata));
    }
    let mut end = 0_u64;
    for (name, dtype, shape) in tensors {
        if !dtype.is_in_safetensors() {
            return Err(Error::unsupported(format!("safetensors has no dtype {dtype}: use npy or raw")));
        }
        let start = end;
        end = start.checked_add(bytes_of(dtype, shape)?).ok_or_else(|| Error::too_large("more than 2^64 bytes"))?;
        let tensor = Member::Tensor { data_offsets: [start, end], dtype: dtype.name(), shape };
        if name == METADATA || members.insert(name, tensor).is_some() {
            return Err(Error::invalid(format!(
                "two tensors, or a tensor and the metadata, are named {}",
                shown(name)
            )));
        }
    }
    let mut json = serde_json::to_vec(&members)
        .map_err(|e| Error::internal("the safetensors header could not be written").with_source(e))?;
    if json.len() as u64 > MAX_HEADER_BYTES {
        let bytes = json.len();
        let why = format!("a safetensors header of {bytes} bytes is over the limit of {MAX_HEADER_BYTES}");
        return Err(Error::too_large(format!("{why}: use several files, or leave out metadata")));
    }
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.append(&mut json);
    Ok(head)
}

/// A member of the JSON to write.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Member<'a> {
    Metadata(&'a BTreeMap<String, String>),
    Tensor { data_offsets: [u64; 2], dtype: &'static str, shape: &'a [u64] },
}

/// The parsed JSON.
struct Parsed {
    tensors: Vec<(String, Described)>,
    metadata: BTreeMap<String, String>,
}

#[derive(serde::Deserialize)]
struct Described {
    dtype: String,
    #[serde(deserialize_with = "shape")]
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one member for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let (mut tensors, mut metadata) = (Vec::new(), None);
        while let Some(name) = map.next_key::<String>()? {
            if name != METADATA {
                tensors.push((name, map.next_value()?));
            } else if metadata.replace(map.next_value::<Option<_>>()?).is_some() {
                return Err(serde::de::Error::custom("__metadata__ occurs twice"));
            }
        }
        Ok(Parsed { tensors, metadata: metadata.flatten().unwrap_or_default() })
    }
}

/// Parses a shape. It never holds more dimensions in memory than a tensor may have.
fn shape<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    struct Dimensions;

    impl<'de> Visitor<'de> for Dimensions {
        type Value = Vec<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_RANK} dimensions")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u64>, A::Error> {
            let mut shape = Vec::new();
            while let Some(dimension) = seq.next_element()? {
                if shape.len() == MAX_RANK {
                    return Err(serde::de::Error::custom(format_args!("a shape has over {MAX_RANK} dimensions")));
                }
                shape.push(dimension);
            }
            Ok(shape)
        }
    }

    deserializer.deserialize_seq(Dimensions)
}

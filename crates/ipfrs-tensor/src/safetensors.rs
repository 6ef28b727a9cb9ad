//! The header of safetensors: eight bytes of length, then that much JSON
//! (<https://github.com/huggingface/safetensors#format>).

use std::collections::BTreeMap;
use std::fmt;

use ipfrs_core::{Error, Result};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::catalogue::{MAX_RANK, bytes_of, shown};
use crate::{Dtype, FileFormat, Header, Order, TensorInfo};

/// Longest JSON. The largest files of models have some megabytes of it; the format's own reader takes 100 MB.
pub const MAX_HEADER_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of the length before the JSON.
const LENGTH_BYTES: usize = 8;

/// Most characters of what a reader of JSON says of a header.
const MAX_REASON_CHARS: usize = 200;

/// The name that is no tensor.
const METADATA: &str = "__metadata__";

/// The header writes end at a multiple of this, so that elements lie as the machine likes them.
const ALIGNMENT: usize = 8;

pub(crate) fn header(prefix: &[u8]) -> Result<Header> {
    let neither = || Error::invalid("the file is neither safetensors nor .npy: it does not begin as they do");
    let (length, rest) = prefix.split_first_chunk::<LENGTH_BYTES>().ok_or_else(neither)?;
    if rest.first() != Some(&b'{') {
        return Err(neither());
    }
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER_BYTES {
        return Err(Error::too_large(format!(
            "the safetensors header claims {length} bytes, over the limit of {MAX_HEADER_BYTES}: divide the file"
        )));
    }
    let bytes = LENGTH_BYTES + usize::try_from(length).unwrap_or(usize::MAX - LENGTH_BYTES);
    Ok(Header { format: FileFormat::Safetensors, bytes })
}

/// The tensors of a header that [`header`] has accepted, and the metadata.
pub(crate) fn tensors(header: &[u8], file_bytes: u64) -> Result<(Vec<TensorInfo>, BTreeMap<String, String>)> {
    let json = header.get(LENGTH_BYTES..).unwrap_or_default();
    let json = std::str::from_utf8(json).map_err(|_| Error::invalid("the safetensors header is not UTF-8"))?;
    let parsed: Parsed = serde_json::from_str(json).map_err(|e| unreadable(&e))?;
    let data = header.len() as u64;
    let room = file_bytes.saturating_sub(data);
    let mut tensors = Vec::with_capacity(parsed.tensors.len());
    for (name, Described { dtype, shape, data_offsets: [start, end] }) in parsed.tensors {
        let wrong = |why: String| Error::invalid(format!("tensor {}: {why}", shown(&name)));
        let dtype: Dtype = dtype.parse().map_err(|e: Error| wrong(e.to_string()))?;
        if !dtype.is_in_safetensors() {
            return Err(wrong(format!("safetensors has no dtype {dtype}")));
        }
        let bytes = bytes_of(dtype, &shape).map_err(|e| wrong(e.to_string()))?;
        if start > end || end > room {
            return Err(wrong(format!("its bytes {start}..{end} are not in the {room} bytes of data of the file")));
        }
        if end - start != bytes {
            return Err(wrong(format!("{} bytes were written for {bytes} bytes of {dtype} {shape:?}", end - start)));
        }
        let (offset, order) = (data + start, Order::RowMajor);
        tensors.push(TensorInfo { name, dtype, shape, offset, bytes, order, is_big_endian: false });
    }
    check_layout(&mut tensors, data, file_bytes)?;
    Ok((tensors, parsed.metadata))
}

/// What the reader of JSON says, which may repeat all of a header, in the length of a message.
fn unreadable(e: &serde_json::Error) -> Error {
    let mut why = e.to_string();
    if let Some((end, _)) = why.char_indices().nth(MAX_REASON_CHARS) {
        why.truncate(end);
        why.push_str(&format!("… at line {} column {}", e.line(), e.column()));
    }
    Error::invalid(format!("the safetensors header cannot be read: {why}"))
}

/// "The byte buffer needs to be entirely indexed, and cannot contain holes."
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
            return Err(Error::invalid(format!("before tensor {name}, at byte {at}, are bytes that no tensor has")));
        }
        end = tensor.offset + tensor.bytes;
    }
    if end != file_bytes {
        let rest = file_bytes - end;
        return Err(Error::invalid(format!("behind the last tensor are {rest} bytes that no tensor has")));
    }
    Ok(())
}

/// The header of a file with these tensors, one after the other: their names, types and shapes.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for shapes without a size in bytes, a name that is taken by the format or
/// occurs twice; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a type that the format does not have;
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a header over [`MAX_HEADER_BYTES`], which would not be read again.
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
            return Err(Error::unsupported(format!("safetensors has no dtype {dtype}: ask for npy or raw")));
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
        return Err(Error::too_large(format!("{why}: make several files, or leave out metadata")));
    }
    json.resize(json.len().next_multiple_of(ALIGNMENT), b' ');
    let mut head = (json.len() as u64).to_le_bytes().to_vec();
    head.append(&mut json);
    Ok(head)
}

/// A member of the JSON, to be written.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Member<'a> {
    Metadata(&'a BTreeMap<String, String>),
    Tensor { data_offsets: [u64; 2], dtype: &'static str, shape: &'a [u64] },
}

/// The JSON, as it is written.
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
            } else if metadata.replace(map.next_value()?).is_some() {
                return Err(serde::de::Error::custom("__metadata__ occurs twice"));
            }
        }
        Ok(Parsed { tensors, metadata: metadata.unwrap_or_default() })
    }
}

/// As many dimensions as a tensor may have, and not one more in memory.
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

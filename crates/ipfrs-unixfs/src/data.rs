//! The UnixFS `Data` message (<https://specs.ipfs.tech/unixfs/#data>).

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use prost::Message;
use prost::encoding::decode_varint;

/// Value of `Data.hashType` for HAMT shards: the first 64 bits of murmur3 x64.
pub(crate) const MURMUR3_X64_64: u64 = 0x22;

/// The permission bits of `Data.mode`.
const MODE_BITS: u32 = 0o7777;

/// The type of a node: `Data.Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataType {
    Raw,
    Directory,
    File,
    Metadata,
    Symlink,
    HamtShard,
}

impl DataType {
    fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            0 => Self::Raw,
            1 => Self::Directory,
            2 => Self::File,
            3 => Self::Metadata,
            4 => Self::Symlink,
            5 => Self::HamtShard,
            _ => return None,
        })
    }

    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Raw => 0,
            Self::Directory => 1,
            Self::File => 2,
            Self::Metadata => 3,
            Self::Symlink => 4,
            Self::HamtShard => 5,
        }
    }
}

/// The `Data` message on the wire. Fields are encoded in the order of their numbers and omitted if they are `None`,
/// so the encoded bytes equal those of Kubo.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Data {
    #[prost(int32, optional, tag = "1")]
    pub type_code: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub data: Option<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub filesize: Option<u64>,
    #[prost(uint64, repeated, packed = "false", tag = "4")]
    pub blocksizes: Vec<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub hash_type: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub fanout: Option<u64>,
    #[prost(uint32, optional, tag = "7")]
    pub mode: Option<u32>,
    #[prost(message, optional, tag = "8")]
    pub mtime: Option<WireMtime>,
}

/// The `IPFSTimestamp` message on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireMtime {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    #[prost(fixed32, optional, tag = "2")]
    pub nanos: Option<u32>,
}

/// Time of the last change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970-01-01T00:00:00Z; negative before that.
    pub seconds: i64,
    /// Nanoseconds since the start of that second, below 1,000,000,000.
    pub nanos: u32,
}

/// File metadata besides the content (UnixFS 1.5). The root of a file, a directory and a symbolic link can have
/// attributes. Most content has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Unix permissions, with the set-user-ID, set-group-ID and sticky bits: the lowest 12 bits of `st_mode`.
    pub mode: Option<u32>,
    /// Time of the last change.
    pub mtime: Option<Mtime>,
}

impl Attributes {
    /// Returns whether any attribute is set.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.mode.is_some() || self.mtime.is_some()
    }
}

/// Keys (number and wire type) of fields of [`Data`].
const TYPE_KEY: u8 = 0x08;
const DATA_KEY: u8 = 0x12;
const FILESIZE_KEY: u8 = 0x18;
const BLOCKSIZES_KEY: u8 = 0x20;

/// Reads the number after `key`, which is a value or the length of one, if `key` comes next.
fn read_field(key: u8, rest: &mut &[u8]) -> Option<u64> {
    let mut after = rest.strip_prefix(&[key])?;
    let value = match after {
        [value @ ..0x80, behind @ ..] => {
            after = behind;
            u64::from(*value)
        }
        _ => decode_varint(&mut after).ok()?,
    };
    *rest = after;
    Some(value)
}

impl Data {
    /// Returns the message with these attributes, encoded like Kubo: zero nanoseconds are omitted.
    pub(crate) fn with_attributes(self, attributes: &Attributes) -> Self {
        let mtime = attributes.mtime.map(|mtime| WireMtime {
            seconds: Some(mtime.seconds),
            nanos: Some(mtime.nanos).filter(|nanos| *nanos > 0),
        });
        Self { mode: attributes.mode, mtime, ..self }
    }

    /// Reads the message. Byte fields are slices of `bytes`.
    pub(crate) fn read(bytes: Bytes) -> Result<Self> {
        if let Some(data) = Self::read_ordinary(&bytes) {
            return Ok(data);
        }
        Self::decode(bytes).map_err(|e| Error::invalid(format!("malformed UnixFS data: {e}")))
    }

    /// Reads a message with the layout of nearly all files: type, content, size, and the sizes of the parts (often
    /// hundreds), in this order. Returns `None` for any other message.
    fn read_ordinary(bytes: &Bytes) -> Option<Self> {
        let mut rest = &bytes[..];
        // Like protobuf, take the lowest 32 bits.
        let type_code = read_field(TYPE_KEY, &mut rest)? as i32;
        let data = match read_field(DATA_KEY, &mut rest) {
            Some(len) => {
                let (data, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                rest = after;
                Some(bytes.slice_ref(data))
            }
            None => None,
        };
        let filesize = read_field(FILESIZE_KEY, &mut rest);
        let blocksizes = std::iter::from_fn(|| read_field(BLOCKSIZES_KEY, &mut rest)).collect();
        rest.is_empty().then(|| Self { type_code: Some(type_code), data, filesize, blocksizes, ..Self::default() })
    }

    pub(crate) fn data_type(&self) -> Result<DataType> {
        let code = self.type_code.ok_or_else(|| Error::invalid("UnixFS data has no type"))?;
        DataType::from_code(code).ok_or_else(|| Error::invalid(format!("UnixFS type {code} is not known")))
    }

    /// Returns the attributes. The upper bits of the mode, which the specification reserves, are masked out.
    pub(crate) fn attributes(&self) -> Attributes {
        Attributes { mode: self.mode.map(|mode| mode & MODE_BITS).filter(|mode| *mode != 0), mtime: self.mtime() }
    }

    /// Returns the time of the last change. As in Kubo, an invalid time counts as absent.
    fn mtime(&self) -> Option<Mtime> {
        let wire = self.mtime.as_ref()?;
        let nanos = wire.nanos.unwrap_or_default();
        (nanos < 1_000_000_000).then_some(Mtime { seconds: wire.seconds?, nanos })
    }

    /// Returns the number of file bytes below this node: its own content and that of its children.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the sizes overflow or if `filesize` is not their
    /// sum.
    pub(crate) fn file_size(&self) -> Result<u64> {
        let inline = self.data.as_ref().map_or(0, Bytes::len) as u64;
        let sum = self
            .blocksizes
            .iter()
            .try_fold(inline, |sum, size| sum.checked_add(*size))
            .ok_or_else(|| Error::invalid("the sizes of its children overflow 64 bits"))?;
        match self.filesize {
            Some(size) if size != sum => {
                Err(Error::invalid(format!("its filesize is {size}, but its parts are {sum} bytes")))
            }
            _ => Ok(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_fast_path_equals_full_decoder() {
        let plain = Data { type_code: Some(2), ..Data::default() };
        let sizes = vec![0, 127, 128, 262_144, u64::MAX];
        let ordinary = [
            plain.clone(),
            Data { data: Some(Bytes::new()), filesize: Some(0), ..plain.clone() },
            Data { data: Some(Bytes::from_static(b"content")), filesize: Some(7), ..plain.clone() },
            Data { filesize: Some(1 << 40), blocksizes: sizes.clone(), ..plain.clone() },
            Data { type_code: Some(-1), data: Some(Bytes::from(vec![7; 300])), blocksizes: sizes, ..plain.clone() },
        ];
        for data in ordinary {
            let bytes = Bytes::from(data.encode_to_vec());
            assert_eq!(Data::read_ordinary(&bytes).as_ref(), Some(&data));
            assert_eq!(Data::decode(bytes.clone()).as_ref(), Ok(&data));
            for end in 0..bytes.len() {
                let cut = bytes.slice(..end);
                let read = Data::read_ordinary(&cut);
                assert!(read.is_none() || read == Data::decode(cut).ok(), "{end} bytes of {data:?}");
            }
        }
        let others = [
            Data { mode: Some(0o644), ..plain.clone() },
            Data { fanout: Some(256), hash_type: Some(MURMUR3_X64_64), ..plain.clone() },
            Data { type_code: None, filesize: Some(1), ..plain },
        ];
        for data in others {
            let bytes = Bytes::from(data.encode_to_vec());
            assert_eq!(Data::read_ordinary(&bytes), None);
            assert_eq!(Data::read(bytes).unwrap(), data);
        }
        // A repeated field, and fields in another order: the last value counts, and all fields are read.
        for bytes in [&b"\x08\x02\x18\x01\x18\x02"[..], b"\x18\x01\x08\x02", b"\x08\x02\x20\x01\x18\x01"] {
            let bytes = Bytes::from_static(bytes);
            assert_eq!(Data::read_ordinary(&bytes), None);
            assert_eq!(Data::read(bytes.clone()).unwrap(), Data::decode(bytes).unwrap());
        }
    }
}

//! The UnixFS `Data` message (<https://specs.ipfs.tech/unixfs/#data>).

use bytes::Bytes;
use ipfrs_core::{Error, Result};
use prost::Message;
use prost::encoding::decode_varint;

/// `Data.hashType` of HAMT shards: murmur3 x64, its first 64 bits.
pub(crate) const MURMUR3_X64_64: u64 = 0x22;

/// The bits of `Data.mode` that are permissions.
const MODE_BITS: u32 = 0o7777;

/// What a node is: `Data.Type`.
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

/// `Data` as it is on the wire: fields in the order of their numbers, and those that are `None` left out, which are the
/// bytes that Kubo writes too.
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

/// `IPFSTimestamp` on the wire.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireMtime {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    #[prost(fixed32, optional, tag = "2")]
    pub nanos: Option<u32>,
}

/// When a file was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtime {
    /// Seconds since 1970-01-01T00:00:00Z, negative before.
    pub seconds: i64,
    /// Nanoseconds that have passed since that second, below 1,000,000,000.
    pub nanos: u32,
}

/// What UnixFS keeps of a file system beside content (UnixFS 1.5): on the root of a file, on directories and on symbolic
/// links. Most content has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Unix permissions with the set-user-ID, set-group-ID and sticky bits: the lowest 12 bits of `st_mode`.
    pub mode: Option<u32>,
    /// Last change.
    pub mtime: Option<Mtime>,
}

impl Attributes {
    /// There is something to keep.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.mode.is_some() || self.mtime.is_some()
    }
}

/// Number and wire type of fields of [`Data`].
const TYPE_KEY: u8 = 0x08;
const DATA_KEY: u8 = 0x12;
const FILESIZE_KEY: u8 = 0x18;
const BLOCKSIZES_KEY: u8 = 0x20;

/// The number behind `key`, if that comes next: a value, or the length of one.
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
    /// The message with these attributes, written as Kubo writes them: no nanoseconds where they are none.
    pub(crate) fn with_attributes(self, attributes: &Attributes) -> Self {
        let mtime = attributes.mtime.map(|mtime| WireMtime {
            seconds: Some(mtime.seconds),
            nanos: Some(mtime.nanos).filter(|nanos| *nanos > 0),
        });
        Self { mode: attributes.mode, mtime, ..self }
    }

    /// Reads the message; byte fields are slices of `bytes`.
    pub(crate) fn read(bytes: Bytes) -> Result<Self> {
        if let Some(data) = Self::read_ordinary(&bytes) {
            return Ok(data);
        }
        Self::decode(bytes).map_err(|e| Error::invalid(format!("malformed UnixFS data: {e}")))
    }

    /// Reads what nearly all files have: type, content, size, and the sizes of parts, of which there are hundreds, each field in
    /// its place. `None` for anything else.
    fn read_ordinary(bytes: &Bytes) -> Option<Self> {
        let mut rest = &bytes[..];
        // As protobuf has it: the lowest 32 bits.
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

    /// The attributes. Upper bits of the mode, which the specification leaves to others, are left out.
    pub(crate) fn attributes(&self) -> Attributes {
        Attributes { mode: self.mode.map(|mode| mode & MODE_BITS).filter(|mode| *mode != 0), mtime: self.mtime() }
    }

    /// The time of the last change; one that the specification does not allow counts as absent, as in Kubo.
    fn mtime(&self) -> Option<Mtime> {
        let wire = self.mtime.as_ref()?;
        let nanos = wire.nanos.unwrap_or_default();
        (nanos < 1_000_000_000).then_some(Mtime { seconds: wire.seconds?, nanos })
    }

    /// Bytes of the file below this node: what it holds itself and what its children hold.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when the sizes overflow or `filesize` is not their sum.
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
    fn ordinary_data_is_read_as_all_data_is() {
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
        // A field twice, and fields in another order: the last one counts, and all of them are looked at.
        for bytes in [&b"\x08\x02\x18\x01\x18\x02"[..], b"\x18\x01\x08\x02", b"\x08\x02\x20\x01\x18\x01"] {
            let bytes = Bytes::from_static(bytes);
            assert_eq!(Data::read_ordinary(&bytes), None);
            assert_eq!(Data::read(bytes.clone()).unwrap(), Data::decode(bytes).unwrap());
        }
    }
}

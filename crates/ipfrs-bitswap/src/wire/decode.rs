//! Decoding of messages.

use bytes::Bytes;
use ipfrs_core::hash::{HashFunction, SHA2_256};
use ipfrs_core::{Cid, Multihash, codec, new_cid};

use super::{MAX_ENTRIES, Message, Payload, Presence, WantEntry, WantKind};

/// The fault of a message that could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("its protobuf is malformed")]
    Protobuf,
    #[error("it has too many entries")]
    TooManyEntries,
    #[error("it contains a malformed content ID")]
    Cid,
    #[error("it is longer than 4 MiB")]
    TooLong,
}

impl Malformed {
    /// Every fault.
    pub(crate) const ALL: [Self; 4] = [Self::Protobuf, Self::TooManyEntries, Self::Cid, Self::TooLong];

    /// Returns the label in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::TooManyEntries => "too_many_entries",
            Self::Cid => "cid",
            Self::TooLong => "too_long",
        }
    }
}

/// Parts of a content ID without its digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    version: u64,
    codec: u64,
    hash: u64,
    digest_bytes: u64,
}

impl Prefix {
    /// The prefix of all blocks of Bitswap 1.0.0: a CIDv0.
    pub(crate) const V0: Self = Self { version: 0, codec: codec::DAG_PB, hash: SHA2_256, digest_bytes: 32 };

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        let mut number = || {
            let (number, left) = unsigned_varint::decode::u64(rest).map_err(|_| Malformed::Cid)?;
            rest = left;
            Ok(number)
        };
        let prefix = Self { version: number()?, codec: number()?, hash: number()?, digest_bytes: number()? };
        if rest.is_empty() { Ok(prefix) } else { Err(Malformed::Cid) }
    }

    /// Returns the hash function, or `None` if this node does not support it or its digest is truncated.
    pub(crate) fn hash_function(&self) -> Option<HashFunction> {
        let function = HashFunction::from_code(self.hash).ok()?;
        function.digest_bytes()?;
        function.is_whole(usize::try_from(self.digest_bytes).ok()?).then_some(function)
    }

    /// Returns the length of the digest.
    pub(crate) fn digest_bytes(&self) -> usize {
        usize::try_from(self.digest_bytes).unwrap_or(usize::MAX)
    }

    /// Returns the content ID with this digest, or `None` if there is no such content ID.
    pub(crate) fn cid(&self, digest: Multihash) -> Option<Cid> {
        new_cid(self.version, self.codec, digest).ok()
    }
}

/// A value of a protobuf field. Fixed-size values do not occur in messages and are skipped.
enum Value {
    Number(u64),
    Bytes(Bytes),
    Fixed,
}

/// Fields of a protobuf message.
struct Fields(Bytes);

impl Fields {
    fn number(&mut self) -> Result<u64, Malformed> {
        let (number, rest) = unsigned_varint::decode::u64(&self.0).map_err(|_| Malformed::Protobuf)?;
        let taken = self.0.len() - rest.len();
        self.take(taken)?;
        Ok(number)
    }

    fn take(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if count > self.0.len() {
            return Err(Malformed::Protobuf);
        }
        Ok(self.0.split_to(count))
    }

    fn next(&mut self) -> Result<Option<(u64, Value)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.signed_or_unsigned()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| Malformed::Protobuf)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed::Protobuf),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Reads a number of up to ten bytes. Encoders write zeros at its end in rare cases, which other numbers must not
    /// have.
    fn signed_or_unsigned(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for position in 0..10 {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f).checked_shl(7 * position).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Protobuf)
    }
}

impl Message {
    /// Decodes a message. Its blocks share the memory of `bytes`.
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Malformed> {
        let mut message = Self::default();
        let mut fields = Fields(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(wantlist)) => message.decode_wantlist(wantlist)?,
                (2, Value::Bytes(data)) => push(&mut message.blocks, Payload { prefix: Prefix::V0, data })?,
                (3, Value::Bytes(payload)) => push(&mut message.blocks, decode_payload(payload)?)?,
                (4, Value::Bytes(presence)) => push(&mut message.presences, decode_presence(presence)?)?,
                _ => {}
            }
        }
        Ok(message)
    }

    fn decode_wantlist(&mut self, bytes: Bytes) -> Result<(), Malformed> {
        let mut fields = Fields(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(entry)) => push(&mut self.wants, decode_want(entry)?)?,
                (2, Value::Number(full)) => self.is_full = full != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

fn push<T>(list: &mut Vec<T>, entry: T) -> Result<(), Malformed> {
    if list.len() >= MAX_ENTRIES {
        return Err(Malformed::TooManyEntries);
    }
    list.push(entry);
    Ok(())
}

fn decode_want(bytes: Bytes) -> Result<WantEntry, Malformed> {
    let mut entry =
        WantEntry { cid: Bytes::new(), priority: 0, cancel: false, kind: WantKind::Block, send_dont_have: false };
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(cid)) => entry.cid = cid,
            // An `int32` is sign-extended to 64 bits.
            #[expect(clippy::cast_possible_truncation, reason = "the upper half repeats the sign")]
            (2, Value::Number(priority)) => entry.priority = priority as i32,
            (3, Value::Number(cancel)) => entry.cancel = cancel != 0,
            (4, Value::Number(kind)) => entry.kind = if kind == 1 { WantKind::Have } else { WantKind::Block },
            (5, Value::Number(send)) => entry.send_dont_have = send != 0,
            _ => {}
        }
    }
    Ok(entry)
}

fn decode_payload(bytes: Bytes) -> Result<Payload, Malformed> {
    let mut prefix = Bytes::new();
    let mut data = Bytes::new();
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(found)) => prefix = found,
            (2, Value::Bytes(found)) => data = found,
            _ => {}
        }
    }
    Ok(Payload { prefix: Prefix::decode(&prefix)?, data })
}

fn decode_presence(bytes: Bytes) -> Result<Presence, Malformed> {
    let mut presence = Presence { cid: Bytes::new(), has_block: true };
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(cid)) => presence.cid = cid,
            (2, Value::Number(kind)) => presence.has_block = kind == 0,
            _ => {}
        }
    }
    Ok(presence)
}

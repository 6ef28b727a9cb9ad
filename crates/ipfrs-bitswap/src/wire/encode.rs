//! Encoding of messages, with their length in front.

use bytes::{BufMut, Bytes, BytesMut};
use ipfrs_core::Cid;
use unsigned_varint::encode;

use super::{MAX_MESSAGE_BYTES, Outgoing, Version, WantKind};

/// Blocks of up to this number of bytes are copied into the buffer of their message, so that a message of small blocks
/// is one write.
const COPIED_BYTES: usize = 4 * 1024;
/// Protobuf wire type of a length-delimited field.
const BYTES: u8 = 2;
/// Estimated bytes of a message around one block or presence.
const OVERHEAD_BYTES: usize = 64;

const fn tag(field: u8, wire_type: u8) -> u8 {
    field << 3 | wire_type
}

fn put_number(buffer: &mut BytesMut, number: u64) {
    buffer.put_slice(encode::u64(number, &mut encode::u64_buffer()));
}

fn number_bytes(number: usize) -> usize {
    encode::u64(number as u64, &mut encode::u64_buffer()).len()
}

/// Returns the size of a length-delimited field with a tag of one byte.
fn field_bytes(length: usize) -> usize {
    1 + number_bytes(length) + length
}

fn put_bytes(buffer: &mut BytesMut, field: u8, bytes: &[u8]) {
    put_head(buffer, field, bytes.len());
    buffer.put_slice(bytes);
}

fn put_head(buffer: &mut BytesMut, field: u8, length: usize) {
    buffer.put_u8(tag(field, BYTES));
    put_number(buffer, length as u64);
}

/// Encodes a message with these changes to the wantlist. With `is_full`, they replace all earlier wants.
pub(crate) fn wantlist(entries: &[(Cid, Outgoing)], version: Version, is_full: bool) -> Bytes {
    let mut list = BytesMut::with_capacity(entries.len() * OVERHEAD_BYTES);
    let mut entry = BytesMut::with_capacity(2 * OVERHEAD_BYTES);
    for (cid, outgoing) in entries {
        entry.clear();
        put_bytes(&mut entry, 1, &cid.to_bytes());
        match *outgoing {
            Outgoing::Cancel => entry.put_slice(&[tag(3, 0), 1]),
            Outgoing::Want { kind, priority } => {
                entry.put_u8(tag(2, 0));
                put_number(&mut entry, u64::from(priority.max(1).unsigned_abs()));
                if kind == WantKind::Have {
                    entry.put_slice(&[tag(4, 0), 1]);
                }
                if version.has_presences() {
                    entry.put_slice(&[tag(5, 0), 1]);
                }
            }
        }
        put_bytes(&mut list, 1, &entry);
    }
    if is_full {
        list.put_slice(&[tag(2, 0), 1]);
    }
    let mut message = BytesMut::with_capacity(list.len() + OVERHEAD_BYTES);
    put_number(&mut message, field_bytes(list.len()) as u64);
    put_bytes(&mut message, 1, &list);
    message.freeze()
}

/// A message with blocks and presences.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub blocks: Vec<(Cid, Bytes)>,
    pub presences: Vec<(Cid, bool)>,
    /// Estimated size, in bytes.
    size: usize,
}

impl Response {
    /// Whether a block fits in one message with what this one contains.
    pub(crate) fn has_room_for(&self, cid: &Cid, block_bytes: usize) -> bool {
        let bytes = || field_bytes(field_bytes(prefix(cid).len()) + field_bytes(block_bytes));
        block_bytes <= MAX_MESSAGE_BYTES && self.size + bytes() <= MAX_MESSAGE_BYTES
    }

    /// Adds a block.
    pub(crate) fn push_block(&mut self, cid: Cid, data: Bytes) {
        self.size += data.len() + OVERHEAD_BYTES;
        self.blocks.push((cid, data));
    }

    /// Adds `HAVE` or `DONT_HAVE`.
    pub(crate) fn push_presence(&mut self, cid: Cid, has_block: bool) {
        self.size += OVERHEAD_BYTES;
        self.presences.push((cid, has_block));
    }

    /// Returns the estimated size, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether there is nothing to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.presences.is_empty()
    }

    /// Encodes the message as buffers to be sent one after another. Presences and blocks that `version` cannot express
    /// are left out. Returns no buffers if nothing is left.
    pub(crate) fn encode(&self, version: Version) -> Vec<Bytes> {
        let mut parts = Vec::new();
        let mut buffer = BytesMut::with_capacity(self.size.min(64 * 1024));
        let mut length = 0;
        for (cid, data) in &self.blocks {
            if version == Version::V1_0 {
                length += field_bytes(data.len());
                put_head(&mut buffer, 2, data.len());
            } else {
                let prefix = prefix(cid);
                let payload = field_bytes(prefix.len()) + field_bytes(data.len());
                length += field_bytes(payload);
                put_head(&mut buffer, 3, payload);
                put_bytes(&mut buffer, 1, &prefix);
                put_head(&mut buffer, 2, data.len());
            }
            if data.len() <= COPIED_BYTES {
                buffer.put_slice(data);
            } else {
                parts.push(buffer.split().freeze());
                parts.push(data.clone());
            }
        }
        if version.has_presences() {
            for (cid, has_block) in &self.presences {
                let cid = cid.to_bytes();
                let presence = field_bytes(cid.len()) + if *has_block { 0 } else { 2 };
                length += field_bytes(presence);
                put_head(&mut buffer, 4, presence);
                put_bytes(&mut buffer, 1, &cid);
                if !*has_block {
                    buffer.put_slice(&[tag(2, 0), 1]);
                }
            }
        }
        if length == 0 {
            return Vec::new();
        }
        if !buffer.is_empty() {
            parts.push(buffer.freeze());
        }
        with_length(length, parts)
    }
}

/// Puts the length of a message in front of its first part.
fn with_length(length: usize, mut parts: Vec<Bytes>) -> Vec<Bytes> {
    if let Some(first) = parts.first_mut() {
        let mut head = BytesMut::with_capacity(first.len() + OVERHEAD_BYTES);
        put_number(&mut head, length as u64);
        head.put_slice(first);
        *first = head.freeze();
    }
    parts
}

/// Returns the binary content ID without its digest.
fn prefix(cid: &Cid) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    let numbers = [u64::from(cid.version()), cid.codec(), cid.hash().code(), u64::from(cid.hash().size())];
    for number in numbers {
        bytes.extend_from_slice(encode::u64(number, &mut encode::u64_buffer()));
    }
    bytes
}

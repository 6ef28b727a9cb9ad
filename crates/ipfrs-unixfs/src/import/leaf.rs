//! Leaves: chunks of a file, framed as blocks while they are gathered.

use bytes::{BufMut, Bytes, BytesMut};
use ipfrs_core::{Block, Result, codec};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::cut::Cut;
use super::cutter::Cutter;
use super::layout::Part;
use super::options::{ImportOptions, Layout};
use crate::dag_pb::{self, encoded_data_len, put_data_header};
use crate::data::{Attributes, Data, DataType};

/// Smallest chunk, in bytes, that is a slice of a piece that contains it. Smaller chunks are copied, so that a short
/// slice does not keep a long piece in memory.
const MIN_SLICED_CHUNK_BYTES: usize = 32 * 1024;

/// Spare capacity, in bytes. A leaf whose buffer exceeds twice its length plus this capacity is copied into a smaller
/// buffer.
const MIN_SPARE_BYTES: usize = 4 * 1024;

/// Most bytes that follow the payload in a dag-pb leaf: a key and a varint.
const MAX_TRAILER_BYTES: usize = 11;

/// The bytes of a leaf block that has not been hashed yet.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Bytes of the block.
    pub(crate) data: Bytes,
    /// Number of file bytes in the block.
    pub(crate) payload_bytes: usize,
}

impl Leaf {
    /// Returns a dag-pb leaf with `attributes`, for a file that consists of this leaf only.
    pub(crate) fn with_attributes(&self, attributes: &Attributes) -> Result<Self> {
        let node = dag_pb::decode(&self.data)?;
        let data = Data::read(node.data.unwrap_or_default())?.with_attributes(attributes);
        Ok(Self { data: dag_pb::encode(&node.links, &data.encode_to_vec()), payload_bytes: self.payload_bytes })
    }
}

/// A leaf with its content ID.
#[derive(Debug)]
pub(crate) struct HashedLeaf {
    pub(crate) block: Block,
    pub(crate) part: Part,
}

/// The encoding of leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeafFormat {
    /// A raw block: the block is the payload.
    Raw,
    /// A dag-pb node with a UnixFS message of this type.
    DagPb(DataType),
}

/// Gathers pieces of any size into leaves. Each byte is copied at most once, to its place in the block. The buffer
/// reserves space before the payload for the framing of a full chunk. The framing of a shorter chunk is no longer
/// than that, and is written directly before the payload.
#[derive(Debug)]
pub(crate) struct LeafGatherer {
    format: LeafFormat,
    cutter: Cutter,
    max_chunk_bytes: usize,
    /// Space reserved for the framing before the payload, in bytes.
    room_bytes: usize,
    /// The reserved space and the payload gathered so far; empty between leaves.
    buffer: BytesMut,
    is_first: bool,
    /// Whether empty content has one empty leaf.
    has_empty_leaf: bool,
}

impl LeafGatherer {
    pub(crate) fn new(options: &ImportOptions) -> Self {
        let max_chunk_bytes = options.chunker.max_chunk_bytes();
        let format = match options.layout {
            _ if options.raw_leaves => LeafFormat::Raw,
            Layout::Balanced => LeafFormat::DagPb(DataType::File),
            Layout::Trickle => LeafFormat::DagPb(DataType::Raw),
        };
        Self {
            format,
            cutter: options.chunker.cutter(),
            max_chunk_bytes,
            room_bytes: if format == LeafFormat::Raw { 0 } else { header_len(max_chunk_bytes) },
            buffer: BytesMut::new(),
            is_first: true,
            has_empty_leaf: options.layout == Layout::Balanced,
        }
    }

    /// Takes bytes from the front of `piece`, and returns a leaf if they complete one. The caller repeats the call
    /// until `piece` is empty.
    pub(crate) fn take(&mut self, piece: &mut Bytes) -> Option<Leaf> {
        let gathered = self.gathered_bytes();
        let Cut { len, ends } = self.cutter.scan(piece);
        let part = piece.split_to(len);
        if self.format == LeafFormat::Raw && ends && gathered == 0 && len >= MIN_SLICED_CHUNK_BYTES {
            self.is_first = false;
            return Some(Leaf { data: part, payload_bytes: len });
        }
        self.reserve(gathered + len);
        self.buffer.put_slice(&part);
        ends.then(|| self.seal())
    }

    /// Returns the last leaf, unless the content ended at the end of a leaf. Empty content has one empty leaf in the
    /// balanced layout.
    pub(crate) fn finish(&mut self) -> Option<Leaf> {
        (self.is_first && self.has_empty_leaf || self.gathered_bytes() > 0).then(|| self.seal())
    }

    fn gathered_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.room_bytes)
    }

    /// Reserves space for `payload_bytes` in total. The first leaf grows as it is filled, because it may be the only
    /// leaf and short. All others reserve a full chunk.
    fn reserve(&mut self, payload_bytes: usize) {
        let payload_room = if self.is_first { payload_bytes } else { self.max_chunk_bytes };
        let capacity = self.room_bytes + payload_room + MAX_TRAILER_BYTES;
        self.buffer.reserve(capacity.saturating_sub(self.buffer.len()));
        if self.buffer.is_empty() {
            self.buffer.put_bytes(0, self.room_bytes);
        }
    }

    fn seal(&mut self) -> Leaf {
        self.is_first = false;
        let payload_bytes = self.gathered_bytes();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut start = 0;
        if let LeafFormat::DagPb(data_type) = self.format {
            if buffer.is_empty() {
                buffer.put_bytes(0, self.room_bytes);
            }
            let header = header(data_type, payload_bytes);
            start = self.room_bytes - header.len();
            buffer[start..self.room_bytes].copy_from_slice(&header);
            put_filesize(payload_bytes, &mut buffer);
        }
        let is_sparse = buffer.capacity() > 2 * buffer.len() + MIN_SPARE_BYTES;
        let data = buffer.freeze().slice(start..);
        // A leaf may be much shorter than its buffer if it is the last one of a file or if its end depends on the
        // content.
        let data = if is_sparse { Bytes::copy_from_slice(&data) } else { data };
        Leaf { data, payload_bytes }
    }
}

/// Returns the length of the UnixFS message `{Type, Data: payload, filesize: payload_bytes}`. Without a payload, the
/// message has no `Data`.
fn message_len(payload_bytes: usize) -> usize {
    let data_len = if payload_bytes == 0 { 0 } else { encoded_data_len(payload_bytes) };
    2 + data_len + 1 + encoded_len_varint(payload_bytes as u64)
}

fn header_len(payload_bytes: usize) -> usize {
    encoded_data_len(message_len(payload_bytes)) - payload_bytes - 1 - encoded_len_varint(payload_bytes as u64)
}

/// Returns the bytes before the payload: the header of the dag-pb data, the type, and the header of the UnixFS data.
fn header(data_type: DataType, payload_bytes: usize) -> BytesMut {
    let mut header = BytesMut::with_capacity(header_len(payload_bytes));
    put_data_header(message_len(payload_bytes), &mut header);
    encode_key(1, WireType::Varint, &mut header);
    encode_varint(data_type.code() as u64, &mut header);
    if payload_bytes > 0 {
        encode_key(2, WireType::LengthDelimited, &mut header);
        encode_varint(payload_bytes as u64, &mut header);
    }
    header
}

/// Appends the bytes after the payload.
fn put_filesize(payload_bytes: usize, out: &mut BytesMut) {
    encode_key(3, WireType::Varint, out);
    encode_varint(payload_bytes as u64, out);
}

/// Hashes leaves, in order.
pub(crate) fn hash_leaves(leaves: Vec<Leaf>, options: &ImportOptions) -> Result<Vec<HashedLeaf>> {
    let leaf_codec = if options.raw_leaves { codec::RAW } else { codec::DAG_PB };
    let sizes: Vec<u64> = leaves.iter().map(|leaf| leaf.payload_bytes as u64).collect();
    let blocks = options.blocks(leaf_codec, leaves.into_iter().map(|leaf| leaf.data).collect())?;
    let hashed = blocks.into_iter().zip(sizes).map(|(block, size)| {
        let part = Part { cid: *block.cid(), size, tsize: block.data().len() as u64 };
        HashedLeaf { block, part }
    });
    Ok(hashed.collect())
}

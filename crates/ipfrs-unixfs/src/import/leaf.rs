//! Leaves: chunks of a file, framed as blocks while they are gathered.

use bytes::{BufMut, Bytes, BytesMut};
use ipfrs_core::{Block, Result, codec};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::cutter::{Cut, Cutter};
use super::layout::Part;
use super::options::{ImportOptions, Layout};
use crate::dag_pb::{self, encoded_data_len, put_data_header};
use crate::data::{Attributes, Data, DataType};

/// Chunks from this size on are sliced out of a piece that holds them whole. Smaller ones are copied, so that a short
/// slice does not keep a long piece in memory.
const MIN_SLICED_CHUNK_BYTES: usize = 32 * 1024;

/// Memory of a leaf that is more than twice its length and this is given back.
const MIN_SPARE_BYTES: usize = 4 * 1024;

/// Most bytes that follow the payload in a dag-pb leaf: a key and a varint.
const MAX_TRAILER_BYTES: usize = 11;

/// The bytes of a leaf block that has not been hashed yet.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// The block.
    pub(crate) data: Bytes,
    /// Bytes of the file in it.
    pub(crate) payload_bytes: usize,
}

impl Leaf {
    /// The dag-pb leaf with `attributes`, as the root of a file of one leaf has them.
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

/// What leaves are in their blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeafFormat {
    /// The block is the payload.
    Raw,
    /// The block is a dag-pb node with a UnixFS message of this type.
    DagPb(DataType),
}

/// Gathers pieces of any size into leaves. Each byte is copied once, to where it is in its block, or not at all: in
/// front of the payload there is room for the framing of a full chunk, and that of a shorter one, which is no longer, is
/// put right before the payload.
#[derive(Debug)]
pub(crate) struct LeafGatherer {
    format: LeafFormat,
    cutter: Cutter,
    max_chunk_bytes: usize,
    /// Room for the framing before the payload.
    room_bytes: usize,
    /// The room and the payload gathered so far; empty between leaves.
    buffer: BytesMut,
    is_first: bool,
    /// Empty content has a leaf.
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
            cutter: Cutter::new(options.chunker),
            max_chunk_bytes,
            room_bytes: if format == LeafFormat::Raw { 0 } else { header_len(max_chunk_bytes) },
            buffer: BytesMut::new(),
            is_first: true,
            has_empty_leaf: options.layout == Layout::Balanced,
        }
    }

    /// Takes what it can use from the front of `piece`, and gives a leaf when that made one full. Call it until `piece`
    /// is empty.
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

    /// The last leaf, unless the content ended where a leaf did. Empty content has one empty leaf in the balanced layout.
    pub(crate) fn finish(&mut self) -> Option<Leaf> {
        (self.is_first && self.has_empty_leaf || self.gathered_bytes() > 0).then(|| self.seal())
    }

    fn gathered_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.room_bytes)
    }

    /// Makes room for `payload_bytes` in all. Only the first leaf of a file, which may be its only and a short one, grows
    /// as it is filled.
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
        // A leaf may be far shorter than the memory that was set aside for it: the last one of a file, and every one
        // whose end its content decides.
        let data = if is_sparse { Bytes::copy_from_slice(&data) } else { data };
        Leaf { data, payload_bytes }
    }
}

/// Bytes of the UnixFS message `{Type, Data: payload, filesize: payload_bytes}`; no payload, no Data.
fn message_len(payload_bytes: usize) -> usize {
    let data_len = if payload_bytes == 0 { 0 } else { encoded_data_len(payload_bytes) };
    2 + data_len + 1 + encoded_len_varint(payload_bytes as u64)
}

fn header_len(payload_bytes: usize) -> usize {
    encoded_data_len(message_len(payload_bytes)) - payload_bytes - 1 - encoded_len_varint(payload_bytes as u64)
}

/// What comes before the payload: the header of the dag-pb data, the type, and the header of the UnixFS data.
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

/// What comes after the payload.
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

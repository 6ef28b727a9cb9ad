//! The dag-pb codec (<https://ipld.io/specs/codecs/dag-pb/spec/>).
//!
//! ```protobuf
//! message PBLink { bytes Hash = 1; string Name = 2; uint64 Tsize = 3; }
//! message PBNode { repeated PBLink Links = 2; bytes Data = 1; }
//! ```
//!
//! Nodes are encoded and decoded field by field here. The canonical form has the links before the data, which no
//! protobuf generator produces. The strict form has no unknown or repeated fields, which every generated decoder
//! accepts. Blocks from other sources are never encoded again; their bytes are kept.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ipfrs_core::limits::MAX_BLOCK_LINKS;
use ipfrs_core::{Cid, CidList, Error, Result, cid_from_bytes};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint};

use crate::link_name::LinkName;

const NODE_DATA: u32 = 1;
const NODE_LINKS: u32 = 2;
const LINK_HASH: u32 = 1;
const LINK_NAME: u32 = 2;
const LINK_TSIZE: u32 = 3;

/// Length of every key here (field number and wire type), in bytes.
const KEY_LEN: usize = 1;

/// A named link to another block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PbLink {
    /// Content ID of the target block.
    pub cid: Cid,
    /// Name of the entry in a directory; empty in files.
    pub name: LinkName,
    /// Total size of all blocks below this link including the target itself, as declared by the writer of the block.
    pub tsize: u64,
}

/// A node: links, and the data of the layer above.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PbNode {
    /// Links, in the order of the block.
    pub links: Vec<PbLink>,
    /// Data. In a decoded node, this is a slice of the block.
    pub data: Option<Bytes>,
}

/// Decodes a node. The data is a slice of `block`; nothing is copied.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a malformed block, and
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_BLOCK_LINKS`] links.
pub fn decode(block: &Bytes) -> Result<PbNode> {
    let parts = RawNode::read(block)?;
    Ok(PbNode { links: parts.links()?, data: parts.data.map(|data| block.slice_ref(data)) })
}

/// Returns the number of links of a node, and the sum of the sizes that they declare. Takes no memory for the links.
///
/// # Errors
/// As [`decode`].
pub fn totals(block: &[u8]) -> Result<(usize, u64)> {
    let (mut count, mut size) = (0, 0_u64);
    read_node(block, |link| {
        if count == MAX_BLOCK_LINKS {
            return Err(too_many_links());
        }
        let link = read_link(link)?;
        cid_from_bytes(link.cid)?;
        count += 1;
        size = size.saturating_add(link.tsize);
        Ok(())
    })?;
    Ok((count, size))
}

/// Returns the link targets of a node with any number of links, in the order of the block. The errors are those of
/// [`decode`].
pub(crate) fn decode_cids(block: &[u8]) -> Result<CidList> {
    let mut cids = CidList::default();
    read_node(block, |link| {
        cids.push(&cid_from_bytes(read_link(link)?.cid)?);
        Ok(())
    })?;
    Ok(cids)
}

/// A node whose links have been located but not decoded. The type in its data decides how they are used.
pub(crate) struct RawNode<'a> {
    links: Vec<&'a [u8]>,
    /// Data of the node, if it has any.
    pub(crate) data: Option<&'a [u8]>,
}

impl<'a> RawNode<'a> {
    /// Locates the data and the links. The errors are those of [`decode`], except those about the content of a link.
    pub(crate) fn read(block: &'a [u8]) -> Result<Self> {
        let mut links = Vec::new();
        let data = read_node(block, |link| {
            if links.len() == MAX_BLOCK_LINKS {
                return Err(too_many_links());
            }
            links.push(link);
            Ok(())
        })?;
        Ok(Self { links, data })
    }

    /// Returns the number of links.
    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Returns the links, in the order of the block.
    pub(crate) fn links(&self) -> Result<Vec<PbLink>> {
        let read = |link: &&'a [u8]| {
            let LinkFields { cid, name, tsize } = read_link(link)?;
            Ok(PbLink { cid: cid_from_bytes(cid)?, name: name.into(), tsize })
        };
        self.links.iter().map(read).collect()
    }

    /// Returns the link targets, in the order of the block.
    pub(crate) fn cids(&self) -> impl Iterator<Item = Result<Cid>> {
        self.links.iter().map(|link| cid_from_bytes(read_link(link)?.cid))
    }

    /// Returns the link targets in their binary form, which is valid, in the order of the block.
    pub(crate) fn encoded_cids(&self) -> impl Iterator<Item = Result<&'a [u8]>> {
        self.links.iter().copied().map(|link| {
            let encoded = read_link(link)?.cid;
            cid_from_bytes(encoded).map(|_| encoded)
        })
    }
}

/// The fields of a [`PbLink`] as slices of its block.
pub(crate) struct LinkFields<'a> {
    pub(crate) cid: &'a [u8],
    pub(crate) name: &'a [u8],
    tsize: u64,
}

/// Reads a node. Passes the body of each link to `on_link` and returns the data.
pub(crate) fn read_node<'a>(
    block: &'a [u8],
    mut on_link: impl FnMut(&'a [u8]) -> Result<()>,
) -> Result<Option<&'a [u8]>> {
    const LINK_KEY: u8 = (NODE_LINKS as u8) << 3 | WireType::LengthDelimited as u8;
    let mut rest = block;
    // In nearly all nodes, short links come first.
    while let [LINK_KEY, len @ ..0x80, after @ ..] = rest
        && let Some((link, after)) = after.split_at_checked(usize::from(*len))
    {
        on_link(link)?;
        rest = after;
    }
    let mut has_links = rest.len() < block.len();
    let (mut data, mut links_ended) = (None, false);
    while rest.has_remaining() {
        let (field, wire_type) = read_key(&mut rest)?;
        if wire_type != WireType::LengthDelimited {
            return Err(Error::invalid(format!("dag-pb field {field} has wire type {wire_type:?}")));
        }
        let bytes = read_bytes(&mut rest)?;
        match field {
            NODE_DATA if data.is_some() => return Err(Error::invalid("dag-pb node has two Data fields")),
            NODE_DATA => {
                data = Some(bytes);
                links_ended = has_links;
            }
            NODE_LINKS if links_ended => return Err(Error::invalid("dag-pb node has its links in two places")),
            NODE_LINKS => {
                has_links = true;
                on_link(bytes)?;
            }
            other => return Err(Error::invalid(format!("dag-pb node has an unknown field {other}"))),
        }
    }
    Ok(data)
}

pub(crate) fn read_link(mut rest: &[u8]) -> Result<LinkFields<'_>> {
    let mut cid = None;
    let mut name = None;
    let mut tsize = None;
    let mut last_field = 0;
    while rest.has_remaining() {
        let (field, wire_type) = read_key(&mut rest)?;
        if field <= last_field {
            return Err(Error::invalid(format!("dag-pb link has field {field} after field {last_field}")));
        }
        last_field = field;
        match (field, wire_type) {
            (LINK_HASH, WireType::LengthDelimited) => cid = Some(read_bytes(&mut rest)?),
            // The field is declared as a string, but go-codec-dagpb accepts any bytes, so blocks with such names
            // exist.
            (LINK_NAME, WireType::LengthDelimited) => name = Some(read_bytes(&mut rest)?),
            (LINK_TSIZE, WireType::Varint) => tsize = Some(read_varint(&mut rest)?),
            _ => return Err(Error::invalid(format!("dag-pb link has an unknown field {field} ({wire_type:?})"))),
        }
    }
    let cid = cid.ok_or_else(|| Error::invalid("dag-pb link has no Hash"))?;
    Ok(LinkFields { cid, name: name.unwrap_or_default(), tsize: tsize.unwrap_or_default() })
}

fn read_key(rest: &mut &[u8]) -> Result<(u32, WireType)> {
    if let [key @ 0x08..0x80, after @ ..] = *rest
        && let Ok(wire_type) = WireType::try_from(u64::from(key & 7))
    {
        *rest = after;
        return Ok((u32::from(key >> 3), wire_type));
    }
    decode_key(rest).map_err(malformed)
}

fn read_varint(rest: &mut &[u8]) -> Result<u64> {
    if let [value @ ..0x80, after @ ..] = *rest {
        *rest = after;
        return Ok(u64::from(*value));
    }
    decode_varint(rest).map_err(malformed)
}

fn read_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let len = read_varint(rest)?;
    let split = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
    let (bytes, after) =
        split.ok_or_else(|| Error::invalid(format!("dag-pb field of {len} bytes extends past the end")))?;
    *rest = after;
    Ok(bytes)
}

fn malformed(cause: prost::DecodeError) -> Error {
    Error::invalid(format!("malformed protobuf: {cause}"))
}

/// Encodes a node in the canonical form, with the links in the given order. Name and Tsize are always present, as in
/// go-merkledag.
#[must_use]
pub fn encode(links: &[PbLink], data: &[u8]) -> Bytes {
    let size = links.iter().map(encoded_link_len).sum::<usize>() + encoded_data_len(data.len());
    let mut out = BytesMut::with_capacity(size);
    for link in links {
        encode_link(link, &mut out);
    }
    put_data_header(data.len(), &mut out);
    out.put_slice(data);
    out.freeze()
}

/// Encodes a node without data, as [`encode`] does.
#[must_use]
pub fn encode_without_data(links: &[PbLink]) -> Bytes {
    let mut out = BytesMut::with_capacity(links.iter().map(encoded_link_len).sum());
    links.iter().for_each(|link| encode_link(link, &mut out));
    out.freeze()
}

fn encode_link(link: &PbLink, out: &mut BytesMut) {
    encode_key(NODE_LINKS, WireType::LengthDelimited, out);
    encode_varint(link_body_len(link) as u64, out);
    encode_key(LINK_HASH, WireType::LengthDelimited, out);
    encode_varint(link.cid.encoded_len() as u64, out);
    // Writing to a growable buffer cannot fail.
    let _written = link.cid.write_bytes(out.writer());
    encode_key(LINK_NAME, WireType::LengthDelimited, out);
    encode_varint(link.name.len() as u64, out);
    out.put_slice(link.name.as_bytes());
    encode_key(LINK_TSIZE, WireType::Varint, out);
    encode_varint(link.tsize, out);
}

fn link_body_len(link: &PbLink) -> usize {
    KEY_LEN
        + len_delimited(link.cid.encoded_len())
        + KEY_LEN
        + len_delimited(link.name.len())
        + KEY_LEN
        + encoded_len_varint(link.tsize)
}

/// Returns the number of bytes that `link` takes in an encoded node.
pub(crate) fn encoded_link_len(link: &PbLink) -> usize {
    KEY_LEN + len_delimited(link_body_len(link))
}

/// Returns the number of bytes that data of `len` bytes takes in an encoded node.
pub(crate) fn encoded_data_len(len: usize) -> usize {
    KEY_LEN + len_delimited(len)
}

/// Writes the header that precedes data of `len` bytes.
pub(crate) fn put_data_header(len: usize, out: &mut BytesMut) {
    encode_key(NODE_DATA, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
}

fn len_delimited(len: usize) -> usize {
    encoded_len_varint(len as u64) + len
}

/// Returns the error for a block with too many links.
pub(crate) fn too_many_links() -> Error {
    Error::too_large(format!(
        "it has more than {MAX_BLOCK_LINKS} links, the maximum for one block: split it into several linked blocks"
    ))
}

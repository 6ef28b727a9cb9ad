//! CAR: blocks in a row, as a stream (<https://ipld.io/specs/transport/car/carv1/>).
//!
//! [`header`] and [`frame`] write version 1; a frame's payload is the block's own memory. [`CarReader`] reads versions 1
//! and 2 and verifies every block.

mod input;
mod reader;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use ipfrs_core::{Block, Cid, Result};

pub use reader::{CarLimits, CarReader};

/// The header of a CAR with these roots: the length as a varint, then `{"roots": [...], "version": 1}` in DAG-CBOR.
#[must_use]
pub fn header(roots: &[Cid]) -> Bytes {
    let mut body = vec![CBOR_MAP | 2];
    put_cbor_text(&mut body, "roots");
    put_cbor_head(&mut body, CBOR_ARRAY, roots.len() as u64);
    for root in roots {
        // A link is tag 42 on a byte string, whose zero byte stands for "binary CID" (DAG-CBOR specification, "Links").
        body.extend([0xd8, 42]);
        let cid = root.to_bytes();
        put_cbor_head(&mut body, CBOR_BYTES, cid.len() as u64 + 1);
        body.push(0);
        body.extend(cid);
    }
    put_cbor_text(&mut body, "version");
    body.push(1);
    let mut framed = varint(body.len() as u64);
    framed.extend(body);
    framed.into()
}

/// The section of one block: the section's length and the CID, and `data` itself, which is not copied.
#[must_use]
pub fn frame(cid: &Cid, data: Bytes) -> [Bytes; 2] {
    let cid = cid.to_bytes();
    let mut prefix = varint((cid.len() + data.len()) as u64);
    prefix.extend(cid);
    [prefix.into(), data]
}

/// A whole CAR as a stream: the header, then a section for each of `blocks`. Ends after the first error.
pub fn encode<S>(roots: &[Cid], blocks: S) -> impl Stream<Item = Result<Bytes>> + use<S>
where
    S: Stream<Item = Result<Block>>,
{
    let sections = blocks.flat_map(|block| {
        let parts = match block {
            Ok(block) => {
                let (cid, data) = block.into_parts();
                frame(&cid, data).into_iter().filter(|part| !part.is_empty()).map(Ok).collect()
            }
            Err(error) => vec![Err(error)],
        };
        stream::iter(parts)
    });
    stream::once(std::future::ready(Ok(header(roots)))).chain(sections)
}

const CBOR_BYTES: u8 = 2 << 5;
const CBOR_TEXT: u8 = 3 << 5;
const CBOR_ARRAY: u8 = 4 << 5;
const CBOR_MAP: u8 = 5 << 5;

fn put_cbor_text(out: &mut Vec<u8>, text: &str) {
    put_cbor_head(out, CBOR_TEXT, text.len() as u64);
    out.extend(text.as_bytes());
}

/// The head of a CBOR item (RFC 8949, section 3) in its shortest form, which DAG-CBOR requires.
fn put_cbor_head(out: &mut Vec<u8>, major: u8, value: u64) {
    let bytes = value.to_be_bytes();
    let (code, skipped) = match value {
        0..24 => return out.push(major | bytes[7]),
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(major | code);
    out.extend(&bytes[skipped..]);
}

fn varint(value: u64) -> Vec<u8> {
    unsigned_varint::encode::u64(value, &mut unsigned_varint::encode::u64_buffer()).to_vec()
}

//! Encoding and decoding of CAR, a sequence of blocks, as a stream (<https://ipld.io/specs/transport/car/carv1/>).
//!
//! [`header`] and [`frame`] write version 1; the payload of a frame shares the memory of its block.
//! [`encode_batches`] and [`encode_walk`] send sections in the form in which the store keeps them. [`CarReader`] reads
//! versions 1 and 2 and verifies every block.

mod input;
mod reader;
mod sections;

use bytes::Bytes;
use ipfrs_core::Cid;

pub use reader::{CarLimits, CarReader};
pub use sections::{encode_batches, encode_walk};

/// Returns the header of a CAR with these roots: its length as a varint, then `{"roots": [...], "version": 1}` in
/// DAG-CBOR.
#[must_use]
pub fn header(roots: &[Cid]) -> Bytes {
    let mut body = vec![CBOR_MAP | 2];
    put_cbor_text(&mut body, "roots");
    put_cbor_head(&mut body, CBOR_ARRAY, roots.len() as u64);
    for root in roots {
        // A link is tag 42 on a byte string that starts with a zero byte (DAG-CBOR specification, "Links").
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

/// Returns the section of one block in two pieces: the section length with the CID, and `data`, which is not copied.
#[must_use]
pub fn frame(cid: &Cid, data: Bytes) -> [Bytes; 2] {
    let mut prefix = Vec::with_capacity(10 + cid.encoded_len());
    put_prefix(&mut prefix, cid, data.len());
    [prefix.into(), data]
}

/// Appends the prefix of a section, that is, all bytes before the data of its block.
fn put_prefix(out: &mut Vec<u8>, cid: &Cid, data_bytes: usize) {
    let mut buffer = unsigned_varint::encode::u64_buffer();
    out.extend_from_slice(unsigned_varint::encode::u64((cid.encoded_len() + data_bytes) as u64, &mut buffer));
    // Writing to a growable vector cannot fail.
    let _written = cid.write_bytes(&mut *out);
}

const CBOR_BYTES: u8 = 2 << 5;
const CBOR_TEXT: u8 = 3 << 5;
const CBOR_ARRAY: u8 = 4 << 5;
const CBOR_MAP: u8 = 5 << 5;

fn put_cbor_text(out: &mut Vec<u8>, text: &str) {
    put_cbor_head(out, CBOR_TEXT, text.len() as u64);
    out.extend(text.as_bytes());
}

/// Appends the head of a CBOR item (RFC 8949, section 3) in its shortest form, as DAG-CBOR requires.
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

//! CARv1 encoded and decoded by hand (<https://ipld.io/specs/transport/car/carv1/>).

use ipfrs_core::{Block, Cid, cid_from_bytes, parse_cid};

/// Header of a CAR without roots: `{"roots": [], "version": 1}` in DAG-CBOR after its length.
const HEADER: &[u8] = b"\x11\xa2\x65roots\x80\x67version\x01";

/// Encodes a CAR of blocks, which need not match their content IDs.
pub(crate) fn write(blocks: &[(&str, &[u8])]) -> Vec<u8> {
    let mut car = HEADER.to_vec();
    for (cid, data) in blocks {
        let cid = parse_cid(cid).unwrap().to_bytes();
        put_varint(&mut car, cid.len() + data.len());
        car.extend(cid);
        car.extend(*data);
    }
    car
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn take_varint(rest: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = rest[0];
        *rest = &rest[1..];
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

/// Returns the blocks of a CAR without roots, after verifying each against its content ID.
pub(crate) fn read(car: &[u8]) -> Vec<Block> {
    let mut rest = car.strip_prefix(HEADER).expect("the header of a CAR without roots");
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let length = take_varint(&mut rest);
        let (section, after) = rest.split_at(length);
        let (cid, data) = section.split_at(cid_length(section));
        blocks.push(Block::new(cid_from_bytes(cid).unwrap(), data.to_vec().into()).unwrap());
        rest = after;
    }
    blocks
}

/// Returns the length of the content ID. A CIDv0 is a bare sha2-256 multihash; a CIDv1 starts with version, codec,
/// hash function and digest length.
fn cid_length(section: &[u8]) -> usize {
    if section.starts_with(&[0x12, 0x20]) {
        return 34;
    }
    let mut rest = section;
    let [_version, _codec, _hash, digest] = std::array::from_fn(|_| take_varint(&mut rest));
    section.len() - rest.len() + digest
}

/// Returns the content ID of `data` as a raw block.
pub(crate) fn raw_cid(data: &[u8]) -> String {
    Cid::new_v1(ipfrs_core::codec::RAW, ipfrs_core::hash::sha2_256(data)).to_string()
}

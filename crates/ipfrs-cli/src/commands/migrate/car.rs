//! CAR files of version 1, written section by section.

use anyhow::{Result, bail};
use ipfrs_core::Cid;

/// Returns the header with these roots, in dag-cbor.
pub(super) fn header(roots: &[Cid]) -> Vec<u8> {
    let mut map = vec![0xa2, 0x65];
    map.extend_from_slice(b"roots");
    head(&mut map, 4, roots.len() as u64);
    for root in roots {
        // Tag 42, and a zero byte before the content ID.
        let bytes = root.to_bytes();
        map.extend_from_slice(&[0xd8, 42]);
        head(&mut map, 2, bytes.len() as u64 + 1);
        map.push(0);
        map.extend_from_slice(&bytes);
    }
    map.push(0x67);
    map.extend_from_slice(b"version");
    map.push(1);
    let mut header = Vec::new();
    varint(&mut header, map.len() as u64);
    header.extend_from_slice(&map);
    header
}

/// Appends a section with a block.
pub(super) fn section(out: &mut Vec<u8>, cid: &Cid, data: &[u8]) {
    let cid = cid.to_bytes();
    varint(out, (cid.len() + data.len()) as u64);
    out.extend_from_slice(&cid);
    out.extend_from_slice(data);
}

/// Removes the header at the beginning of `bytes`. Returns false if it is not complete yet.
pub(super) fn skip_header(bytes: &mut Vec<u8>) -> Result<bool> {
    let (mut length, mut at) = (0_u64, 0);
    loop {
        let Some(byte) = bytes.get(at) else { return Ok(false) };
        if at > 4 {
            bail!("the header of the CAR is too long");
        }
        length |= u64::from(byte & 0x7f) << (7 * at);
        at += 1;
        if *byte < 0x80 {
            break;
        }
    }
    let end = at + usize::try_from(length)?;
    if bytes.len() < end {
        return Ok(false);
    }
    bytes.drain(..end);
    Ok(true)
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the head of an item of CBOR.
fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

//! Parts of CAR files that are written one after the other.

use anyhow::{Result, bail};
use bytes::Bytes;
use ipfrs_core::Cid;
use ipfrs_stream::car::frame;

/// Appends a section with a block.
pub(super) fn put_section(out: &mut Vec<u8>, cid: &Cid, data: Bytes) {
    frame(cid, data).iter().for_each(|piece| out.extend_from_slice(piece));
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

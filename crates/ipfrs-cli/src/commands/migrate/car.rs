//! Parts of CAR files that are written one after the other.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use ipfrs_core::Cid;
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_stream::car::frame;

/// Maximum length of a section: a block, with its CID.
const MAX_SECTION_BYTES: usize = MAX_BIG_BLOCK_BYTES + 1_024;

/// Appends a section with a block.
pub(super) fn put_section(out: &mut Vec<u8>, cid: &Cid, data: Bytes) {
    frame(cid, data).iter().for_each(|piece| out.extend_from_slice(piece));
}

/// Sections of one CAR, of which each is written once.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Hashes of the CIDs, of which two are as good as certainly different.
    seen: HashSet<u128>,
    keys: [RandomState; 2],
}

impl Written {
    /// Whether the block with this binary CID is the first one.
    pub(super) fn is_first(&mut self, cid: &[u8]) -> bool {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one(cid)));
        self.seen.insert(high << 64 | low)
    }
}

/// A CAR that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    bytes: BytesMut,
    /// Whether the header has arrived.
    has_header: bool,
}

impl Arriving {
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Returns the next complete section with its binary CID; `None` until more has arrived.
    ///
    /// # Errors
    /// The bytes are no CAR.
    pub(super) fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        loop {
            let (length, at) = match unsigned_varint::decode::usize(&self.bytes) {
                Ok((length, rest)) => (length, self.bytes.len() - rest.len()),
                Err(unsigned_varint::decode::Error::Insufficient) => return Ok(None),
                Err(e) => return Err(e).context("the CAR has a malformed length"),
            };
            if length > MAX_SECTION_BYTES {
                bail!("the CAR has a section of {length} bytes");
            }
            if self.bytes.len() < at + length {
                return Ok(None);
            }
            if !std::mem::replace(&mut self.has_header, true) {
                self.bytes.advance(at + length);
                continue;
            }
            let section = self.bytes.split_to(at + length).freeze();
            let content = section.slice(at..);
            let mut rest = content.as_ref();
            Cid::read_bytes(&mut rest).context("a section of the CAR has no CID")?;
            let cid = content.slice(..content.len() - rest.len());
            return Ok(Some((section, cid)));
        }
    }

    /// Whether everything that has arrived was returned.
    pub(super) fn is_complete(&self) -> bool {
        self.has_header && self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::{codec, hash};
    use ipfrs_stream::car::header;

    use super::*;

    #[test]
    fn sections_of_a_car_that_arrives_byte_by_byte_are_found_once() {
        let cids = [1_u8, 2, 1].map(|number| Cid::new_v1(codec::RAW, hash::sha2_256(&[number])));
        let mut car = header(&cids[..1]).to_vec();
        for (cid, data) in cids.iter().zip([[1_u8], [2], [1]]) {
            put_section(&mut car, cid, Bytes::copy_from_slice(&data));
        }
        let (mut arriving, mut written, mut found) = (Arriving::default(), Written::default(), Vec::new());
        for byte in &car {
            arriving.add(&[*byte]);
            while let Some((section, cid)) = arriving.next().unwrap() {
                found.push((section.last().copied(), written.is_first(&cid)));
            }
        }
        assert_eq!(found, [(Some(1), true), (Some(2), true), (Some(1), false)]);
        assert!(arriving.is_complete());
        arriving.add(&[0xff; 11]);
        assert!(arriving.next().is_err());
    }
}

//! Format of a pack: a CARv1 stream (<https://ipld.io/specs/transport/car/carv1/>) whose sections are blocks and
//! tombstones.
//!
//! A section is `varint(length of CID and data) | CID | data`. The part before the data is called the prefix.

use std::ops::Deref;

use bytes::Bytes;
use ipfrs_core::hash::sha2_256;
use ipfrs_core::limits::{MAX_BIG_BLOCK_BYTES, MAX_BLOCK_BYTES};
use ipfrs_core::{Cid, Error, Multihash, Result, new_cid};

use crate::RESERVED_CODEC;

/// First bytes of every pack, and all of an empty one: `varint(17)`, then DAG-CBOR of `{"roots": [], "version": 1}`.
pub const CAR_HEADER: &[u8; 18] = b"\x11\xa2\x65roots\x80\x67version\x01";

/// Maximum length of a binary CID: four varints of at most 10 bytes and a digest of 128 bytes.
pub(super) const MAX_CID_BYTES: usize = 4 * 10 + 128;

/// Maximum length of a prefix: the section length and the CID.
pub(super) const MAX_PREFIX_BYTES: usize = 10 + MAX_CID_BYTES;

/// Maximum length of a section.
pub(super) const MAX_SECTION_BYTES: usize = MAX_PREFIX_BYTES + MAX_BIG_BLOCK_BYTES;

/// Key of a block: its binary multihash.
pub(crate) type Key = Box<[u8]>;

/// A map by key. The keys are digests and the hasher has a random seed, so a hasher that does not resist chosen
/// inputs is sufficient.
pub(super) type KeyMap<T> = foldhash::HashMap<Key, T>;

/// Returns the key of a block.
pub(crate) fn key_of(hash: &Multihash) -> Key {
    hash.to_bytes().into_boxed_slice()
}

/// Maximum length of a key: two varints of at most 10 bytes and a digest of 128 bytes.
const MAX_KEY_BYTES: usize = 2 * 10 + 128;

/// Key of a block on the stack, for lookups without an allocation.
pub(super) struct StackKey {
    bytes: [u8; MAX_KEY_BYTES],
    len: usize,
}

impl StackKey {
    pub(super) fn of(hash: &Multihash) -> Self {
        let mut bytes = [0; MAX_KEY_BYTES];
        // The longest multihash fits.
        let len = hash.write(bytes.as_mut_slice()).unwrap_or(0);
        Self { bytes, len }
    }
}

impl Deref for StackKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Appends the prefix of a section to `out` and returns its length.
pub(super) fn write_prefix(cid: &Cid, data_len: usize, out: &mut Vec<u8>) -> usize {
    let start = out.len();
    let cid_bytes = cid.to_bytes();
    let mut buffer = unsigned_varint::encode::u64_buffer();
    out.extend_from_slice(unsigned_varint::encode::u64((cid_bytes.len() + data_len) as u64, &mut buffer));
    out.extend_from_slice(&cid_bytes);
    out.len() - start
}

/// Returns the sections that record the deletion of `keys`. One is enough for most calls; there are more if the
/// payload exceeds the maximum block size.
pub(super) fn tombstones(keys: &[Key]) -> Result<Vec<(Cid, Bytes)>> {
    let mut sections = Vec::new();
    let mut payload = Vec::new();
    let mut buffer = unsigned_varint::encode::u64_buffer();
    for key in keys {
        let length = unsigned_varint::encode::u64(key.len() as u64, &mut buffer);
        if payload.len() + length.len() + key.len() > MAX_BLOCK_BYTES {
            sections.push(tombstone(std::mem::take(&mut payload))?);
        }
        payload.extend_from_slice(length);
        payload.extend_from_slice(key);
    }
    if !payload.is_empty() {
        sections.push(tombstone(payload)?);
    }
    Ok(sections)
}

/// Returns the section of a tombstone with this data.
pub(super) fn tombstone(payload: Vec<u8>) -> Result<(Cid, Bytes)> {
    Ok((new_cid(1, RESERVED_CODEC, sha2_256(&payload))?, payload.into()))
}

/// Whether the data of a tombstone is padding: keys without bytes, which delete nothing.
pub(super) fn is_padding(tombstone: &[u8]) -> bool {
    tombstone.iter().all(|byte| *byte == 0)
}

/// Returns the keys in the payload of a tombstone: none if it is padding.
///
/// # Errors
/// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the payload is not a list of length-prefixed keys.
pub(super) fn tombstone_keys(mut payload: &[u8]) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    if is_padding(payload) {
        return Ok(keys);
    }
    while !payload.is_empty() {
        let (length, rest) = unsigned_varint::decode::usize(payload)
            .map_err(|e| Error::corrupt(format!("a tombstone has a malformed length: {e}")))?;
        let (key, rest) =
            rest.split_at_checked(length).ok_or_else(|| Error::corrupt("a tombstone ends in the middle of a key"))?;
        keys.push(key.into());
        payload = rest;
    }
    Ok(keys)
}

/// Location of a block's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    /// Number of the pack.
    pub(super) pack: u32,
    /// Offset of the data in the pack, in bytes.
    pub(super) offset: u32,
    /// Length of the data, in bytes.
    pub(super) len: u32,
    /// Length of the prefix before the data, in bytes.
    pub(super) prefix: u16,
    /// Codec and version of the CID in the prefix, as encoded by [`pack_codec`].
    pub(super) codec: u16,
}

/// Value of [`Location::codec`] for a CIDv0.
const CODEC_V0: u16 = 0xfffe;
/// Value of [`Location::codec`] for a codec that does not fit. The prefix contains it.
const CODEC_IN_PREFIX: u16 = 0xffff;

/// Encodes the codec and version of a CID in 16 bits, so that blocks can be listed from the index alone.
pub(super) fn pack_codec(cid: &Cid) -> u16 {
    if cid.version() as u64 == 0 {
        return CODEC_V0;
    }
    u16::try_from(cid.codec()).ok().filter(|codec| *codec < CODEC_V0).unwrap_or(CODEC_IN_PREFIX)
}

impl Location {
    /// Returns the length of the whole section, in bytes.
    pub(super) fn section_bytes(self) -> u64 {
        u64::from(self.prefix) + u64::from(self.len)
    }

    /// Returns the offset of its section in the pack, in bytes.
    pub(super) fn start(self) -> usize {
        self.offset.saturating_sub(u32::from(self.prefix)) as usize
    }

    /// Returns the offset of the end of its section, in bytes.
    pub(super) fn end(self) -> usize {
        self.offset as usize + self.len as usize
    }

    /// Returns the encoding used by the index: five little-endian integers, in the order of the fields.
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&self.pack.to_le_bytes());
        out[4..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[12..14].copy_from_slice(&self.prefix.to_le_bytes());
        out[14..].copy_from_slice(&self.codec.to_le_bytes());
        out
    }

    /// Decodes the output of [`Self::to_bytes`].
    pub(super) fn from_bytes(bytes: &[u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            pack: u32::from_le_bytes([a, b, c, d]),
            offset: u32::from_le_bytes([e, f, g, h]),
            len: u32::from_le_bytes([i, j, k, l]),
            prefix: u16::from_le_bytes([m, n]),
            codec: u16::from_le_bytes([o, p]),
        }
    }

    /// Returns the CID of the block with this location and `key`, or `None` if it can only be read from the prefix in
    /// the pack.
    pub(super) fn cid(self, key: &[u8]) -> Result<Option<Cid>> {
        let version = match self.codec {
            CODEC_IN_PREFIX => return Ok(None),
            CODEC_V0 => 0,
            _ => 1,
        };
        let hash = Multihash::from_bytes(key)
            .map_err(|e| Error::corrupt("the index contains a malformed multihash").with_source(e))?;
        let codec = if version == 0 { ipfrs_core::codec::DAG_PB } else { u64::from(self.codec) };
        new_cid(version, codec, hash).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_dag_cbor_of_a_car_without_roots() {
        assert_eq!(usize::from(CAR_HEADER[0]), CAR_HEADER.len() - 1);
        assert_eq!(&CAR_HEADER[1..], b"\xa2\x65roots\x80\x67version\x01");
    }

    #[test]
    fn a_location_keeps_its_sixteen_bytes_and_the_cid() {
        let hash = sha2_256(b"x");
        for (version, codec) in [(0, 0x70), (1, 0x70), (1, 0x55), (1, 0), (1, 0x0200)] {
            let cid = new_cid(version, codec, hash).unwrap();
            let location = Location { pack: 7, offset: u32::MAX, len: 9, prefix: 300, codec: pack_codec(&cid) };
            assert_eq!(Location::from_bytes(&location.to_bytes()), location);
            assert_eq!(location.cid(&key_of(&hash)).unwrap(), Some(cid));
        }
        let wide = new_cid(1, 0xffff, hash).unwrap();
        let location = Location { pack: 0, offset: 0, len: 0, prefix: 0, codec: pack_codec(&wide) };
        assert_eq!(location.cid(&key_of(&hash)).unwrap(), None);
    }

    #[test]
    fn tombstones_split_at_block_limit_and_keep_key_order() {
        let keys: Vec<Key> = (0..70_000_u32).map(|n| key_of(&sha2_256(&n.to_le_bytes()))).collect();
        let sections = tombstones(&keys).unwrap();
        assert!(sections.len() > 1);
        assert!(sections.iter().all(|(_, payload)| payload.len() <= MAX_BLOCK_BYTES));
        let read: Vec<Key> = sections.iter().flat_map(|(_, payload)| tombstone_keys(payload).unwrap()).collect();
        assert_eq!(read, keys);
        assert!(tombstone_keys(&sections[0].1[..100]).is_err());
    }
}

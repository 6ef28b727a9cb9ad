//! Padding, which lets the content of large blocks begin at a page of the file.
//!
//! The kernel sends a file by pages, 16 at a time. A chunk of 256 KiB that begins within a page takes one page and one
//! such round more (docs/PERFORMANCE.md).

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Result, new_cid};

use super::record::{tombstone, write_prefix};
use crate::RESERVED_CODEC;

/// Alignment of large blocks, in bytes. A page of the kernel has at least as many.
const ALIGNMENT: u64 = 4096;

/// Length from which a [`PackStore`](crate::PackStore) aligns the content of blocks to pages of its files, in bytes.
/// The padding of a block takes a page at most, 1.6 % of this length.
pub const MIN_ALIGNED_BYTES: usize = 256 * 1024;

/// Maximum length of the padding before a block, framing included, in bytes.
pub(super) const MAX_PADDING_BYTES: u64 = ALIGNMENT - 1;

/// Returns the maximum length of sections of these bytes with their padding.
pub(super) fn padded(bytes: u64) -> u64 {
    bytes + bytes / MIN_ALIGNED_BYTES as u64 * MAX_PADDING_BYTES
}

/// Padding of consecutive sections. Leaves of equal length need equal padding, which is hashed once.
#[derive(Debug, Default)]
pub(super) struct Padding {
    last: Option<LastPadding>,
}

/// The section that was inserted last.
#[derive(Debug)]
struct LastPadding {
    /// Length of the section, in bytes.
    bytes: usize,
    prefix: Vec<u8>,
    zeros: Bytes,
}

impl Padding {
    /// Returns the section to write at `offset` before a section with this prefix length and `data`, so that the
    /// content of `data` is aligned. Appends the prefix of the padding to `prefixes`, and returns its length and the
    /// data of the padding.
    ///
    /// Returns `None` if the block is small or aligned already, and if no section is as short as the gap.
    pub(super) fn before(
        &mut self,
        offset: u64,
        prefix: usize,
        data: &[u8],
        prefixes: &mut Vec<u8>,
    ) -> Result<Option<(usize, Bytes)>> {
        if data.len() < MIN_ALIGNED_BYTES {
            return Ok(None);
        }
        let content = offset + prefix as u64 + content_offset(data) as u64;
        let gap = (content.next_multiple_of(ALIGNMENT) - content) as usize;
        if gap == 0 {
            return Ok(None);
        }
        if let Some(last) = self.last.as_ref().filter(|last| last.bytes == gap) {
            prefixes.extend_from_slice(&last.prefix);
            return Ok(Some((last.prefix.len(), last.zeros.clone())));
        }
        let start = prefixes.len();
        let Some((prefix, zeros)) = of_length(gap, prefixes)? else { return Ok(None) };
        self.last = Some(LastPadding { bytes: gap, prefix: prefixes[start..].to_vec(), zeros: zeros.clone() });
        Ok(Some((prefix, zeros)))
    }
}

/// Returns a section of padding with so many bytes, or `None` if no section has this length. The SHA-1 of a short one
/// leaves space for it: the empty directory as a CIDv0 block has 39 bytes.
pub(super) fn section_of(bytes: usize) -> Result<Option<Vec<u8>>> {
    let mut section = Vec::new();
    if let Some((_, zeros)) = of_length(bytes, &mut section)? {
        return Ok(Some([section.as_slice(), &zeros].concat()));
    }
    let Some(zeros) = bytes.checked_sub(SHA1_PREFIX_BYTES) else { return Ok(None) };
    let zeros = vec![0; zeros];
    let cid = new_cid(1, RESERVED_CODEC, HashFunction::Sha1.digest(&zeros)?)?;
    write_prefix(&cid, zeros.len(), &mut section);
    section.extend(zeros);
    Ok((section.len() == bytes).then_some(section))
}

/// Appends the prefix of a padding with so many bytes to `prefixes`, and returns its length and the data.
fn of_length(bytes: usize, prefixes: &mut Vec<u8>) -> Result<Option<(usize, Bytes)>> {
    // The varint of the length is longer in longer sections.
    let start = prefixes.len();
    for varint in 1..=MAX_LENGTH_BYTES {
        let Some(zeros) = bytes.checked_sub(varint + TOMBSTONE_CID_BYTES) else { break };
        let (cid, zeros) = tombstone(vec![0; zeros])?;
        let written = write_prefix(&cid, zeros.len(), prefixes);
        if written + zeros.len() == bytes {
            return Ok(Some((written, zeros)));
        }
        prefixes.truncate(start);
    }
    Ok(None)
}

/// Maximum length of the varint with the length of a section, in bytes.
const MAX_LENGTH_BYTES: usize = 4;

/// Length of the CID of a tombstone, in bytes: version, codec, function and length of the hash, digest.
const TOMBSTONE_CID_BYTES: usize = 1 + 4 + 1 + 1 + 32;

/// Length of the prefix of a short padding with a SHA-1 hash, in bytes.
const SHA1_PREFIX_BYTES: usize = 1 + 1 + 4 + 1 + 1 + 20;

/// Returns the offset of the file's bytes in a block: after the framing of a `UnixFS` leaf in dag-pb, otherwise 0.
fn content_offset(data: &[u8]) -> usize {
    framing(data).unwrap_or(0)
}

/// Returns the length of `PBNode.Data`, `UnixFS.Type` and `UnixFS.Data` before the bytes, if `data` begins like a leaf
/// without links: <https://specs.ipfs.tech/unixfs/#dag-pb-node>.
fn framing(data: &[u8]) -> Option<usize> {
    let rest = data.strip_prefix(&[0x0a])?;
    let (node, rest) = unsigned_varint::decode::usize(rest).ok()?;
    let rest = (node == rest.len()).then_some(rest)?;
    // Raw or file.
    let rest = rest.strip_prefix(&[0x08, 0]).or_else(|| rest.strip_prefix(&[0x08, 2]))?.strip_prefix(&[0x12])?;
    let (content, rest) = unsigned_varint::decode::usize(rest).ok()?;
    (content <= rest.len()).then_some(data.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pack::record::{is_padding, tombstone_keys};

    fn leaf(content: usize) -> Vec<u8> {
        let varint = |number: usize| {
            let mut buffer = unsigned_varint::encode::usize_buffer();
            unsigned_varint::encode::usize(number, &mut buffer).to_vec()
        };
        let size = varint(content);
        let unixfs = [&[8, 2, 0x12][..], &size, &vec![7; content], &[0x18], &size].concat();
        [&[0x0a][..], &varint(unixfs.len()), &unixfs].concat()
    }

    proptest! {
        #[test]
        fn content_begins_at_a_page_unless_the_gap_is_too_short(
            offset in 0_u64..10_000, prefix in 36_usize..60, is_leaf: bool,
        ) {
            let data = if is_leaf { leaf(MIN_ALIGNED_BYTES) } else { vec![7; MIN_ALIGNED_BYTES] };
            let framing = if is_leaf { 10 } else { 0 };
            let mut prefixes = b"before".to_vec();
            let content = offset + (prefix + framing) as u64;
            let gap = content.next_multiple_of(ALIGNMENT) - content;
            match Padding::default().before(offset, prefix, &data, &mut prefixes).unwrap() {
                Some((len, zeros)) => {
                    prop_assert_eq!(len + zeros.len(), gap as usize);
                    prop_assert!(gap <= MAX_PADDING_BYTES && is_padding(&zeros));
                    prop_assert_eq!(prefixes.len(), 6 + len);
                    prop_assert!(tombstone_keys(&zeros).unwrap().is_empty());
                }
                None => {
                    prop_assert!(gap <= TOMBSTONE_CID_BYTES as u64 || gap == 129, "{gap}");
                    prop_assert_eq!(prefixes.len(), 6);
                }
            }
        }
    }

    #[test]
    fn section_has_each_length_from_that_of_shortest_prefix() {
        for bytes in (0..40).chain([128, 129, 130]) {
            let section = section_of(bytes).unwrap();
            let expected = (bytes >= 28 && bytes != 129).then_some(bytes);
            assert_eq!(section.as_ref().map(Vec::len), expected);
            if let Some(section) = section {
                let (length, rest) = unsigned_varint::decode::usize(&section).unwrap();
                assert_eq!(length, rest.len());
            }
        }
    }

    #[test]
    fn only_whole_leaves_have_framing() {
        let leaf = leaf(300);
        assert_eq!(content_offset(&leaf), 8);
        for end in 0..leaf.len() {
            assert_eq!(content_offset(&leaf[..end]), 0);
        }
        assert_eq!(Padding::default().before(5, 40, &leaf, &mut Vec::new()).unwrap(), None);
    }

    #[test]
    fn equal_gaps_share_one_padding_and_others_get_their_own() {
        let (data, mut padding) = (vec![7; MIN_ALIGNED_BYTES], Padding::default());
        let mut shared = Vec::new();
        for offset in [0, 4096, 100, 0, 8192] {
            let (mut prefixes, mut alone) = (b"before".to_vec(), b"before".to_vec());
            let (prefix, zeros) = padding.before(offset, 40, &data, &mut prefixes).unwrap().unwrap();
            let expected = Padding::default().before(offset, 40, &data, &mut alone).unwrap().unwrap();
            assert_eq!(((prefix, zeros.clone()), prefixes), (expected, alone), "{offset}");
            shared.push(zeros);
        }
        assert_eq!(shared[0].as_ptr(), shared[1].as_ptr());
        assert_eq!(shared[3].as_ptr(), shared[4].as_ptr());
    }
}

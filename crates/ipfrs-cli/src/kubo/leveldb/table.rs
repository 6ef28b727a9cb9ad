//! Tables: sorted entries in blocks, and an index of the blocks.

use anyhow::{Result, bail};

use super::Value;
use super::bytes::{fixed32, fixed64, length, number, take};
use super::checksum::masked;

pub(super) const FOOTER_BYTES: usize = 48;
pub(super) const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Bytes after a block: how it is compressed, and its checksum.
const TRAILER_BYTES: usize = 5;
/// Maximum length of a key, in bytes: far above those of Kubo. A key may take only three bytes in the file, so that
/// long ones would make a reader slow.
const MAX_KEY_BYTES: usize = 64 * 1024;

/// A table that is read from the beginning.
#[derive(Debug)]
pub(super) struct Table {
    content: Vec<u8>,
    /// Offsets and lengths of the blocks that are left.
    blocks: std::vec::IntoIter<(usize, usize)>,
    /// The rest of the current block, as a range of the content.
    rest: std::ops::Range<usize>,
    /// The last key, from which the next one takes its beginning.
    key: Vec<u8>,
}

impl Table {
    pub(super) fn open(content: Vec<u8>) -> Result<Self> {
        let Some(footer) = content.len().checked_sub(FOOTER_BYTES) else { bail!("the table is truncated") };
        let mut rest = &content[footer..];
        let mut magic = &content[content.len() - 8..];
        if fixed64(&mut magic)? != MAGIC {
            bail!("the file is no table of LevelDB");
        }
        let _metadata = (number(&mut rest)?, number(&mut rest)?);
        let index = (length(&mut rest)?, length(&mut rest)?);
        let index = block(&content, index)?;
        let (mut blocks, mut key, mut entries) = (Vec::new(), Vec::new(), &content[index]);
        while !entries.is_empty() {
            let mut handle = entry(&mut entries, &mut key)?;
            blocks.push((length(&mut handle)?, length(&mut handle)?));
        }
        Ok(Self { content, blocks: blocks.into_iter(), rest: 0..0, key: Vec::new() })
    }

    /// Returns the next entry: key, sequence number and value.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, u64, Value)>> {
        while self.rest.is_empty() {
            let Some(handle) = self.blocks.next() else { return Ok(None) };
            self.rest = block(&self.content, handle)?;
            self.key.clear();
        }
        let mut rest = &self.content[self.rest.clone()];
        let value = entry(&mut rest, &mut self.key)?;
        self.rest.start = self.rest.end - rest.len();
        let Some(split) = self.key.len().checked_sub(8) else { bail!("a key is truncated") };
        let tag = fixed64(&mut &self.key[split..])?;
        let value = match tag & 255 {
            0 => None,
            1 => Some(value.to_vec()),
            kind => bail!("an entry has the unknown type {kind}"),
        };
        Ok(Some((self.key[..split].to_vec(), tag >> 8, value)))
    }
}

/// Returns the range of a block's entries. Verifies its checksum.
fn block(content: &[u8], (offset, length): (usize, usize)) -> Result<std::ops::Range<usize>> {
    let last = content.len().checked_sub(TRAILER_BYTES);
    let end = offset.checked_add(length).filter(|end| last.is_some_and(|last| *end <= last));
    let Some(end) = end else { bail!("a block is outside of the table") };
    let mut trailer = &content[end + 1..];
    if fixed32(&mut trailer)? != masked(&[&content[offset..=end]]) {
        bail!("a block is damaged");
    }
    if content[end] != 0 {
        bail!("the table is compressed, which is not supported: start Kubo and use --from with the URL of its RPC");
    }
    // After the entries come the offsets of restarts and their number.
    let Some(count) = end.checked_sub(4).filter(|at| *at >= offset) else { bail!("a block is truncated") };
    let restarts = fixed32(&mut &content[count..])? as usize;
    let entries = count.checked_sub(restarts.saturating_mul(4)).filter(|end| *end >= offset);
    let Some(entries) = entries else { bail!("a block has too many restarts") };
    Ok(offset..entries)
}

/// Takes an entry. Updates the key, and returns the value.
fn entry<'a>(rest: &mut &'a [u8], key: &mut Vec<u8>) -> Result<&'a [u8]> {
    let (shared, own, value) = (length(rest)?, length(rest)?, length(rest)?);
    if shared > key.len() {
        bail!("a key continues more than the one before");
    }
    if shared.saturating_add(own) > MAX_KEY_BYTES {
        bail!("a key has more than {MAX_KEY_BYTES} bytes");
    }
    key.truncate(shared);
    key.extend_from_slice(take(rest, own)?);
    take(rest, value)
}

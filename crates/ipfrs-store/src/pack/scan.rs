//! Reading a pack from front to back, trusting nothing in it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ipfrs_core::{Cid, Result, hash};

use super::lock::cannot;
use super::record::{MAX_PREFIX_BYTES, MAX_SECTION_BYTES};

/// Bytes read at a time.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// Walks the sections of a pack with plain reads, so that an unreadable disk is an error and not a signal.
pub(super) struct Scanner<'a> {
    file: &'a File,
    path: &'a Path,
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_start: u64,
}

/// One section, as far as its framing makes sense.
pub(super) struct Section<'a> {
    /// Offset of its prefix in the pack.
    pub(super) start: u64,
    /// Offset of the next section.
    pub(super) end: u64,
    /// Length of the prefix, in bytes.
    pub(super) prefix: usize,
    /// CID and data that belong together, or why they do not.
    pub(super) content: Result<(Cid, &'a [u8]), String>,
}

impl<'a> Scanner<'a> {
    /// Scans `file` from a section that starts at `at`, up to `end`.
    pub(super) fn new(file: &'a File, path: &'a Path, at: u64, end: u64) -> Self {
        Self { file, path, at, end, buffer: Vec::new(), buffer_start: 0 }
    }

    /// The next section; `None` at the end, or where no section can be made out.
    ///
    /// # Errors
    /// Only when the file cannot be read.
    pub(super) fn next_section(&mut self) -> Result<Option<Section<'_>>> {
        let start = self.at;
        let left = self.end - start;
        let head = self.window(start, left.min(MAX_PREFIX_BYTES as u64) as usize)?;
        let Ok((length, rest)) = unsigned_varint::decode::u64(head) else { return Ok(None) };
        let varint = head.len() - rest.len();
        if length == 0 || length > (MAX_SECTION_BYTES - varint) as u64 || varint as u64 + length > left {
            return Ok(None);
        }
        let total = varint + length as usize;
        self.at = start + total as u64;
        let bytes = self.window(start, total)?;
        let (prefix, content) = check(&bytes[varint..]);
        Ok(Some(Section { start, end: start + total as u64, prefix: varint + prefix, content }))
    }

    /// The `len` bytes at `offset`, which are before the end.
    fn window(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let have = self.buffer_start..self.buffer_start + self.buffer.len() as u64;
        if !(have.contains(&offset) && offset + len as u64 <= have.end) {
            let want = (self.end - offset).min(len.max(READ_BYTES) as u64) as usize;
            self.buffer.resize(want, 0);
            self.buffer_start = offset;
            self.file.read_exact_at(&mut self.buffer, offset).map_err(|error| cannot("read", self.path, error))?;
        }
        let from = (offset - self.buffer_start) as usize;
        Ok(&self.buffer[from..from + len])
    }
}

/// Splits a section into CID and data and compares them; gives the length of the CID too.
fn check(section: &[u8]) -> (usize, Result<(Cid, &[u8]), String>) {
    let mut rest = section;
    let cid = match Cid::read_bytes(&mut rest) {
        Ok(cid) => cid,
        Err(error) => return (0, Err(format!("its CID is malformed: {error}"))),
    };
    let verified = hash::verify(&cid, rest).map_err(|error| error.to_string());
    (section.len() - rest.len(), verified.map(|()| (cid, rest)))
}

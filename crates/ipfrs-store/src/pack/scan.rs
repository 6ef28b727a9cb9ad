//! Sequential parsing of a pack whose content is not trusted.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Result, hash};

use super::lock::cannot;
use super::record::{Key, Location, MAX_SECTION_BYTES, key_of, pack_codec};
use crate::RESERVED_CODEC;

/// Bytes read at a time; at least the maximum length of a section.
const READ_BYTES: usize = MAX_SECTION_BYTES.next_multiple_of(1024 * 1024);

/// Maximum number of sections of a [`Chunk`].
const CHUNK_SECTIONS: usize = 4_096;

/// Iterates over the sections of a pack with plain reads, so that a disk failure is an error and not a signal.
#[derive(Debug)]
pub(super) struct Scanner {
    at: u64,
    end: u64,
    /// Bytes read ahead, starting at `at`.
    window: Bytes,
}

/// Consecutive sections whose framing is valid. Their content has not been checked.
#[derive(Debug)]
pub(super) struct Chunk {
    start: u64,
    bytes: Bytes,
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    /// Length of the length prefix.
    varint: usize,
    /// Length of the section, including the length prefix.
    total: usize,
}

/// One section.
pub(super) struct Section<'a> {
    /// Offset of its prefix in the pack.
    pub(super) start: u64,
    /// Offset of the next section.
    pub(super) end: u64,
    /// Length of the prefix, in bytes.
    pub(super) prefix: usize,
    /// The CID, if it is well-formed, even if the data does not match it.
    pub(super) cid: Option<Cid>,
    /// Result of verifying the section.
    pub(super) content: Content<'a>,
}

/// CID and data that match, or the reason why they do not.
type Content<'a> = Result<(Cid, &'a [u8]), String>;

impl Section<'_> {
    /// Returns the key of the damaged block, if the data does not match the CID. Returns `None` if the CID itself may
    /// be damaged, because the section may then have been a tombstone.
    pub(super) fn lost_block(&self) -> Option<Key> {
        let cid = self.cid.as_ref().filter(|cid| self.content.is_err() && cid.codec() != RESERVED_CODEC)?;
        let function = HashFunction::from_code(cid.hash().code()).ok()?;
        function.digest_bytes()?;
        function.is_whole(cid.hash().size().into()).then(|| key_of(cid.hash()))
    }

    /// Returns the location of the data, if this is a section of `pack` that verifies.
    pub(super) fn location(&self, pack: u32) -> Option<Location> {
        let (cid, data) = self.content.as_ref().ok()?;
        // Packs have less than 4 GiB, and prefixes have at most `MAX_PREFIX_BYTES`.
        Some(Location {
            pack,
            offset: (self.start + self.prefix as u64) as u32,
            len: data.len() as u32,
            prefix: self.prefix as u16,
            codec: pack_codec(cid),
        })
    }
}

impl Scanner {
    /// Creates a scanner from the section at `at` up to `end`.
    pub(super) fn new(at: u64, end: u64) -> Self {
        Self { at, end, window: Bytes::new() }
    }

    /// Returns the offset of the first section that was not returned yet.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the next sections of `file`, which is at `path`. Returns `None` at the end, or if the next bytes are
    /// not a valid section.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn next_chunk(&mut self, file: &File, path: &Path) -> Result<Option<Chunk>> {
        let mut frames = frames(&self.window);
        if frames.is_empty() {
            let want = (self.end - self.at).min(READ_BYTES as u64) as usize;
            let mut bytes = vec![0; want];
            let (had, missing) = bytes.split_at_mut(self.window.len());
            had.copy_from_slice(&self.window);
            file.read_exact_at(missing, self.at + had.len() as u64).map_err(|error| cannot("read", path, error))?;
            self.window = bytes.into();
            frames = self::frames(&self.window);
        }
        if frames.is_empty() {
            return Ok(None);
        }
        let bytes = self.window.split_to(frames.iter().map(|frame| frame.total).sum());
        let start = self.at;
        self.at += bytes.len() as u64;
        Ok(Some(Chunk { start, bytes, frames }))
    }
}

/// Returns the complete sections at the start of `window`.
fn frames(mut window: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while frames.len() < CHUNK_SECTIONS {
        let Ok((length, rest)) = unsigned_varint::decode::u64(window) else { break };
        let varint = window.len() - rest.len();
        if length == 0 || length > (MAX_SECTION_BYTES - varint) as u64 || length > rest.len() as u64 {
            break;
        }
        let total = varint + length as usize;
        frames.push(Frame { varint, total });
        window = &window[total..];
    }
    frames
}

impl Chunk {
    /// Returns the sections. All of them are verified together.
    pub(super) fn sections(&self) -> impl Iterator<Item = Section<'_>> {
        let mut at = 0;
        let mut sections = Vec::with_capacity(self.frames.len());
        for Frame { varint, total } in &self.frames {
            let start = self.start + at as u64;
            let (len, content) = split(&self.bytes[at + varint..at + total]);
            let cid = content.as_ref().ok().map(|(cid, _)| *cid);
            at += total;
            sections.push(Section { start, end: self.start + at as u64, prefix: varint + len, cid, content });
        }
        let parts: Vec<(Cid, &[u8])> = sections.iter().filter_map(|section| section.content.clone().ok()).collect();
        let mut verified = hash::verify_all(&parts).into_iter();
        sections.into_iter().map(move |mut section| {
            if section.cid.is_some()
                && let Some(Err(error)) = verified.next()
            {
                section.content = Err(error.to_string());
            }
            section
        })
    }

    /// Returns an owned slice of a part of this chunk.
    pub(super) fn keep(&self, part: &[u8]) -> Bytes {
        self.bytes.slice_ref(part)
    }
}

/// Splits a section into CID and data without comparing them. Also returns the length of the CID.
fn split(section: &[u8]) -> (usize, Content<'_>) {
    let mut rest = section;
    match Cid::read_bytes(&mut rest) {
        Ok(cid) => (section.len() - rest.len(), Ok((cid, rest))),
        Err(error) => (0, Err(format!("its CID is malformed: {error}"))),
    }
}

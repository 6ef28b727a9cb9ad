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

/// Size of the units that a disk writes, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Minimum length of a digest that tells a block from other bytes.
const MIN_DIGEST_BYTES: u8 = 20;

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
        let Some(frame) = frame(window) else { break };
        window = &window[frame.total..];
        frames.push(frame);
    }
    frames
}

/// Returns the complete section at the start of `window`.
fn frame(window: &[u8]) -> Option<Frame> {
    let (length, rest) = unsigned_varint::decode::u64(window).ok()?;
    let varint = window.len() - rest.len();
    let is_possible = length > 0 && length <= (MAX_SECTION_BYTES - varint) as u64 && length <= rest.len() as u64;
    is_possible.then(|| Frame { varint, total: varint + length as usize })
}

/// Whether the bytes at `at` were never written: a power failure leaves sectors of zeros in what was not synced, and no
/// section begins with a zero.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn is_hole(file: &File, path: &Path, at: u64, end: u64) -> Result<bool> {
    let sector_end = (at + 1).next_multiple_of(SECTOR_BYTES).min(end);
    let mut bytes = vec![0; sector_end.saturating_sub(at) as usize];
    file.read_exact_at(&mut bytes, at).map_err(|error| cannot("read", path, error))?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Whether `bytes` begin as the CIDs of nearly all blocks do. Few other bytes do.
fn begins_as_cid(bytes: &[u8]) -> bool {
    matches!(bytes, [0x12, 0x20, ..] | [1, ..])
}

/// Returns the offset of the first block from `from` on whose data has its hash. What is there need not be the end of a
/// section. `budget` is the number of bytes that may be hashed, because content may consist of false beginnings.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn find_block(file: &File, path: &Path, from: u64, end: u64, budget: &mut u64) -> Result<Option<u64>> {
    let mut start = from;
    while start < end {
        let mut window = vec![0; (end - start).min(2 * READ_BYTES as u64) as usize];
        file.read_exact_at(&mut window, start).map_err(|error| cannot("read", path, error))?;
        // A section that begins later may end behind the window.
        let is_last = start + window.len() as u64 == end;
        let starts = if is_last { window.len() } else { window.len() - READ_BYTES };
        if let Some(found) = (0..starts).find(|at| begins_with_block(&window[*at..], budget)) {
            return Ok(Some(start + found as u64));
        }
        start += starts as u64;
    }
    Ok(None)
}

/// Whether `window` begins with a block that has its hash. The cheap checks, which nearly all other bytes fail, come
/// first.
fn begins_with_block(window: &[u8], budget: &mut u64) -> bool {
    let Some(Frame { varint, total }) = frame(window) else { return false };
    if !begins_as_cid(&window[varint..total]) {
        return false;
    }
    let Ok((cid, data)) = split(&window[varint..total]).1 else { return false };
    let hash = cid.hash();
    let is_known = HashFunction::from_code(hash.code()).is_ok_and(|function| {
        function.digest_bytes().is_some() && function.is_whole(hash.size().into()) && hash.size() >= MIN_DIGEST_BYTES
    });
    if !is_known || cid.codec() == RESERVED_CODEC || data.len() as u64 > *budget {
        return false;
    }
    *budget -= data.len() as u64;
    hash::verify_all(&[(cid, data)]).iter().all(Result::is_ok)
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

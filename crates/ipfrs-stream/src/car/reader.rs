//! A CAR reader that verifies each block.

use std::collections::VecDeque;
use std::fmt;
use std::future::{poll_fn, ready as ready_now};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, Stream, StreamExt};
use ipfrs_core::limits::{MAX_BLOCK_BYTES, MAX_IDENTITY_BYTES};
use ipfrs_core::{Block, Cid, Error, Result};
use serde::Deserialize;

use super::input::{Input, cut_off};

/// Sections of about this many bytes are verified together.
const BATCH_BYTES: usize = 1024 * 1024;

/// Most batches that are verified concurrently, in addition to the one that is being filled.
const MAX_BATCHES: usize = 4;

/// Largest batch, in bytes, that the worker verifies inline: about 50 microseconds of SHA-256.
const INLINE_BYTES: usize = 16 * 1024;

/// Bytes of the fixed header of a CARv2, after its pragma.
const V2_HEADER_BYTES: usize = 40;

/// Size limits for a CAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarLimits {
    /// Largest header, in bytes. Bounds the number of roots.
    pub max_header: u64,
    /// Largest block, in bytes.
    pub max_block: usize,
}

impl Default for CarLimits {
    /// Returns limits of 1 MiB for the header and [`MAX_BLOCK_BYTES`] for a block.
    fn default() -> Self {
        Self { max_header: 1024 * 1024, max_block: MAX_BLOCK_BYTES }
    }
}

impl CarLimits {
    /// Returns the size of a section with the largest block and the largest CID.
    fn max_section(&self) -> u64 {
        // Four varints (version, codec, hash function, digest length) of at most nine bytes each.
        let max_cid = 4 * 9 + MAX_IDENTITY_BYTES;
        (self.max_block + max_cid) as u64
    }
}

/// A reader of CAR, version 1 or 2, from a stream of pieces of any size. It is a stream of the CAR's blocks, in their
/// order in the CAR.
///
/// * The reader verifies the hash of every block. Identity blocks and repeated blocks are yielded like all others.
///   The index of a CARv2 is skipped.
/// * Hashing runs in batches on blocking threads, not on the worker that polls the stream. It needs a Tokio runtime.
/// * A block that is contained in one incoming piece is a slice of that piece; any other block is copied once. Memory
///   is bounded by a few MiB of sections.
/// * An error is the last item and follows all blocks before it. Its message contains the offset in the stream at
///   which the section begins.
pub struct CarReader<S> {
    input: Input<S>,
    limits: CarLimits,
    /// Offset of the section that is being read.
    section_offset: u64,
    progress: Progress,
    roots: Vec<Cid>,
    batch: Vec<Section>,
    batch_bytes: usize,
    verifying: FuturesOrdered<BoxFuture<'static, Verified>>,
    verified: VecDeque<Block>,
    failed: Option<Error>,
}

/// The part of the CAR that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The length of the header.
    Header,
    /// The header, of this many bytes.
    HeaderBody(usize),
    /// The fixed header of a CARv2.
    V2Header,
    /// The bytes of a CARv2 before `data_offset`, which are skipped. A CARv1 of `data_bytes` bytes follows.
    V2Gap { data_offset: u64, data_bytes: u64 },
    /// The length of a section.
    Section,
    /// A section of this many bytes.
    SectionBody(usize),
    /// Nothing: the CAR has ended.
    End,
}

struct Section {
    offset: u64,
    bytes: Bytes,
}

struct Verified {
    blocks: VecDeque<Block>,
    failed: Option<Error>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    version: u64,
    roots: Option<Vec<Cid>>,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> CarReader<S> {
    /// Creates a reader of the CAR in `pieces`.
    #[must_use]
    pub fn new(pieces: S, limits: CarLimits) -> Self {
        Self {
            input: Input::new(pieces),
            limits,
            section_offset: 0,
            progress: Progress::Header,
            roots: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            verifying: FuturesOrdered::new(),
            verified: VecDeque::new(),
            failed: None,
        }
    }

    /// Reads the header, unless it has been read already, and returns its roots. The CAR need not contain the roots.
    ///
    /// # Errors
    /// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the stream is not a CAR,
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for another version,
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if a limit is exceeded, and the errors of the stream.
    pub async fn header(&mut self) -> Result<&[Cid]> {
        poll_fn(|cx| self.poll_header(cx)).await.inspect_err(|_| self.progress = Progress::End)?;
        Ok(&self.roots)
    }

    fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            self.progress = match self.progress {
                Progress::Header => {
                    self.section_offset = self.input.offset();
                    let len = ready!(self.input.poll_varint(cx)).map_err(|error| self.at_section("header", error))?;
                    Progress::HeaderBody(self.check_len("header", len.unwrap_or(0), self.limits.max_header)?)
                }
                Progress::HeaderBody(len) => {
                    let body = ready!(self.input.poll_take(cx, len)).map_err(|e| self.at_section("header", e))?;
                    self.read_header(&body).map_err(|error| self.at_section("header", error))?
                }
                Progress::V2Header => {
                    let body = ready!(self.input.poll_take(cx, V2_HEADER_BYTES))
                        .map_err(|error| self.at_section("CARv2 header", error))?;
                    read_v2_header(&body).map_err(|error| self.at_section("CARv2 header", error))?
                }
                Progress::V2Gap { data_offset, data_bytes } => {
                    ready!(self.input.poll_skip_to(cx, data_offset))
                        .map_err(|error| self.at_section("CARv2 header", error))?;
                    self.input.limit(data_bytes);
                    Progress::Header
                }
                Progress::Section | Progress::SectionBody(_) | Progress::End => return Poll::Ready(Ok(())),
            };
        }
    }

    fn read_header(&mut self, body: &[u8]) -> Result<Progress> {
        let header: Header = serde_ipld_dagcbor::from_slice(body).map_err(|error| {
            Error::invalid("not a CAR: its header is not a map with version and roots").with_source(error)
        })?;
        match (header.version, header.roots) {
            (1, Some(roots)) => {
                self.roots = roots;
                Ok(Progress::Section)
            }
            (1, None) => Err(Error::invalid("not a CAR: its header has no list of roots")),
            (2, None) if self.section_offset == 0 => Ok(Progress::V2Header),
            (2, _) => {
                Err(Error::invalid("not a CAR: a version 2 header has only the version, and must be at the beginning"))
            }
            (version, _) => Err(Error::unsupported(format!("CAR version {version} is not supported: use 1 or 2"))),
        }
    }

    /// Reads sections and submits each full batch for verification, while fewer than [`MAX_BATCHES`] are being
    /// verified.
    fn poll_collect(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.poll_header(cx))?;
        while self.progress != Progress::End && self.verifying.len() < MAX_BATCHES {
            match self.poll_section(cx) {
                Poll::Ready(Ok(Some(section))) => {
                    // The size of the `Block` value counts too, for CARs of tiny blocks.
                    self.batch_bytes += section.bytes.len() + size_of::<Block>();
                    self.batch.push(section);
                    if self.batch_bytes >= BATCH_BYTES {
                        self.verify_batch();
                    }
                }
                Poll::Ready(Ok(None)) => self.progress = Progress::End,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Verifying the sections that have arrived now is better than waiting for a full batch.
                Poll::Pending => {
                    self.verify_batch();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_section(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Section>>> {
        let len = match self.progress {
            Progress::SectionBody(len) => len,
            _ => {
                if !self.input.is_within_varint() {
                    self.section_offset = self.input.offset();
                }
                let len = ready!(self.input.poll_varint(cx)).map_err(|error| self.at_section("section", error))?;
                let Some(len) = len else {
                    // The header of a CARv2 declares the length of its CARv1.
                    let is_whole = !self.input.is_short();
                    return Poll::Ready(is_whole.then_some(None).ok_or_else(|| self.at_section("section", cut_off())));
                };
                self.check_len("section", len, self.limits.max_section())?
            }
        };
        self.progress = Progress::SectionBody(len);
        let bytes = ready!(self.input.poll_take(cx, len)).map_err(|error| self.at_section("section", error))?;
        self.progress = Progress::Section;
        Poll::Ready(Ok(Some(Section { offset: self.section_offset, bytes })))
    }

    fn check_len(&self, what: &str, len: u64, limit: u64) -> Result<usize> {
        if len == 0 {
            return Err(self.at_section(what, Error::invalid("it has no bytes")));
        }
        if len > limit {
            let why = format!("its {len} bytes are over the limit of {limit} bytes");
            let error = if what == "section" { Error::large_block(why) } else { Error::too_large(why) };
            return Err(self.at_section(what, error));
        }
        usize::try_from(len).map_err(|_| self.at_section(what, Error::too_large(format!("it has {len} bytes"))))
    }

    fn at_section(&self, what: &str, error: Error) -> Error {
        at(what, self.section_offset, error)
    }

    fn verify_batch(&mut self) {
        let (batch, bytes) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_bytes));
        if batch.is_empty() {
            return;
        }
        let max_block = self.limits.max_block;
        self.verifying.push_back(if bytes <= INLINE_BYTES {
            Box::pin(ready_now(verify(batch, max_block)))
        } else {
            let task = tokio::task::spawn_blocking(move || verify(batch, max_block));
            Box::pin(async move {
                task.await.unwrap_or_else(|error| Verified {
                    blocks: VecDeque::new(),
                    failed: Some(Error::internal("block verification did not complete").with_source(error)),
                })
            })
        });
    }

    /// Stops reading. `error` is yielded after the batches that are still being verified.
    fn stop(&mut self, error: Option<Error>) {
        self.verify_batch();
        self.progress = Progress::End;
        if let Some(error) = error {
            let failed = Verified { blocks: VecDeque::new(), failed: Some(error) };
            self.verifying.push_back(Box::pin(ready_now(failed)));
        }
    }
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for CarReader<S> {
    type Item = Result<Block>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let reader = self.get_mut();
        loop {
            if reader.progress != Progress::End {
                match reader.poll_collect(cx) {
                    Poll::Ready(Ok(())) if reader.progress == Progress::End => reader.stop(None),
                    Poll::Ready(Err(error)) => reader.stop(Some(error)),
                    Poll::Ready(Ok(())) | Poll::Pending => {}
                }
            }
            if let Some(block) = reader.verified.pop_front() {
                return Poll::Ready(Some(Ok(block)));
            }
            if let Some(error) = reader.failed.take() {
                return Poll::Ready(Some(Err(error)));
            }
            match ready!(reader.verifying.poll_next_unpin(cx)) {
                Some(Verified { blocks, failed }) => {
                    if failed.is_some() {
                        reader.verifying.clear();
                        reader.batch.clear();
                        reader.progress = Progress::End;
                    }
                    (reader.verified, reader.failed) = (blocks, failed);
                }
                None if reader.progress == Progress::End => return Poll::Ready(None),
                None => return Poll::Pending,
            }
        }
    }
}

impl<S> fmt::Debug for CarReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarReader")
            .field("offset", &self.input.offset())
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

fn at(what: &str, offset: u64, error: Error) -> Error {
    Error::new(error.kind(), format!("{what} at byte {offset} of the CAR: {error}")).with_source(error)
}

/// Parses the fixed header of a CARv2 (<https://ipld.io/specs/transport/car/carv2/>): the characteristics, the offset
/// and the size of its CARv1, and the offset of the index. The reader does not use the index.
fn read_v2_header(body: &[u8]) -> Result<Progress> {
    let number = |at: usize| {
        let bytes = body.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        bytes.map(u64::from_le_bytes).ok_or_else(|| Error::invalid("it is truncated"))
    };
    let (data_offset, data_bytes) = (number(16)?, number(24)?);
    let header_end = 11 + V2_HEADER_BYTES as u64;
    if data_offset < header_end {
        let why = format!("its data begins at byte {data_offset}, before the end of the header at {header_end}");
        return Err(Error::invalid(why));
    }
    Ok(Progress::V2Gap { data_offset, data_bytes })
}

/// Splits sections into blocks and verifies them, up to the first invalid one.
fn verify(batch: Vec<Section>, max_block: usize) -> Verified {
    let mut offsets = Vec::with_capacity(batch.len());
    let mut parts = Vec::with_capacity(batch.len());
    let mut malformed = None;
    for Section { offset, bytes } in batch {
        match split(bytes) {
            Ok(part) => parts.push(part),
            Err(error) => {
                malformed = Some(at("section", offset, error));
                break;
            }
        }
        offsets.push(offset);
    }
    let mut blocks = VecDeque::with_capacity(parts.len());
    for (block, offset) in Block::verify_all(parts, max_block).into_iter().zip(offsets) {
        match block {
            Ok(block) => blocks.push_back(block),
            Err(error) => return Verified { blocks, failed: Some(at("section", offset, error)) },
        }
    }
    Verified { blocks, failed: malformed }
}

fn split(section: Bytes) -> Result<(Cid, Bytes)> {
    let mut rest: &[u8] = &section;
    let cid = Cid::read_bytes(&mut rest).map_err(|error| Error::invalid(format!("invalid binary CID: {error}")))?;
    let cid_bytes = section.len() - rest.len();
    Ok((cid, section.slice(cid_bytes..)))
}

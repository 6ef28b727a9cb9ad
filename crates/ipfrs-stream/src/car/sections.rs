//! CARs from blocks that their store keeps as CAR sections.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::{BlockBatch, MIN_ALIGNED_BYTES, StoredSection};

use crate::DagWalk;

/// Slices below this size are copied into a shared piece. A piece of its own costs more than copying a few kilobytes.
const COPY_BELOW_BYTES: usize = 8 * 1024;
/// Size at which a piece of copied slices is yielded.
const PIECE_BYTES: usize = 64 * 1024;
/// Size at which a slice of adjacent sections is yielded.
const RUN_BYTES: usize = 1024 * 1024;

/// Encodes a whole CAR without roots as a stream: the header, then a section for each of `cids` whose block is in
/// `batches`. Missing blocks ([`ErrorKind::NotFound`]) are left out; any other error is the last item.
///
/// A store that keeps a block under the requested CID keeps it as a CAR section. Such a section is yielded without
/// copying, and adjacent sections are yielded as one piece.
pub fn encode_batches<S>(cids: Arc<[Cid]>, mut batches: S) -> impl Stream<Item = Result<Bytes>> + use<S>
where
    S: Stream<Item = BlockBatch> + Unpin,
{
    // Number of CIDs whose lookup has completed.
    let mut completed = 0;
    encode(&super::header(&[]), move |cx, pieces| {
        batches.poll_next_unpin(cx).map(|batch| {
            let Some(mut batch) = batch else { return ControlFlow::Break(()) };
            let requested = cids.get(completed..).unwrap_or_default();
            completed += batch.len();
            pieces.put_batch(requested, &mut batch)
        })
    })
}

/// Encodes a whole CAR as a stream: the header, then a section for each block of `walk`. The stream ends after the
/// first error. `note` receives the length of each block, and the error.
///
/// Blocks that are adjacent in the store are yielded as one piece, without copying.
pub fn encode_walk<N>(roots: &[Cid], mut walk: DagWalk, mut note: N) -> impl Stream<Item = Result<Bytes>> + use<N>
where
    N: FnMut(Result<usize, &Error>),
{
    encode(&super::header(roots), move |cx, pieces| {
        walk.poll_walked(cx).map(|walked| match walked {
            Some(Ok(block)) => {
                note(Ok(block.section.data_len()));
                pieces.put(&block.cid, block.section);
                ControlFlow::Continue(())
            }
            Some(Err(error)) => {
                note(Err(&error));
                pieces.fail(error);
                ControlFlow::Break(())
            }
            None => ControlFlow::Break(()),
        })
    })
}

/// Encodes the header and the sections that `put_next` appends, until it breaks.
fn encode<F>(header: &[u8], mut put_next: F) -> impl Stream<Item = Result<Bytes>> + use<F>
where
    F: FnMut(&mut Context<'_>, &mut Pieces) -> Poll<ControlFlow<()>>,
{
    let mut pieces = Pieces::beginning_with(header);
    let mut has_ended = false;
    stream::poll_fn(move |cx| {
        loop {
            if let Some(piece) = pieces.pop() {
                return Poll::Ready(Some(piece));
            }
            if has_ended {
                return Poll::Ready(None);
            }
            match put_next(cx, &mut pieces) {
                Poll::Ready(ControlFlow::Continue(())) => continue,
                Poll::Ready(ControlFlow::Break(())) => has_ended = true,
                // Complete pieces do not wait for the next block.
                Poll::Pending if pieces.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
            pieces.end();
        }
    })
}

/// An encoder of sections. It combines adjacent sections, and short ones.
struct Pieces {
    /// Short sections and other bytes that precede the next piece.
    copied: BytesMut,
    /// Adjacent sections in one memory, to which the next section may be appended.
    run: Option<(Bytes, Range<usize>)>,
    /// Buffer for the prefix of one section.
    prefix: Vec<u8>,
    pieces: VecDeque<Result<Bytes>>,
}

impl Pieces {
    fn beginning_with(header: &[u8]) -> Self {
        Self { copied: header.into(), run: None, prefix: Vec::with_capacity(64), pieces: VecDeque::new() }
    }

    /// Returns the next complete piece.
    fn pop(&mut self) -> Option<Result<Bytes>> {
        self.pieces.pop_front()
    }

    /// Whether nothing waits for [`Self::end`].
    fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.run.is_none()
    }

    /// Appends the sections of a batch. An error ends the CAR.
    fn put_batch(&mut self, requested: &[Cid], batch: &mut BlockBatch) -> ControlFlow<()> {
        for (index, cid) in requested.iter().enumerate().take(batch.len()) {
            match batch.take_section(index) {
                Ok(Some(section)) => self.put(cid, section),
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    self.fail(error);
                    return ControlFlow::Break(());
                }
                Ok(None) | Err(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Appends the section of a block.
    fn put(&mut self, cid: &Cid, section: StoredSection) {
        self.prefix.clear();
        super::put_prefix(&mut self.prefix, cid, section.data_len());
        let (memory, range) = section.range();
        if section.prefix() != self.prefix {
            // The store keeps the block under another codec or version, or keeps no sections.
            let data = range.end - section.data_len()..range.end;
            self.end_run();
            self.copied.extend_from_slice(&self.prefix);
            return self.put_slice(memory, data);
        }
        match &mut self.run {
            Some((of, run)) if is_adjacent(of, run, memory, &range) && run.len() < RUN_BYTES => run.end = range.end,
            _ => {
                self.end_run();
                // A large block may begin at a page of its file, and costs less to send if the slice does, too.
                let prefix = if section.data_len() >= MIN_ALIGNED_BYTES { self.prefix.len() } else { 0 };
                self.copied.extend_from_slice(&self.prefix[..prefix]);
                self.run = Some((memory.clone(), range.start + prefix..range.end));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((memory, range)) = self.run.take() {
            self.put_slice(&memory, range);
        }
    }

    /// Appends a part of `memory`, either as a slice or copied.
    fn put_slice(&mut self, memory: &Bytes, range: Range<usize>) {
        if range.len() >= COPY_BELOW_BYTES {
            self.end_copied();
            self.pieces.push_back(Ok(memory.slice(range)));
            return;
        }
        if self.copied.is_empty() {
            self.copied.reserve(PIECE_BYTES + COPY_BELOW_BYTES);
        }
        self.copied.extend_from_slice(&memory[range]);
        if self.copied.len() >= PIECE_BYTES {
            self.end_copied();
        }
    }

    fn end_copied(&mut self) {
        if !self.copied.is_empty() {
            self.pieces.push_back(Ok(self.copied.split().freeze()));
        }
    }

    /// Completes the current piece.
    fn end(&mut self) {
        self.end_run();
        self.end_copied();
    }

    /// Completes the current piece and appends an error.
    fn fail(&mut self, error: Error) {
        self.end();
        self.pieces.push_back(Err(error));
    }
}

/// Whether `range` of `memory` begins where `run` of `of` ends, and is within the same memory.
fn is_adjacent(of: &Bytes, run: &Range<usize>, memory: &Bytes, range: &Range<usize>) -> bool {
    of.as_ptr() == memory.as_ptr() && run.end == range.start && range.end <= of.len()
}

//! CAR sections of blocks that were looked up together.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use ipfrs_core::{Cid, ErrorKind, Result};
use ipfrs_store::BlockBatch;

/// Slices below this size are copied into a shared piece. A piece of its own costs more than copying a few kilobytes.
const COPY_BELOW_BYTES: usize = 8 * 1024;
/// Size at which a piece of copied slices is yielded.
const PIECE_BYTES: usize = 64 * 1024;

/// Encodes a whole CAR without roots as a stream: the header, then a section for each of `cids` whose block is in
/// `batches`. Missing blocks ([`ErrorKind::NotFound`]) are left out; any other error is the last item.
///
/// A store that keeps a block under the requested CID keeps it as a CAR section. Such a section is yielded without
/// copying, and adjacent sections are yielded as one piece.
pub fn encode_batches<S>(cids: Arc<[Cid]>, batches: S) -> impl Stream<Item = Result<Bytes>> + use<S>
where
    S: Stream<Item = BlockBatch> + Unpin,
{
    struct State<S> {
        batches: Option<S>,
        cids: Arc<[Cid]>,
        /// Number of CIDs whose lookup has completed.
        completed: usize,
        pieces: VecDeque<Result<Bytes>>,
        /// The CAR header, before the first piece; empty afterwards.
        header: BytesMut,
    }
    let header = BytesMut::from(super::header(&[]).as_ref());
    let state = State { batches: Some(batches), cids, completed: 0, pieces: VecDeque::new(), header };
    stream::unfold(state, |mut state| async move {
        while state.pieces.is_empty() {
            let Some(batch) = state.batches.as_mut()?.next().await else {
                state.batches = None;
                state.pieces.extend((!state.header.is_empty()).then(|| Ok(state.header.split().freeze())));
                break;
            };
            let requested = state.cids.get(state.completed..).unwrap_or_default();
            state.completed += batch.len();
            let mut sections = Sections { batch, copied: state.header.split(), run: None, pieces: VecDeque::new() };
            if let Err(error) = sections.write(requested) {
                state.batches = None;
                sections.pieces.push_back(Err(error));
            }
            state.pieces = sections.pieces;
        }
        Some((state.pieces.pop_front()?, state))
    })
}

/// An encoder for the sections of one batch.
struct Sections {
    batch: BlockBatch,
    /// Short sections and other bytes that precede the next piece.
    copied: BytesMut,
    /// Adjacent sections in one span, to which the next section may be appended.
    run: Option<(usize, Range<usize>)>,
    pieces: VecDeque<Result<Bytes>>,
}

impl Sections {
    fn write(&mut self, requested: &[Cid]) -> Result<()> {
        let mut prefix = Vec::with_capacity(64);
        for (index, cid) in requested.iter().enumerate().take(self.batch.len()) {
            let Ok(Some(section)) = self.batch.section(index) else {
                match self.batch.take_error(index) {
                    Some(error) if error.kind() != ErrorKind::NotFound => {
                        self.end();
                        return Err(error);
                    }
                    _ => continue,
                }
            };
            prefix.clear();
            super::put_prefix(&mut prefix, cid, section.data.len());
            let (span, range) = (section.span, section.range.clone());
            if section.prefix == prefix {
                self.put_section(span, range);
            } else {
                // The store keeps the block under another codec or version, or keeps no sections.
                let data = range.start + section.prefix.len()..range.end;
                self.end_run();
                self.copied.extend_from_slice(&prefix);
                self.put(span, data);
            }
        }
        self.end();
        Ok(())
    }

    fn put_section(&mut self, span: usize, range: Range<usize>) {
        match &mut self.run {
            Some((of, run)) if *of == span && run.end == range.start => run.end = range.end,
            _ => {
                self.end_run();
                self.run = Some((span, range));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((span, range)) = self.run.take() {
            self.put(span, range);
        }
    }

    /// Appends a part of a span, either as a slice or copied.
    fn put(&mut self, span: usize, range: Range<usize>) {
        let part = self.batch.slice(span, range);
        if part.len() < COPY_BELOW_BYTES {
            if self.copied.is_empty() {
                self.copied.reserve(PIECE_BYTES + COPY_BELOW_BYTES);
            }
            self.copied.extend_from_slice(&part);
            if self.copied.len() < PIECE_BYTES {
                return;
            }
            self.end_copied();
        } else {
            self.end_copied();
            self.pieces.push_back(Ok(part));
        }
    }

    fn end_copied(&mut self) {
        if !self.copied.is_empty() {
            self.pieces.push_back(Ok(self.copied.split().freeze()));
        }
    }

    fn end(&mut self) {
        self.end_run();
        self.end_copied();
    }
}

//! CARs from blocks that their store keeps as CAR sections.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::{BlockBatch, MIN_ALIGNED_BYTES, StoredSection};

use crate::DagWalk;
use crate::gather::{Gatherer, gather};

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
    encode(super::header(&[]), move |cx, sections, gatherer| {
        batches.poll_next_unpin(cx).map(|batch| {
            let Some(mut batch) = batch else { return ControlFlow::Break(()) };
            let requested = cids.get(completed..).unwrap_or_default();
            completed += batch.len();
            sections.put_batch(requested, &mut batch, gatherer)
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
    encode(super::header(roots), move |cx, sections, gatherer| {
        walk.poll_walked(cx).map(|walked| match walked {
            Some(Ok(block)) => {
                note(Ok(block.section.data_len()));
                sections.put(&block.cid, &block.section, gatherer);
                ControlFlow::Continue(())
            }
            Some(Err(error)) => {
                note(Err(&error));
                sections.fail(error, gatherer);
                ControlFlow::Break(())
            }
            None => ControlFlow::Break(()),
        })
    })
}

/// Encodes the header and the sections that `put_next` appends, until it breaks.
fn encode<F>(header: Bytes, mut put_next: F) -> impl Stream<Item = Result<Bytes>> + use<F>
where
    F: FnMut(&mut Context<'_>, &mut Sections, &mut Gatherer) -> Poll<ControlFlow<()>>,
{
    let mut sections = Sections { run: None, prefix: Vec::with_capacity(64) };
    let mut header = Some(header);
    gather(move |cx, gatherer| {
        if let Some(header) = header.take() {
            gatherer.copy(&header);
        }
        let next = put_next(cx, &mut sections, gatherer);
        // Sections do not wait for a block that is not available yet.
        if !matches!(next, Poll::Ready(ControlFlow::Continue(()))) {
            sections.end_run(gatherer);
        }
        next
    })
}

/// An encoder of sections. It combines adjacent ones.
struct Sections {
    /// Adjacent sections in one memory, to which the next section may be appended.
    run: Option<(Bytes, Range<usize>)>,
    /// Buffer for the prefix of one section.
    prefix: Vec<u8>,
}

impl Sections {
    /// Appends the sections of a batch. An error ends the CAR.
    fn put_batch(&mut self, requested: &[Cid], batch: &mut BlockBatch, gatherer: &mut Gatherer) -> ControlFlow<()> {
        for (index, cid) in requested.iter().enumerate().take(batch.len()) {
            match batch.take_section(index) {
                Ok(Some(section)) => self.put(cid, &section, gatherer),
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    self.fail(error, gatherer);
                    return ControlFlow::Break(());
                }
                Ok(None) | Err(_) => {}
            }
        }
        ControlFlow::Continue(())
    }

    /// Appends the section of a block.
    fn put(&mut self, cid: &Cid, section: &StoredSection, gatherer: &mut Gatherer) {
        self.prefix.clear();
        super::put_prefix(&mut self.prefix, cid, section.data_len());
        let (memory, range) = section.range();
        if section.prefix() != self.prefix {
            // The store keeps the block under another codec or version, or keeps no sections.
            let data = range.end - section.data_len()..range.end;
            self.end_run(gatherer);
            gatherer.copy(&self.prefix);
            return gatherer.push_slice(memory, data);
        }
        match &mut self.run {
            Some((of, run)) if is_adjacent(of, run, memory, &range) && run.len() < RUN_BYTES => run.end = range.end,
            _ => {
                self.end_run(gatherer);
                // A large block may begin at a page of its file, and costs less to send if the slice does, too.
                let prefix = if section.data_len() >= MIN_ALIGNED_BYTES { self.prefix.len() } else { 0 };
                gatherer.copy(&self.prefix[..prefix]);
                self.run = Some((memory.clone(), range.start + prefix..range.end));
            }
        }
    }

    /// Completes the adjacent sections.
    fn end_run(&mut self, gatherer: &mut Gatherer) {
        if let Some((memory, range)) = self.run.take() {
            gatherer.push_slice(&memory, range);
        }
    }

    /// Appends an error.
    fn fail(&mut self, error: Error, gatherer: &mut Gatherer) {
        self.end_run(gatherer);
        gatherer.fail(error);
    }
}

/// Whether `range` of `memory` begins where `run` of `of` ends, and is within the same memory.
fn is_adjacent(of: &Bytes, run: &Range<usize>, memory: &Bytes, range: &Range<usize>) -> bool {
    of.as_ptr() == memory.as_ptr() && run.end == range.start && range.end <= of.len()
}

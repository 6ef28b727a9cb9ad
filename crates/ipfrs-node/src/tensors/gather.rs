//! Gathers the bytes of a slice from its runs in the file.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_stream::{DagReader, Span};
use ipfrs_tensor::{Plan, Run};
use tokio::task::coop::poll_proceed;

use crate::{FileContent, Node};

/// Minimum length of a run that is sent without a copy. Shorter runs are copied together.
const SLICE_FROM_BYTES: usize = 32 * 1024;

/// Size of the pieces into which runs are copied.
const PIECE_BYTES: usize = 256 * 1024;

/// Maximum gap between runs that is read through. It is smaller than the default block size, so a block that contains
/// no bytes of the slice is not read. For a larger gap, seeking to the next block costs less than reading the blocks
/// between.
const GAP_BYTES: u64 = 256 * 1024 - 1;

/// Maximum number of parts to read before the copied bytes are yielded, however few they are.
const PARTS_PER_PIECE: usize = 64;

/// Minimum number of bytes that a part counts for in the read-ahead window, because it holds a slice of a block.
const PART_BYTES: u64 = 256 * 1024;

/// Maximum number of parts that are read concurrently.
const MOST_PARTS: u64 = 64;

/// Number of runs to process before yielding to other tasks, which takes some microseconds.
const RUNS_PER_TURN: usize = 1_024;

/// A stream of a span of the bytes in a plan's runs, in order. Only blocks that contain some of the bytes, or are in
/// short gaps between them, are read.
///
/// Distant parts are read concurrently, as many as fit into the window of a reader. A slice of one column therefore
/// does not wait for each block in turn. The memory is limited to that window and one piece, because runs are
/// computed on demand and not listed. All work happens when the stream is polled and uses the budget of the Tokio
/// task.
pub(super) struct Gather {
    /// The remaining runs after the current one.
    runs: Plan,
    /// The parts of the tensor that contain them. The first ones are already being read.
    parts: BoxStream<'static, Result<Reading>>,
    /// The rest of the current run.
    run: Option<Run>,
    /// End of the last byte of the span, relative to the tensor.
    end: u64,
    reading: Option<Reading>,
    copied: BytesMut,
    /// Number of parts read since the last piece was yielded.
    parts_in_piece: usize,
    /// Maximum size of a piece of copied runs.
    piece_bytes: usize,
    /// Minimum length of a run that is not copied.
    slice_from: usize,
}

/// A part of the tensor that is being read.
struct Reading {
    pieces: DagReader,
    piece: Bytes,
    /// Start of `piece`, relative to the tensor.
    at: u64,
    /// End of the part, relative to the tensor.
    end: u64,
}

/// Result of one step.
enum Turn {
    /// Bytes to yield.
    Piece(Bytes),
    /// The step reached its limit of runs.
    Over,
    /// More must be read first.
    Dry,
    /// All bytes were yielded.
    Done,
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").field("run", &self.run).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Gather {
    /// Streams the bytes `span` of the `plan` of a tensor that starts at `offset` in `file`.
    pub(super) fn new(node: &Node, file: &FileContent, offset: u64, plan: &Plan, span: Span) -> Self {
        let config = &node.inner.config;
        let slice_from = if config.tensor.zero_copy { SLICE_FROM_BYTES } else { usize::MAX };
        let (mut reads, together) = plan.joined(GAP_BYTES);
        let (mut runs, mut run, mut end) = (plan.clone(), None, 0);
        if span.len > 0 {
            let each = plan.run_bytes().max(1);
            let (number, last) = (span.start / each, span.end() - 1);
            reads.skip_to(number / together);
            runs.skip_to(last / each);
            end = runs.next().map_or(0, |run| run.start + last % each + 1);
            runs.skip_to(number);
            let within = span.start % each;
            run = runs.next().map(|run| Run { start: run.start + within, bytes: run.bytes - within });
        }
        let first = run.map_or(end, |run| run.start);
        let at_once = config.streaming.flow_control.window_bytes() / reads.run_bytes().max(PART_BYTES);
        let (node, file) = (node.clone(), file.clone());
        let parts = reads.take_while(move |part| part.start < end).map(move |part| {
            let (start, end) = (part.start.max(first), part.end().min(end));
            let span = Span { start: offset + start, len: end.saturating_sub(start) };
            Reading::begin(node.reader(&file, span), start, end)
        });
        let at_once = usize::try_from(at_once.clamp(1, MOST_PARTS)).unwrap_or(1);
        let parts = stream::iter(parts).buffered(at_once).boxed();
        let piece_bytes = usize::try_from(span.len).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let copied = BytesMut::new();
        Self { runs, parts, run, end, reading: None, copied, parts_in_piece: 0, piece_bytes, slice_from }
    }

    /// Takes runs from the current piece.
    fn turn(&mut self) -> Turn {
        for _ in 0..RUNS_PER_TURN {
            let Some(run) = self.run.as_mut().filter(|run| run.start < self.end) else {
                let last = self.copied.split().freeze();
                return if last.is_empty() { Turn::Done } else { Turn::Piece(last) };
            };
            let Some(reading) = &mut self.reading else { return Turn::Dry };
            // Runs are in ascending order, so the bytes before this one are a gap.
            reading.skip(run.start - reading.at.min(run.start));
            if reading.piece.is_empty() {
                return Turn::Dry;
            }
            // The last part ends at the end of the span, so no run needs to be shortened.
            let bytes = usize::try_from(run.bytes).unwrap_or(usize::MAX).min(reading.piece.len());
            let slice = if bytes < self.slice_from {
                self.copied.reserve(self.piece_bytes.saturating_sub(self.copied.len()).max(bytes));
                self.copied.extend_from_slice(&reading.piece[..bytes]);
                None
            } else if self.copied.is_empty() {
                Some(reading.piece.slice(..bytes))
            } else {
                return Turn::Piece(self.copied.split().freeze());
            };
            reading.skip(bytes as u64);
            run.start += bytes as u64;
            run.bytes -= bytes as u64;
            if run.bytes == 0 {
                self.run = self.runs.next();
            }
            if let Some(slice) = slice {
                return Turn::Piece(slice);
            }
            if self.copied.len() >= self.piece_bytes {
                return Turn::Piece(self.copied.split().freeze());
            }
        }
        Turn::Over
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Bytes>>> {
        self.run = None;
        self.reading = None;
        self.copied.clear();
        Poll::Ready(Some(Err(error)))
    }
}

impl Reading {
    /// Reads the first piece of a part of the tensor.
    async fn begin(mut pieces: DagReader, at: u64, end: u64) -> Result<Self> {
        let piece = pieces.next().await.unwrap_or_else(|| Err(too_short()))?;
        Ok(Self { pieces, piece, at, end })
    }

    /// Skips bytes, up to the end of the piece.
    fn skip(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.piece.len());
        self.at += bytes as u64;
        self.piece.advance(bytes);
    }
}

impl Stream for Gather {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let budget = ready!(poll_proceed(cx));
            match this.turn() {
                Turn::Piece(bytes) => {
                    budget.made_progress();
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Turn::Over => {
                    budget.made_progress();
                    continue;
                }
                Turn::Done => return Poll::Ready(None),
                Turn::Dry => {}
            }
            // The reader takes from the budget itself.
            drop(budget);
            match &mut this.reading {
                Some(reading) if reading.at < reading.end => match ready!(reading.pieces.poll_next_unpin(cx)) {
                    Some(Ok(piece)) => reading.piece = piece,
                    Some(Err(error)) => return this.fail(error),
                    None => return this.fail(too_short()),
                },
                _ if this.parts_in_piece >= PARTS_PER_PIECE && !this.copied.is_empty() => {
                    this.parts_in_piece = 0;
                    return Poll::Ready(Some(Ok(this.copied.split().freeze())));
                }
                _ => match ready!(this.parts.poll_next_unpin(cx)) {
                    Some(Ok(reading)) => {
                        this.parts_in_piece += 1;
                        this.reading = Some(reading);
                    }
                    Some(Err(error)) => return this.fail(error),
                    None => return this.fail(Error::internal("a slice has more bytes than its tensor")),
                },
            }
        }
    }
}

fn too_short() -> Error {
    Error::internal("a part of a file ended early")
}

//! Combination of short pieces of a body.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::stream::{self, Stream, StreamExt};
use ipfrs_core::{Error, Result};

/// Pieces below this size are copied into a shared piece. A piece of its own costs more than copying a few kilobytes.
const COPY_BELOW_BYTES: usize = 8 * 1024;
/// Size at which a piece of copied ones is complete.
const PIECE_BYTES: usize = 64 * 1024;

/// Pieces of a body that wait to be taken. Short ones are combined; all others are passed on without copying.
#[derive(Debug, Default)]
pub(crate) struct Gatherer {
    /// Short pieces that follow the complete ones.
    copied: BytesMut,
    complete: VecDeque<Result<Bytes>>,
}

impl Gatherer {
    /// Appends a part of `memory`.
    pub(crate) fn push_slice(&mut self, memory: &Bytes, range: Range<usize>) {
        match range.len() < COPY_BELOW_BYTES {
            true => self.push_short(&memory[range]),
            false => self.push_long(memory.slice(range)),
        }
    }

    /// Appends a copy of a few bytes that belong to the next piece.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    fn push_short(&mut self, piece: &[u8]) {
        if self.copied.is_empty() {
            self.copied.reserve(PIECE_BYTES + COPY_BELOW_BYTES);
        }
        self.copied.extend_from_slice(piece);
        if self.copied.len() >= PIECE_BYTES {
            self.complete_copied();
        }
    }

    fn push_long(&mut self, piece: Bytes) {
        self.complete_copied();
        self.complete.push_back(Ok(piece));
    }

    /// Appends an error, after which the body should end.
    pub(crate) fn fail(&mut self, error: Error) {
        self.complete_copied();
        self.complete.push_back(Err(error));
    }

    fn complete_copied(&mut self) {
        if !self.copied.is_empty() {
            self.complete.push_back(Ok(self.copied.split().freeze()));
        }
    }
}

/// Combines small pieces that are available at the same time. Each piece of a body is a separate chunk on the wire,
/// which costs more than copying a kilobyte. The stream ends after the first error.
pub fn gathered<S>(mut pieces: S) -> impl Stream<Item = Result<Bytes>> + use<S>
where
    S: Stream<Item = Result<Bytes>> + Unpin,
{
    gather(move |cx, gatherer| {
        pieces.poll_next_unpin(cx).map(|piece| match piece {
            Some(Ok(piece)) => {
                match piece.len() < COPY_BELOW_BYTES {
                    true => gatherer.push_short(&piece),
                    false => gatherer.push_long(piece),
                }
                ControlFlow::Continue(())
            }
            Some(Err(error)) => {
                gatherer.fail(error);
                ControlFlow::Break(())
            }
            None => ControlFlow::Break(()),
        })
    })
}

/// Returns the pieces that `put_next` appends, combined, until it breaks. Pieces do not wait for one that is not
/// available yet.
pub(crate) fn gather<F>(mut put_next: F) -> impl Stream<Item = Result<Bytes>> + use<F>
where
    F: FnMut(&mut Context<'_>, &mut Gatherer) -> Poll<ControlFlow<()>>,
{
    let mut gatherer = Gatherer::default();
    let mut has_ended = false;
    stream::poll_fn(move |cx| {
        loop {
            if let Some(piece) = gatherer.complete.pop_front() {
                return Poll::Ready(Some(piece));
            }
            if has_ended {
                return Poll::Ready(None);
            }
            match put_next(cx, &mut gatherer) {
                Poll::Ready(ControlFlow::Continue(())) => continue,
                Poll::Ready(ControlFlow::Break(())) => has_ended = true,
                Poll::Pending if gatherer.copied.is_empty() && gatherer.complete.is_empty() => return Poll::Pending,
                Poll::Pending => {}
            }
            gatherer.complete_copied();
        }
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn pieces_of(lengths: &[usize]) -> Vec<Result<Bytes>> {
        lengths.iter().enumerate().map(|(index, length)| Ok(vec![index as u8; *length].into())).collect()
    }

    fn lengths_of(pieces: &[Result<Bytes>]) -> Vec<usize> {
        pieces.iter().map(|piece| piece.as_ref().map_or(0, Bytes::len)).collect()
    }

    #[test]
    fn short_pieces_are_combined_and_long_ones_are_not_copied() {
        let pieces = pieces_of(&[512, 300, 20_000, 0, 1_000]);
        let long = pieces[2].as_ref().unwrap().as_ptr();
        let all = pieces.iter().flatten().flatten().copied().collect::<Vec<u8>>();
        let combined = gathered(stream::iter(pieces)).collect::<Vec<_>>().now_or_never().unwrap();
        assert_eq!(lengths_of(&combined), [812, 20_000, 1_000]);
        assert_eq!(combined[1].as_ref().unwrap().as_ptr(), long);
        assert_eq!(combined.iter().flatten().flatten().copied().collect::<Vec<u8>>(), all);

        let many = gathered(stream::iter(pieces_of(&[1_000; 200]))).collect::<Vec<_>>().now_or_never().unwrap();
        assert_eq!(lengths_of(&many), [66_000, 66_000, 66_000, 2_000]);
    }

    #[test]
    fn pieces_do_not_wait_for_later_ones_and_end_after_an_error() {
        let pieces = stream::iter(pieces_of(&[10, 20])).chain(stream::pending());
        let mut waiting = Box::pin(gathered(Box::pin(pieces)));
        assert_eq!(waiting.next().now_or_never().unwrap().unwrap().unwrap().len(), 30);
        assert!(waiting.next().now_or_never().is_none());

        let failed = pieces_of(&[10]).into_iter().chain([Err(Error::internal("it failed"))]).chain(pieces_of(&[10]));
        let failed = gathered(stream::iter(failed)).collect::<Vec<_>>().now_or_never().unwrap();
        assert_eq!(lengths_of(&failed), [10, 0]);
        assert!(failed[1].is_err());
    }
}

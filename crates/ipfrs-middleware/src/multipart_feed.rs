//! Input of a parser of multipart bodies, with bounded memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::Error;

use crate::request_memory::RequestMemory;

/// Bytes that the parser is given before it must process them.
const FEED_BYTES: usize = 256 * 1024;

/// Maximum number of bytes without a part or a piece of one; a longer run is not a multipart body. Before the first
/// boundary, and in the head of a part, the parser would otherwise buffer everything.
const MAX_UNCLAIMED_BYTES: usize = 1024 * 1024;

/// Input of the parser, with limits. The parser buffers all data that is ready. This therefore pauses until the
/// parser has processed its buffer as far as possible, and whenever the parser has received 256 KiB. The
/// parser also considers a body cut off if it receives the first bytes and the end in one poll, so this separates
/// the two.
#[derive(Debug)]
pub struct MultipartFeed<S> {
    body: S,
    /// Number of parts and pieces of parts that the parser has returned.
    claims: Arc<AtomicUsize>,
    /// Value of `claims` at the last poll.
    seen_claims: usize,
    /// Bytes given to the parser since the last claim.
    unclaimed: usize,
    /// Memory reserved for those bytes, which the parser buffers.
    memory: RequestMemory,
    has_paused: bool,
    /// Whether the parser received data since it last paused.
    has_fed: bool,
    has_ended: bool,
}

impl<S, E> MultipartFeed<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    /// Creates the input from a body. The reader adds 1 to `claims` for each part, and for each piece of a part, that
    /// the parser returns. `memory` is that of the bytes that the parser holds.
    pub fn new(body: S, claims: Arc<AtomicUsize>, memory: RequestMemory) -> Self {
        Self { body, claims, seen_claims: 0, unclaimed: 0, memory, has_paused: false, has_fed: false, has_ended: false }
    }

    fn pause<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        (self.has_paused, self.has_fed) = (true, false);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S, E> Stream for MultipartFeed<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Item = Result<Bytes, Box<dyn std::error::Error + Send + Sync>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let claims = self.claims.load(Ordering::Relaxed);
        if claims != self.seen_claims {
            // The buffer may contain more small parts.
            (self.seen_claims, self.unclaimed) = (claims, 0);
            return self.pause(cx);
        }
        if self.unclaimed >= FEED_BYTES && !std::mem::take(&mut self.has_paused) {
            return self.pause(cx);
        }
        if self.unclaimed > MAX_UNCLAIMED_BYTES {
            let why = format!("the multipart body has no part within {MAX_UNCLAIMED_BYTES} bytes: check the boundary");
            return Poll::Ready(Some(Err(Error::too_large(why).into())));
        }
        if !self.has_ended {
            let Poll::Ready(piece) = self.body.poll_next_unpin(cx) else {
                self.has_fed = false;
                return Poll::Pending;
            };
            if let Some(piece) = piece {
                self.has_fed = true;
                self.unclaimed += piece.as_ref().map_or(0, Bytes::len);
                let unclaimed = self.unclaimed;
                if let Err(error) = self.memory.grow_to(unclaimed) {
                    return Poll::Ready(Some(Err(error.into())));
                }
                return Poll::Ready(Some(piece.map_err(Into::into)));
            }
            self.has_ended = true;
        }
        if self.has_fed { self.pause(cx) } else { Poll::Ready(None) }
    }
}

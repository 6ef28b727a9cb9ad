//! A body of known size, in pieces.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_rpc::client::Body;

/// Smaller pieces are copied together, because sending each separately costs more than copying.
const GATHER_BELOW_BYTES: usize = 8 * 1024;

/// Size at which the combined bytes become a piece.
const GATHERED_BYTES: usize = 256 * 1024;

/// Pieces of a body. Large ones are not copied.
#[derive(Debug, Default)]
pub(super) struct Sized {
    pieces: VecDeque<Bytes>,
    gathered: BytesMut,
    bytes: u64,
}

impl Sized {
    pub(super) fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len() as u64;
        if piece.len() < GATHER_BELOW_BYTES {
            if self.gathered.is_empty() {
                self.gathered.reserve(GATHERED_BYTES + GATHER_BELOW_BYTES);
            }
            self.gathered.extend_from_slice(&piece);
            if self.gathered.len() >= GATHERED_BYTES {
                self.close();
            }
        } else {
            self.close();
            self.pieces.push_back(piece);
        }
    }

    fn close(&mut self) {
        if !self.gathered.is_empty() {
            self.pieces.push_back(self.gathered.split().freeze());
        }
    }

    pub(super) fn into_body(mut self) -> Body {
        self.close();
        Body::wrap(self)
    }
}

impl HttpBody for Sized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(|piece| {
            self.bytes -= piece.len() as u64;
            Ok(Frame::data(piece))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

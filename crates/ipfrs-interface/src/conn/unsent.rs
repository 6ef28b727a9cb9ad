//! Responses that the fast path has begun to send.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use ipfrs_stream::Socket;
use tokio::io::AsyncWrite;

use super::direct::Complete;

/// The rest of a response.
pub(super) struct Unsent {
    head: Bytes,
    bytes: Bytes,
    /// Pieces after `bytes`.
    more: Vec<Bytes>,
    /// The body that the pieces came from, unless the response is cached. It fails if its request permit is revoked.
    body: Option<Body>,
}

/// Sends a response. Returns the rest that the socket does not accept at once.
pub(super) fn send(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    head: &[u8],
    complete: Complete,
) -> io::Result<Option<Box<Unsent>>> {
    let length = complete.length();
    let Complete { bytes, more, body } = complete;
    let sent_bytes = match poll_write(socket, cx, head, &bytes, &more) {
        Poll::Ready(sent_bytes) => sent_bytes?,
        Poll::Pending => 0,
    };
    if sent_bytes == head.len() + length {
        return Ok(None);
    }
    let in_head = sent_bytes.min(head.len());
    let head = Bytes::copy_from_slice(&head[in_head..]);
    let mut unsent = Unsent { head, bytes, more, body };
    unsent.advance(sent_bytes - in_head);
    Ok(Some(Box::new(unsent)))
}

/// Writes a part of the slices and returns its length in bytes.
fn poll_write(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    head: &[u8],
    bytes: &[u8],
    more: &[Bytes],
) -> Poll<io::Result<usize>> {
    let slices = [IoSlice::new(head), IoSlice::new(bytes)];
    if more.is_empty() {
        return Pin::new(socket).poll_write_vectored(cx, &slices);
    }
    let slices: Vec<_> = slices.into_iter().chain(more.iter().map(|piece| IoSlice::new(piece))).collect();
    Pin::new(socket).poll_write_vectored(cx, &slices)
}

impl Unsent {
    /// Creates a response that consists of `head`.
    pub(super) fn new(head: Bytes) -> Self {
        Self { head, bytes: Bytes::new(), more: Vec::new(), body: None }
    }

    /// Sends the rest.
    ///
    /// # Errors
    /// Returns the error of the socket, or that of a revoked request permit.
    pub(super) fn poll_send(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_sent() {
            if let Some(body) = &mut self.body
                && let Poll::Ready(Some(Err(error))) = Pin::new(body).poll_frame(cx)
            {
                return Poll::Ready(Err(io::Error::other(error)));
            }
            let sent_bytes = ready!(poll_write(socket, cx, &self.head, &self.bytes, &self.more))?;
            if sent_bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(sent_bytes);
        }
        Poll::Ready(Ok(()))
    }

    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.bytes.is_empty() && self.more.iter().all(Bytes::is_empty)
    }

    /// Removes the first `sent_bytes`.
    fn advance(&mut self, mut sent_bytes: usize) {
        for piece in [&mut self.head, &mut self.bytes].into_iter().chain(&mut self.more) {
            let sent = piece.split_to(sent_bytes.min(piece.len()));
            sent_bytes -= sent.len();
        }
    }
}

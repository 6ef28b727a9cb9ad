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
    /// The body that `bytes` came from, unless the response is cached. It fails if its request permit is revoked.
    body: Option<Body>,
}

/// Sends a response. Returns the rest that the socket does not accept at once.
pub(super) fn send(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    head: &[u8],
    complete: Complete,
) -> io::Result<Option<Box<Unsent>>> {
    let Complete { bytes, body } = complete;
    let slices = [IoSlice::new(head), IoSlice::new(&bytes)];
    let sent_bytes = match Pin::new(socket).poll_write_vectored(cx, &slices) {
        Poll::Ready(sent_bytes) => sent_bytes?,
        Poll::Pending => 0,
    };
    if sent_bytes == head.len() + bytes.len() {
        return Ok(None);
    }
    let in_head = sent_bytes.min(head.len());
    let head = Bytes::copy_from_slice(&head[in_head..]);
    Ok(Some(Box::new(Unsent { head, bytes: bytes.slice(sent_bytes - in_head..), body })))
}

impl Unsent {
    /// Creates a response that consists of `head`.
    pub(super) fn new(head: Bytes) -> Self {
        Self { head, bytes: Bytes::new(), body: None }
    }

    /// Sends the rest.
    ///
    /// # Errors
    /// Returns the error of the socket, or that of a revoked request permit.
    pub(super) fn poll_send(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !(self.head.is_empty() && self.bytes.is_empty()) {
            if let Some(body) = &mut self.body
                && let Poll::Ready(Some(Err(error))) = Pin::new(body).poll_frame(cx)
            {
                return Poll::Ready(Err(io::Error::other(error)));
            }
            let slices = [IoSlice::new(&self.head), IoSlice::new(&self.bytes)];
            let sent_bytes = ready!(Pin::new(&mut *socket).poll_write_vectored(cx, &slices))?;
            if sent_bytes == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let in_head = sent_bytes.min(self.head.len());
            drop(self.head.split_to(in_head));
            drop(self.bytes.split_to(sent_bytes - in_head));
        }
        Poll::Ready(Ok(()))
    }
}

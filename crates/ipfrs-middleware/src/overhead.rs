//! Limit on the frames of a connection that cost a server work but carry no data. The libraries of HTTP/2 and
//! WebSockets bound the memory for such frames, not their number.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Number of overhead bytes that a client may always send.
const FREE_BYTES: u64 = 1 << 20;
/// Number of further overhead bytes for each second of the connection, so that a client may send pings for weeks.
const FREE_BYTES_PER_SECOND: u64 = 4096;
/// Number of further overhead bytes for each byte of data in either direction. HTTP/2 clients send a WINDOW_UPDATE of
/// 13 bytes for messages of 20 bytes at most.
const FREE_BYTES_PER_DATA_BYTE: u64 = 4;

/// Reason for the end of a connection.
pub const FLOODED: &str = "the client sends far more control frames and empty frames than data";

/// Parser of the heads of frames.
pub trait FrameHeads {
    /// Adds the frames that begin in the next bytes of the client to `bytes`.
    fn receive(&mut self, read: &[u8], bytes: &mut FrameBytes);
}

/// Bytes of a connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FrameBytes {
    /// Number of bytes received that carry no data.
    pub overhead: u64,
    /// Number of other bytes received, and of all bytes sent.
    pub data: u64,
    /// Number of sent bytes that only acknowledge overhead.
    pub acknowledging: u64,
}

impl FrameBytes {
    /// Returns the number of overhead bytes beyond what the data allows.
    fn excess(&self) -> u64 {
        let data = self.data.saturating_sub(self.acknowledging);
        self.overhead.saturating_sub(FREE_BYTES.saturating_add(FREE_BYTES_PER_DATA_BYTE.saturating_mul(data)))
    }
}

/// A socket whose reads fail once the client has sent far more overhead than data.
#[derive(Debug)]
pub struct CountedSocket<S, H> {
    socket: S,
    heads: H,
    bytes: FrameBytes,
    since: Instant,
    is_flooded: bool,
}

impl<S, H> CountedSocket<S, H> {
    /// Counts the frames of a connection that began at `since`.
    pub fn new(socket: S, heads: H, since: Instant) -> Self {
        Self { socket, heads, bytes: FrameBytes::default(), since, is_flooded: false }
    }

    /// Whether reads fail.
    pub fn is_flooded(&self) -> bool {
        self.is_flooded
    }
}

impl<S: AsyncRead + Unpin, H: FrameHeads + Unpin> AsyncRead for CountedSocket<S, H> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        this.heads.receive(&buf.filled()[before..], &mut this.bytes);
        let excess = this.bytes.excess();
        // Bytes that are sent afterwards, such as a close frame, do not reset this.
        this.is_flooded |= excess > 0 && excess > this.since.elapsed().as_secs().saturating_mul(FREE_BYTES_PER_SECOND);
        if this.is_flooded { Poll::Ready(Err(io::Error::other(FLOODED))) } else { Poll::Ready(Ok(())) }
    }
}

impl<S: AsyncWrite + Unpin, H: Unpin> AsyncWrite for CountedSocket<S, H> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.bytes.data = self.bytes.data.saturating_add(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, slices))?;
        self.bytes.data = self.bytes.data.saturating_add(written as u64);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_allows_overhead_and_acknowledgements_do_not() {
        let flood = FrameBytes { overhead: FREE_BYTES + 1_000, data: 500, acknowledging: 500 };
        assert_eq!(flood.excess(), 1_000);
        assert_eq!(FrameBytes { data: 500 + 200, ..flood }.excess(), 200);
        assert_eq!(FrameBytes { data: 500 + 250, ..flood }.excess(), 0);
        assert_eq!(FrameBytes { overhead: FREE_BYTES, data: 0, acknowledging: u64::MAX }.excess(), 0);
    }
}

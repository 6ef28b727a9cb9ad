//! Count of the HTTP/2 frames that cost a server work but carry no request (RFC 9113, 10.5). h2 bounds the memory for
//! them, not their number.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ipfrs_stream::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::fast_path::PREFACE;

/// Number of bytes in the head of a frame (RFC 9113, 4.1).
const HEAD_BYTES: usize = 9;
/// Number of bytes in the acknowledgement of a PING and of a SETTINGS frame.
const PING_ACK_BYTES: u64 = 17;
const SETTINGS_ACK_BYTES: u64 = 9;

/// Number of overhead bytes that a client may always send.
const FREE_BYTES: u64 = 1 << 20;
/// Number of further overhead bytes for each second of the connection, so that a client may send PINGs for weeks.
const FREE_BYTES_PER_SECOND: u64 = 4096;
/// Number of further overhead bytes for each byte of requests and responses. Clients send a WINDOW_UPDATE of 13 bytes
/// for messages of 20 bytes at most.
const FREE_BYTES_PER_PAYLOAD_BYTE: u64 = 4;

/// The socket of an HTTP/2 connection. Reads fail once the client has sent far more overhead than payload.
#[derive(Debug)]
pub(crate) struct FramedSocket {
    socket: Socket,
    frames: Frames,
    since: Instant,
}

impl FramedSocket {
    pub(crate) fn new(socket: Socket, since: Instant) -> Self {
        Self { socket, frames: Frames::default(), since }
    }
}

impl AsyncRead for FramedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        this.frames.receive(&buf.filled()[before..]);
        if this.frames.excess() > 0 {
            let free_bytes = this.since.elapsed().as_secs().saturating_mul(FREE_BYTES_PER_SECOND);
            if this.frames.excess() > free_bytes {
                return Poll::Ready(Err(io::Error::other("the client sends far more HTTP/2 overhead than payload")));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FramedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.frames.send(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, slices))?;
        self.frames.send(written);
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

/// The frames of a connection, by their bytes.
#[derive(Debug)]
struct Frames {
    /// Number of remaining bytes of the preface or of the payload of the current frame.
    remaining: usize,
    /// The beginning of the next head.
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// Number of bytes received in frames other than HEADERS and DATA, and in the heads of all frames.
    overhead: u64,
    /// Number of payload bytes received in HEADERS and DATA, and of all bytes sent.
    payload: u64,
    /// Number of sent bytes that only acknowledge overhead.
    acknowledging: u64,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            remaining: PREFACE.len(),
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            overhead: 0,
            payload: 0,
            acknowledging: 0,
        }
    }
}

impl Frames {
    fn receive(&mut self, mut read: &[u8]) {
        loop {
            let skipped = self.remaining.min(read.len());
            self.remaining -= skipped;
            read = &read[skipped..];
            if read.is_empty() {
                return;
            }
            let taken = (HEAD_BYTES - self.head_bytes).min(read.len());
            self.head[self.head_bytes..][..taken].copy_from_slice(&read[..taken]);
            self.head_bytes += taken;
            read = &read[taken..];
            if self.head_bytes == HEAD_BYTES {
                self.head_bytes = 0;
                self.begin_frame();
            }
        }
    }

    fn begin_frame(&mut self) {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const SETTINGS: u8 = 4;
        const PING: u8 = 6;
        let [high, middle, low, kind, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        self.remaining = length as usize;
        self.overhead += HEAD_BYTES as u64;
        match kind {
            DATA | HEADERS => self.payload += u64::from(length),
            PING => self.acknowledging += PING_ACK_BYTES,
            SETTINGS => self.acknowledging += SETTINGS_ACK_BYTES,
            _ => {}
        }
        if !matches!(kind, DATA | HEADERS) {
            self.overhead += u64::from(length);
        }
    }

    fn send(&mut self, bytes: usize) {
        self.payload += bytes as u64;
    }

    /// Returns the number of overhead bytes beyond what the payload allows.
    fn excess(&self) -> u64 {
        let payload = self.payload.saturating_sub(self.acknowledging);
        self.overhead.saturating_sub(FREE_BYTES + FREE_BYTES_PER_PAYLOAD_BYTE * payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u32) -> Vec<u8> {
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, 0, 0, 0, 0, 1]);
        frame.resize(HEAD_BYTES + length as usize, 0);
        frame
    }

    fn received(frames: &[Vec<u8>], piece: usize) -> Frames {
        let mut received = Frames::default();
        let bytes = [PREFACE, &frames.concat()].concat();
        bytes.chunks(piece).for_each(|piece| received.receive(piece));
        received
    }

    #[test]
    fn counts_frames_in_pieces_of_any_length() {
        let frames =
            [frame(4, 30), frame(1, 50), frame(8, 4), frame(0, 20_000), frame(0, 0), frame(6, 8), frame(99, 7)];
        for piece in [1, 2, 8, 9, 10, 33, 1000, 100_000] {
            let received = received(&frames, piece);
            assert_eq!(received.overhead, 7 * 9 + 30 + 4 + 8 + 7, "pieces of {piece}");
            assert_eq!((received.payload, received.acknowledging), (20_050, 17 + 9), "pieces of {piece}");
        }
    }

    #[test]
    fn acknowledgements_allow_no_overhead() {
        let mut pings = received(&vec![frame(6, 8); 100_000], 4096);
        for _ in 0..100_000 {
            pings.send(17);
        }
        assert_eq!(pings.excess(), 100_000 * 17 - (1 << 20));
        pings.send(200_000);
        assert_eq!(pings.excess(), 0);
    }
}

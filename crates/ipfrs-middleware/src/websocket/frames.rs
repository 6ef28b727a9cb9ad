//! Count of the WebSocket frames that cost a server work but carry no data (RFC 6455, 5.2): control frames and empty
//! ones. The library bounds the memory for them, not their number.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::takeover::Transport;

/// Maximum length of the head of a frame, in bytes.
const MAX_HEAD_BYTES: usize = 14;

/// Length of the head of the frame with which the server responds to a ping, in bytes.
const PONG_HEAD_BYTES: u64 = 2;

/// Number of overhead bytes that a client may always send.
const FREE_BYTES: u64 = 1 << 20;
/// Number of further overhead bytes for each second of the connection.
const FREE_BYTES_PER_SECOND: u64 = 4096;
/// Number of further overhead bytes for each byte of data that was received or sent.
const FREE_BYTES_PER_DATA_BYTE: u64 = 4;

/// Reason for the end of a connection.
pub(super) const FLOODED: &str = "the client sends far more control frames and empty frames than data";

/// The socket of a WebSocket connection. Reads fail once the client has sent far more overhead than data.
#[derive(Debug)]
pub(super) struct FramedSocket {
    socket: Box<dyn Transport>,
    frames: Frames,
    since: Instant,
    is_flooded: bool,
}

impl FramedSocket {
    pub(super) fn new(socket: Box<dyn Transport>) -> Self {
        Self { socket, frames: Frames::default(), since: Instant::now(), is_flooded: false }
    }

    /// Whether reads fail.
    pub(super) fn is_flooded(&self) -> bool {
        self.is_flooded
    }

    fn exceeds_limit(&self) -> bool {
        let excess = self.frames.excess();
        excess > 0 && excess > self.since.elapsed().as_secs().saturating_mul(FREE_BYTES_PER_SECOND)
    }
}

impl AsyncRead for FramedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.socket).poll_read(cx, buf))?;
        this.frames.receive(&buf.filled()[before..]);
        // What is sent afterwards, such as the close frame, allows nothing more.
        this.is_flooded |= this.exceeds_limit();
        if this.is_flooded { Poll::Ready(Err(io::Error::other(FLOODED))) } else { Poll::Ready(Ok(())) }
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
#[derive(Debug, Default)]
struct Frames {
    /// Number of remaining bytes of the payload of the current frame.
    remaining: u64,
    /// The beginning of the next head.
    head: [u8; MAX_HEAD_BYTES],
    head_bytes: usize,
    /// Number of bytes received in control frames and empty frames.
    overhead: u64,
    /// Number of bytes received in other frames, and of all bytes sent.
    data: u64,
    /// Number of sent bytes that only respond to pings.
    acknowledging: u64,
}

impl Frames {
    fn receive(&mut self, mut read: &[u8]) {
        loop {
            let skipped = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(read.len());
            self.remaining -= skipped as u64;
            read = &read[skipped..];
            let Some((first, rest)) = read.split_first() else { return };
            self.head[self.head_bytes] = *first;
            (self.head_bytes, read) = (self.head_bytes + 1, rest);
            if self.head_bytes == self.head_length() {
                self.begin_frame();
                self.head_bytes = 0;
            }
        }
    }

    /// Returns the length of the head of which the first bytes have arrived.
    fn head_length(&self) -> usize {
        const IS_MASKED: u8 = 0x80;
        let [_, second, ..] = self.head;
        if self.head_bytes < 2 {
            return 2;
        }
        let length = match second & !IS_MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if second & IS_MASKED == 0 { 0 } else { 4 }
    }

    fn begin_frame(&mut self) {
        const OPCODE: u8 = 0x0f;
        const IS_CONTROL: u8 = 0x08;
        const PING: u8 = 9;
        let [first, second, length @ ..] = &self.head;
        let extended = |bytes: usize| length[..bytes].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let payload = match second & 0x7f {
            126 => extended(2),
            127 => extended(8),
            short => u64::from(short),
        };
        self.remaining = payload;
        let frame = payload.saturating_add(self.head_bytes as u64);
        if first & IS_CONTROL != 0 || payload == 0 {
            self.overhead = self.overhead.saturating_add(frame);
        } else {
            self.data = self.data.saturating_add(frame);
        }
        if first & OPCODE == PING {
            self.acknowledging = self.acknowledging.saturating_add(PONG_HEAD_BYTES + payload);
        }
    }

    fn send(&mut self, bytes: usize) {
        self.data = self.data.saturating_add(bytes as u64);
    }

    /// Returns the number of overhead bytes beyond what the data allows.
    fn excess(&self) -> u64 {
        let data = self.data.saturating_sub(self.acknowledging);
        self.overhead.saturating_sub(FREE_BYTES.saturating_add(FREE_BYTES_PER_DATA_BYTE.saturating_mul(data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 0x81;
    const FRAGMENT: u8 = 0;
    const PING: u8 = 0x89;

    /// Returns a masked frame.
    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![first];
        match payload {
            0..126 => frame.push(0x80 | payload as u8),
            126..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend((payload as u16).to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 127);
                frame.extend((payload as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + 4 + payload, 0xff);
        frame
    }

    fn received(frames: &[Vec<u8>], piece: usize) -> Frames {
        let mut received = Frames::default();
        frames.concat().chunks(piece).for_each(|piece| received.receive(piece));
        received
    }

    #[test]
    fn counts_frames_in_pieces_of_any_length() {
        let frames =
            [frame(TEXT, 1), frame(PING, 5), frame(FRAGMENT, 0), frame(TEXT, 200), frame(TEXT, 70_000), frame(PING, 0)];
        for piece in [1, 2, 3, 7, 100, 100_000] {
            let received = received(&frames, piece);
            assert_eq!(received.overhead, 11 + 6 + 6, "pieces of {piece}");
            assert_eq!(received.data, 7 + 208 + 70_014, "pieces of {piece}");
            assert_eq!((received.acknowledging, received.remaining), (7 + 2, 0), "pieces of {piece}");
        }
    }

    #[test]
    fn floods_exceed_and_messages_of_a_byte_do_not() {
        let count = FREE_BYTES as usize / 6 + 10;
        assert!(received(&vec![frame(FRAGMENT, 0); count], 4096).excess() > 0);
        let mut pings = received(&vec![frame(PING, 0); count], 4096);
        (0..count).for_each(|_| pings.send(2));
        assert!(pings.excess() > 0, "responses to pings allow no overhead");
        assert_eq!(received(&vec![frame(TEXT, 1); 10 * count], 4096).excess(), 0);
        let answered: Vec<_> = (0..10 * count).map(|n| frame(if n % 3 == 0 { PING } else { TEXT }, 2)).collect();
        assert_eq!(received(&answered, 4096).excess(), 0);
    }
}

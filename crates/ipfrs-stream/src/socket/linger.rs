//! The end of a connection whose peer may still be sending.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// Time to wait for a silent peer to close.
const QUIET: Duration = Duration::from_secs(5);
/// Time to wait for a peer that keeps sending.
const LONGEST: Duration = Duration::from_secs(30);
/// Number of bytes to discard at once. A peer can send gigabytes, so that few calls matter more than a small buffer.
const PIECE_BYTES: usize = 64 * 1024;
/// Number of bytes that an HTTP/2 peer may still send. One that keeps to the window of the connection has less on the
/// way, so more is a flood.
const MOST_HTTP2_BYTES: u64 = 32 << 20;

/// Reads and discards the bytes that a peer sends after our last byte, until the peer has closed as well. If we
/// closed earlier, the kernel would respond to incoming bytes with a reset, which discards the data that it has not
/// sent yet (RFC 9112, 9.6).
#[derive(Debug)]
pub(crate) struct Linger {
    timer: Pin<Box<Sleep>>,
    end: Instant,
    /// Number of bytes that the peer may still send.
    left: u64,
}

impl Linger {
    /// Starts the wait. The sending side must already be shut down.
    pub(crate) fn new(is_http2: bool) -> Self {
        let now = Instant::now();
        let left = if is_http2 { MOST_HTTP2_BYTES } else { u64::MAX };
        Self { timer: Box::pin(sleep_until(now + QUIET)), end: now + LONGEST, left }
    }

    /// Returns `Ready` when the connection may be closed.
    pub(crate) fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [MaybeUninit::uninit(); PIECE_BYTES];
        loop {
            let mut buf = ReadBuf::uninit(&mut dropped);
            match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    // The timer is not polled while the peer sends faster than this loop reads, so the loop checks
                    // the end itself.
                    let now = Instant::now();
                    self.left = self.left.saturating_sub(buf.filled().len() as u64);
                    if now >= self.end || self.left == 0 {
                        return Poll::Ready(());
                    }
                    self.timer.as_mut().reset((now + QUIET).min(self.end));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.timer.as_mut().poll(cx),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (peer, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn linger_ends_for_peer_that_keeps_sending() {
        let (mut peer, mut stream) = connected().await;
        peer.write_all(&[0; 2 * PIECE_BYTES]).await.unwrap();
        stream.readable().await.unwrap();
        let mut linger = Linger { end: Instant::now(), ..Linger::new(false) };
        poll_fn(|cx| linger.poll(&mut stream, cx)).await;
        let left = stream.read(&mut [0; PIECE_BYTES]).await.unwrap();
        assert!(left > 0, "the rest of what it sent is still there");
    }

    #[tokio::test]
    async fn linger_ends_for_http2_peer_beyond_its_window() {
        for (is_http2, sends) in [(true, u64::MAX), (false, 2 * MOST_HTTP2_BYTES)] {
            let (mut peer, mut stream) = connected().await;
            // The peer gets an error once the connection is closed.
            let flood = tokio::spawn(async move {
                let mut sent = 0;
                while sent < sends && peer.write_all(&[0; PIECE_BYTES]).await.is_ok() {
                    sent += PIECE_BYTES as u64;
                }
                sent
            });
            let mut linger = Linger::new(is_http2);
            poll_fn(|cx| linger.poll(&mut stream, cx)).await;
            drop(stream);
            let (sent, left) = (flood.await.unwrap(), linger.left);
            assert_eq!((left == 0, sent >= MOST_HTTP2_BYTES), (is_http2, true), "{sent} bytes were sent");
        }
    }
}

//! The end of a connection whose peer may still be sending.

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

/// Reads and discards the bytes that a peer sends after our last byte, until the peer has closed as well. If we
/// closed earlier, the kernel would respond to incoming bytes with a reset, which discards the data that it has not
/// sent yet (RFC 9112, 9.6).
#[derive(Debug)]
pub(crate) struct Linger {
    timer: Pin<Box<Sleep>>,
    end: Instant,
}

impl Linger {
    /// Starts the wait. The sending side must already be shut down.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { timer: Box::pin(sleep_until(now + QUIET)), end: now + LONGEST }
    }

    /// Returns `Ready` when the connection may be closed.
    pub(crate) fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut dropped);
            match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    // The timer is not polled while the peer sends faster than this loop reads, so the loop checks
                    // the end itself.
                    let now = Instant::now();
                    if now >= self.end {
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

    #[tokio::test]
    async fn linger_ends_for_peer_that_keeps_sending() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        peer.write_all(&[0; 16 * 1024]).await.unwrap();
        stream.readable().await.unwrap();
        let now = Instant::now();
        let mut linger = Linger { timer: Box::pin(sleep_until(now + QUIET)), end: now };
        poll_fn(|cx| linger.poll(&mut stream, cx)).await;
        let left = stream.read(&mut [0; 16 * 1024]).await.unwrap();
        assert!(left > 0, "the rest of what it sent is still there");
    }
}

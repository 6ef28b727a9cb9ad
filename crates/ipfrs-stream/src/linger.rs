//! The end of a connection whose peer may still be sending.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a peer that says nothing is waited for.
const QUIET: Duration = Duration::from_secs(5);
/// How long one that goes on and on is.
const LONGEST: Duration = Duration::from_secs(30);

/// Takes what a peer sends after our last byte, and drops it, until the peer has closed as well. Closing before would answer
/// what comes in with a reset, which throws away what the kernel has not sent yet (RFC 9112, 9.6).
#[derive(Debug)]
pub(crate) struct Linger {
    timer: Pin<Box<Sleep>>,
    end: Instant,
}

impl Linger {
    /// Begins now, with the sending side shut.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { timer: Box::pin(sleep_until(now + QUIET)), end: now + LONGEST }
    }

    /// Ready when the connection may be closed.
    pub(crate) fn poll(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [0; 1024];
        loop {
            let mut buf = ReadBuf::new(&mut dropped);
            match Pin::new(&mut *stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    // Here and not by the timer alone, which nobody asks while more comes in than is read in a turn.
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
    async fn a_peer_that_sends_without_end_is_not_waited_for_longer_than_that() {
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

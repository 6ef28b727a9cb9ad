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
                    self.timer.as_mut().reset((Instant::now() + QUIET).min(self.end));
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.timer.as_mut().poll(cx),
            }
        }
    }
}

//! A TCP connection that sends slices of mapped files with `sendfile`, and counts its bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use ipfrs_store::Mappings;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::Bandwidth;

/// A TCP connection for servers that write blocks.
///
/// To its user it is a [`TcpStream`] with vectored writes. A slice that lies in one of the mapped files is not read by
/// this process: the kernel sends it from the page cache with `sendfile`. Everything else, and everything on systems
/// other than Linux, is written in the ordinary way.
///
/// The kernel refers to the file's pages until the peer has acknowledged them, so a mapped file must never change where
/// it was written once. Packs are append-only and are never truncated while they are mapped.
///
/// Where somebody else truncates a file all the same, slices that were taken of it before may show zeros
/// ([`Mappings::faults`]). Which of the bytes that are on their way are zeros nobody can tell, so every connection that was
/// there breaks off instead of writing any more.
///
/// `sendfile` to a connection that the peer has closed raises `SIGPIPE`. Rust programs and Python ignore it from the
/// start; a host written in C must do so itself.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    #[cfg(target_os = "linux")]
    mappings: Option<Mappings>,
    /// [`Mappings::faults`] when the connection began.
    #[cfg(target_os = "linux")]
    faults: u64,
    bandwidth: Bandwidth,
    /// What was read of the connection before, and not used.
    unread: Bytes,
    /// Whether bytes were written since the last shutdown of the sending side.
    is_sending: bool,
    /// Where the peer may not leave what is sent to it lying for ever.
    patience: Option<Patience>,
    /// Bytes written so far.
    written: u64,
}

/// How long a peer may take nothing.
#[derive(Debug)]
struct Patience {
    longest: Duration,
    /// Once the socket has been full. It is left running when there is progress, since it may be full thousands of times a
    /// second, and asked about that when it has run out.
    timer: Option<Pin<Box<Sleep>>>,
    /// [`Socket::written`] when the timer was set.
    written: u64,
}

impl Patience {
    /// Waits until the peer has taken nothing for the longest time, at most twice that.
    fn poll(&mut self, cx: &mut Context<'_>, written: u64) -> Poll<io::Error> {
        let longest = self.longest;
        let timer = self.timer.get_or_insert_with(|| {
            self.written = written;
            Box::pin(sleep(longest))
        });
        while timer.as_mut().poll(cx).is_ready() {
            if self.written == written {
                let seconds = longest.as_secs();
                let why = format!("the peer has taken nothing of what is sent to it for {seconds} s");
                return Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            self.written = written;
            timer.as_mut().reset(Instant::now() + longest);
        }
        Poll::Pending
    }
}

impl Socket {
    /// Wraps a connection. `mappings` are those of the store whose blocks are sent; without them every slice is copied.
    /// The caller sets socket options such as `TCP_NODELAY`.
    #[must_use]
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux sends from mapped files"))]
    pub fn new(stream: TcpStream, mappings: Option<Mappings>, bandwidth: Bandwidth) -> Self {
        Self {
            stream,
            #[cfg(target_os = "linux")]
            faults: mappings.as_ref().map_or(0, Mappings::faults),
            #[cfg(target_os = "linux")]
            mappings,
            bandwidth,
            unread: Bytes::new(),
            is_sending: false,
            patience: None,
            written: 0,
        }
    }

    /// The same, but a write fails with [`io::ErrorKind::TimedOut`] when the peer has taken nothing for `longest`, or somewhat
    /// later. It costs nothing while the peer keeps up.
    #[must_use]
    pub fn with_write_timeout(mut self, longest: Duration) -> Self {
        self.patience = Some(Patience { longest, timer: None, written: 0 });
        self
    }

    /// The same, but `bytes` are read first: what a protocol that ended on this connection has read beyond its end.
    #[must_use]
    pub fn with_unread(mut self, bytes: Bytes) -> Self {
        self.unread = bytes;
        self
    }

    #[cfg(target_os = "linux")]
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        use std::os::fd::AsFd;

        let mappings = self.mappings.as_ref();
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            let mut sent = 0;
            let outcome = self.stream.try_io(tokio::io::Interest::WRITABLE, || {
                // Until the kernel has taken what it takes, nothing that the slices show turns to zeros.
                let _sending = match mappings {
                    Some(mappings) => Some(mappings.sending(self.faults).ok_or_else(lost_bytes)?),
                    None => None,
                };
                let locate = |slice| mappings.and_then(|mappings| mappings.locate(slice));
                crate::sendfile::send(self.stream.as_fd(), slices, locate, &mut sent)
            });
            match outcome {
                // An error after progress is met again by the next call. `WouldBlock` after progress has told the
                // runtime to wait for room, which saves that call.
                _ if sent > 0 => return Poll::Ready(Ok(sent)),
                Ok(()) => return Poll::Ready(Ok(0)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

#[cfg(target_os = "linux")]
fn lost_bytes() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a pack was truncated while an answer was on its way: it may be wrong")
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let some = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread.split_to(some));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.bandwidth.add_in((buf.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Poll::Ready(outcome) = this.poll_send(cx, slices) else {
            let Some(patience) = &mut this.patience else { return Poll::Pending };
            return patience.poll(cx, this.written).map(Err);
        };
        let sent = outcome?;
        self.bandwidth.add_out(sent as u64);
        self.written += sent as u64;
        self.is_sending = true;
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_sending = false;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    /// A connection that is dropped without a shutdown broke off in an answer: closing it with a reset tells so, where the
    /// ordinary end could be taken for the end of the content (HTTP/1.0, and everything that is read until it closes).
    fn drop(&mut self) {
        if self.is_sending {
            // A socket that is gone already needs no reset.
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

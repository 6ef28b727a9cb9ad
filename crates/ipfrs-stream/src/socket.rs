//! A TCP connection that sends slices of mapped files with `sendfile`, and counts its bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use ipfrs_store::Mappings;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::linger::Linger;
use crate::{Bandwidth, Traffic};

/// What a client of HTTP/2 begins with, as far as it tells (RFC 9113, 3.4).
const HTTP_2: &[u8] = b"PRI ";

/// Longest write of HTTP/2 that is held: a frame's head and some kilobytes.
const HELD_PIECE_BYTES: usize = 4 * 1024;
/// Most bytes that are held.
const HELD_BYTES: usize = 64 * 1024;

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
/// Each push of a part of an answer wakes the peer up, so while more of a large answer follows at once the socket is corked (`TCP_CORK`, tcp(7)):
/// the kernel sends full segments only. [`Traffic`] says whether more follows; where it does not, the next flush takes the cork
/// out, and what is left goes out at once. HTTP/2 is never corked: its frames are small, and many answers share the socket.
///
/// What is written to a client of HTTP/2 in short pieces leaves together: the task of the connection writes whenever one of its
/// streams has a frame, and would cost a system call for each answer. Short pieces are kept until the task is polled again,
/// which it is after all streams that are ready, and then sent.
///
/// A client of HTTP/2 sends while it is answered, if only to say how much it has taken, and so does one of HTTP/1.1 that asks for
/// more than it is answered. So after the last byte of such a connection, shutting it down waits for the client to close, for some
/// seconds at most: what it had not taken yet would be lost otherwise.
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
    traffic: Traffic,
    /// Whether the kernel keeps back what fills no segment.
    #[cfg(target_os = "linux")]
    is_corked: bool,
    /// What was read of the connection before, and not used.
    unread: Bytes,
    /// Whether short pieces of HTTP/2 are held.
    holds: bool,
    /// Those that are sent when the connection is read from the next time, for which its task is woken.
    held: Vec<u8>,
    /// Whether bytes were written since the last shutdown of the sending side.
    is_sending: bool,
    /// Whether the peer speaks HTTP/2; `None` before it has said anything.
    is_http2: Option<bool>,
    /// Once the sending side is shut.
    linger: Option<Linger>,
    /// Whether the peer may still be sending a request that is not read any further.
    expects_more: bool,
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
            traffic: Traffic::default(),
            #[cfg(target_os = "linux")]
            is_corked: false,
            unread: Bytes::new(),
            holds: true,
            held: Vec::new(),
            is_sending: false,
            is_http2: None,
            linger: None,
            expects_more: false,
        }
    }

    /// The same, but short pieces of HTTP/2 are sent at once: for clients whose own work goes on while other answers are made.
    #[must_use]
    pub fn sending_at_once(mut self) -> Self {
        self.holds = false;
        self
    }

    /// What this socket and whoever makes the answers tell each other.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Whether there is something to read, the end of the connection included. Asks the kernel, and does not wait.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        use rustix::net::RecvFlags;

        let seen = rustix::net::recv(&self.stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        seen != Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Gives the peer up when it has taken nothing of what was sent to it for `longest`: reads and writes then fail with
    /// [`io::ErrorKind::TimedOut`]. The kernel keeps the time (`TCP_USER_TIMEOUT`, tcp(7)), since it alone sees whether the
    /// peer takes what is in the socket's buffer. Systems other than Linux do not have it; of Linux before 5.11, a peer that
    /// answers and takes nothing is not given up.
    ///
    /// # Errors
    /// What the kernel says, where it has no such option.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has it"))]
    pub fn set_write_timeout(&self, longest: Duration) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let milliseconds = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&self.stream, milliseconds)?;
        }
        Ok(())
    }

    /// The same, but `bytes` are read first: what a protocol that ended on this connection has read beyond its end.
    #[must_use]
    pub fn with_unread(mut self, bytes: Bytes) -> Self {
        self.unread(bytes);
        self.is_http2 = None;
        self
    }

    /// Takes back `bytes`, which were the last that were read, and are read again.
    pub fn unread(&mut self, bytes: Bytes) {
        // What is left of a buffer that was read to its end would keep the whole of it.
        if bytes.is_empty() {
            return;
        }
        // Whoever had them may itself have begun with bytes like these, and not have taken all of them.
        self.unread = if self.unread.is_empty() { bytes } else { [&*bytes, &*self.unread].concat().into() };
        self.is_http2 = None;
    }

    /// Notes that the peer may be in the middle of a request that is not read any further. The shutdown then waits for
    /// the peer to close, within bounds: what comes in behind a close makes the kernel send a reset, which destroys the
    /// response.
    pub fn expect_more(&mut self) {
        self.expects_more = true;
    }

    /// Reads as [`AsyncRead::poll_read`] does. Of bytes that were [taken back](Self::unread), at most `most` are read;
    /// of those that arrive, the caller takes back what it has no use for.
    ///
    /// # Errors
    /// The errors of the connection.
    pub fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        most: usize,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let some = self.unread.len().min(buf.remaining()).min(most);
            let some = self.unread.split_to(some);
            self.note_protocol(&some);
            buf.put_slice(&some);
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(sent) = self.poll_held(cx) {
            sent?;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        self.note_protocol(read);
        self.bandwidth.add_in(read.len() as u64);
        Poll::Ready(Ok(()))
    }

    /// Corks the socket when among `slices` is one that is long enough to be sent from its file, and more follows.
    #[cfg(target_os = "linux")]
    fn cork(&mut self, slices: &[IoSlice<'_>]) {
        if self.is_corked || self.is_http2 == Some(true) || !self.traffic.more_follows() {
            return;
        }
        let is_large = slices.iter().any(|slice| slice.len() >= crate::sendfile::SENDFILE_MIN_BYTES);
        // Without it the answer costs more, and is the same.
        self.is_corked = is_large && rustix::net::sockopt::set_tcp_cork(&self.stream, true).is_ok();
    }

    /// Lets everything go that the kernel has.
    fn uncork(&mut self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if std::mem::take(&mut self.is_corked) {
            rustix::net::sockopt::set_tcp_cork(&self.stream, false)?;
        }
        Ok(())
    }

    /// Keeps `slices` for the next [`Self::poll_held`], where they are short, the peer speaks HTTP/2, and there is room; gives how
    /// many bytes they are.
    fn hold(&mut self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Option<usize> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let is_held = self.holds && self.is_http2 == Some(true) && bytes <= HELD_PIECE_BYTES;
        if !is_held || self.held.len() + bytes > HELD_BYTES {
            return None;
        }
        if self.held.is_empty() {
            // The task goes behind all that are ready now.
            cx.waker().wake_by_ref();
            self.held.reserve_exact(HELD_BYTES);
        }
        slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
        Some(bytes)
    }

    /// Sends what is held.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let mut held = std::mem::take(&mut self.held);
            let polled = self.poll_send(cx, &[IoSlice::new(&held)]);
            if let Poll::Ready(Ok(sent)) = polled {
                held.drain(..sent);
                self.bandwidth.add_out(sent as u64);
            }
            self.held = held;
            if ready!(polled)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        // A connection that is idle keeps no room for it.
        self.held = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Looks at what the peer says first.
    fn note_protocol(&mut self, read: &[u8]) {
        if self.is_http2.is_none() && !read.is_empty() {
            self.is_http2 = Some(read.starts_with(HTTP_2));
        }
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
        self.poll_read_at_most(cx, buf, usize::MAX)
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
        self.is_sending = true;
        if let Some(bytes) = self.hold(cx, slices) {
            return Poll::Ready(Ok(bytes));
        }
        ready!(self.poll_held(cx))?;
        #[cfg(target_os = "linux")]
        self.cork(slices);
        let sent = ready!(self.poll_send(cx, slices))?;
        self.bandwidth.add_out(sent as u64);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Done also while short pieces are held, which the task has been woken to send.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.traffic.more_follows() {
            self.uncork()?;
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_held(cx))?;
        let has_sent = std::mem::take(&mut this.is_sending);
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        // Where nothing was sent, nothing can be lost. But a protocol that ended on this connection has shut it down before, and has
        // left what it read of another request: then something was sent.
        let is_answered_amid = has_sent && (this.is_http2 == Some(true) || this.expects_more || this.has_arrived());
        if is_answered_amid || !this.unread.is_empty() || this.linger.is_some() {
            ready!(this.linger.get_or_insert_with(Linger::new).poll(&mut this.stream, cx));
        }
        Poll::Ready(Ok(()))
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

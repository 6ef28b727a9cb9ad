//! A TCP connection that sends slices of mapped files with `sendfile` and counts its bytes.

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

/// Prefix of the HTTP/2 client preface that identifies the protocol (RFC 9113, 3.4).
const HTTP_2: &[u8] = b"PRI ";

/// Longest HTTP/2 write that is held, in bytes: a frame header and a few kilobytes.
const HELD_PIECE_BYTES: usize = 4 * 1024;
/// Most bytes that are held.
const HELD_BYTES: usize = 64 * 1024;

/// A TCP connection for servers that write blocks.
///
/// The socket behaves like a [`TcpStream`] with vectored writes. This process does not read a slice of a mapped file:
/// the kernel sends it from the page cache with `sendfile`. All other slices, and all slices on systems other than
/// Linux, are written in the ordinary way.
///
/// The kernel refers to the pages of the file until the peer has acknowledged them, so bytes of a mapped file must
/// never change once written. Packs are append-only and are never truncated while they are mapped.
///
/// If another process truncates a file nevertheless, existing slices of it may read as zeros ([`Mappings::faults`]).
/// The process cannot tell which of the bytes in flight are zeros. Every connection that existed at that time
/// therefore fails instead of writing more.
///
/// Each push of a part of a response wakes the peer. While more of a large response follows without waiting, the
/// socket is therefore corked (`TCP_CORK`, tcp(7)), and the kernel sends only full segments. [`Traffic`] says whether
/// more follows. If it does not, the next flush removes the cork, and the kernel sends the rest at once. HTTP/2
/// connections are never corked, because their frames are small and many responses share the socket.
///
/// Short writes to an HTTP/2 client are combined. The connection task writes whenever one of its streams has a frame,
/// which would cost a system call for each response. The socket holds short writes until the task is polled again,
/// which happens after all ready streams have been polled, and then sends them together.
///
/// An HTTP/2 client sends during a response, for example window updates, and so does an HTTP/1.1 client that
/// pipelines requests. After the last byte of such a connection, shutdown therefore waits a few seconds at most for
/// the client to close. Otherwise the bytes that the client had not received yet would be lost.
///
/// `sendfile` to a connection that the peer has closed raises `SIGPIPE`. Rust programs and Python ignore this signal
/// by default; a host program written in C must ignore it explicitly.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    #[cfg(target_os = "linux")]
    mappings: Option<Mappings>,
    /// The value of [`Mappings::faults`] when the connection began.
    #[cfg(target_os = "linux")]
    faults: u64,
    bandwidth: Bandwidth,
    traffic: Traffic,
    /// Whether the socket is corked, so that the kernel holds back partial segments.
    #[cfg(target_os = "linux")]
    is_corked: bool,
    /// Bytes that were read from the connection but not used.
    unread: Bytes,
    /// Whether short HTTP/2 writes are held.
    holds: bool,
    /// Held bytes. They are sent at the next read from the connection; the task has been woken for it.
    held: Vec<u8>,
    /// Whether bytes were written since the last shutdown of the sending side.
    is_sending: bool,
    /// Whether the peer speaks HTTP/2; `None` until its first bytes have been read.
    is_http2: Option<bool>,
    /// The wait for the peer to close. Set once the sending side is shut down.
    linger: Option<Linger>,
    /// Whether the peer may still be sending a request that is not read any further.
    expects_more: bool,
}

impl Socket {
    /// Wraps a connection. `mappings` are those of the store whose blocks are sent; without them, every slice is
    /// copied. The caller sets socket options such as `TCP_NODELAY`.
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

    /// Disables holding of short HTTP/2 writes. This suits clients that work on each response while the next ones are
    /// produced.
    #[must_use]
    pub fn sending_at_once(mut self) -> Self {
        self.holds = false;
        self
    }

    /// Returns the flag that this socket shares with the producer of its responses.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Returns whether the socket has data to read or has reached the end of the connection. Queries the kernel
    /// without waiting.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        use rustix::net::RecvFlags;

        let seen = rustix::net::recv(&self.stream, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        seen != Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Sets how long the peer may accept none of the bytes sent to it. After `longest`, reads and writes fail with
    /// [`io::ErrorKind::TimedOut`]. The kernel measures the time (`TCP_USER_TIMEOUT`, tcp(7)), because only the
    /// kernel sees whether the peer accepts the bytes in the socket buffer. The option exists only on Linux. Before
    /// Linux 5.11, it does not apply to a peer that acknowledges packets but accepts no data.
    ///
    /// # Errors
    /// Returns the error of the kernel if it does not support the option.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has it"))]
    pub fn set_write_timeout(&self, longest: Duration) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            let milliseconds = u32::try_from(longest.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&self.stream, milliseconds)?;
        }
        Ok(())
    }

    /// Makes the socket return `bytes` before any other data. The caller passes bytes that another protocol on this
    /// connection read beyond its end.
    #[must_use]
    pub fn with_unread(mut self, bytes: Bytes) -> Self {
        self.unread(bytes);
        self.is_http2 = None;
        self
    }

    /// Returns `bytes`, the last bytes that were read, to the socket, which reads them again.
    pub fn unread(&mut self, bytes: Bytes) {
        // An empty slice would keep the whole buffer alive.
        if bytes.is_empty() {
            return;
        }
        // A protocol that started with unread bytes may not have consumed all of them. The returned bytes precede the
        // rest.
        self.unread = if self.unread.is_empty() { bytes } else { [&*bytes, &*self.unread].concat().into() };
        self.is_http2 = None;
    }

    /// Records that the peer may be in the middle of a request that is not read any further. The shutdown then waits,
    /// within bounds, for the peer to close. Data that arrives after a close makes the kernel send a reset, which
    /// destroys the response.
    pub fn expect_more(&mut self) {
        self.expects_more = true;
    }

    /// Reads like [`AsyncRead::poll_read`]. At most `most` of the bytes that were [returned](Self::unread) are read.
    /// The limit does not apply to newly arriving bytes: the caller returns those that it cannot use.
    ///
    /// # Errors
    /// Returns the errors of the connection.
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

    /// Corks the socket if more data follows and one of `slices` is long enough to be sent from its file.
    #[cfg(target_os = "linux")]
    fn cork(&mut self, slices: &[IoSlice<'_>]) {
        if self.is_corked || self.is_http2 == Some(true) || !self.traffic.more_follows() {
            return;
        }
        let is_large = slices.iter().any(|slice| slice.len() >= crate::sendfile::SENDFILE_MIN_BYTES);
        // If corking fails, the response is the same but costs more.
        self.is_corked = is_large && rustix::net::sockopt::set_tcp_cork(&self.stream, true).is_ok();
    }

    /// Makes the kernel send all buffered data.
    fn uncork(&mut self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if std::mem::take(&mut self.is_corked) {
            rustix::net::sockopt::set_tcp_cork(&self.stream, false)?;
        }
        Ok(())
    }

    /// Holds `slices` until the next [`Self::poll_held`] if they are short, the peer speaks HTTP/2 and the buffer has
    /// enough space. Returns their size in bytes if they are held.
    fn hold(&mut self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Option<usize> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let is_held = self.holds && self.is_http2 == Some(true) && bytes <= HELD_PIECE_BYTES;
        if !is_held || self.held.len() + bytes > HELD_BYTES {
            return None;
        }
        if self.held.is_empty() {
            // The task is scheduled after all tasks that are ready now.
            cx.waker().wake_by_ref();
            self.held.reserve_exact(HELD_BYTES);
        }
        slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
        Some(bytes)
    }

    /// Sends the held bytes.
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
        // An idle connection keeps no buffer.
        self.held = Vec::new();
        Poll::Ready(Ok(()))
    }

    /// Determines the protocol from the first bytes of the peer.
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
                // The guard keeps the bytes of the slices from becoming zeros until the kernel has taken them.
                let _sending = match mappings {
                    Some(mappings) => Some(mappings.sending(self.faults).ok_or_else(lost_bytes)?),
                    None => None,
                };
                let locate = |slice| mappings.and_then(|mappings| mappings.locate(slice));
                crate::sendfile::send(self.stream.as_fd(), slices, locate, &mut sent)
            });
            match outcome {
                // After partial progress, the next call meets the error again. A `WouldBlock` after progress has
                // already registered interest with the runtime, which saves that call.
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
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a pack was truncated while a response was being sent: the response may be wrong",
    )
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

    /// Completes even while short writes are held: the task has been woken to send them.
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
        // If nothing was sent, nothing can be lost. However, if an earlier protocol shut this connection down and
        // left bytes of another request unread, then something was sent.
        let is_answered_amid = has_sent && (this.is_http2 == Some(true) || this.expects_more || this.has_arrived());
        if is_answered_amid || !this.unread.is_empty() || this.linger.is_some() {
            ready!(this.linger.get_or_insert_with(Linger::new).poll(&mut this.stream, cx));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    /// Resets a connection that is dropped without a shutdown, because a response was interrupted. An ordinary close
    /// could be taken for the end of the content (HTTP/1.0 and all responses delimited by the close of the
    /// connection).
    fn drop(&mut self) {
        if self.is_sending {
            // A socket that is already closed needs no reset.
            let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        }
    }
}

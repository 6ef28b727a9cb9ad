//! A TCP connection, encrypted or not, that sends large slices of mapped files with `sendfile` and counts its bytes.

mod coalesce;
mod cork;
mod linger;
mod mapped_writer;
#[cfg(target_os = "linux")]
mod sendfile;
mod transport;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use ipfrs_store::Mappings;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use self::coalesce::HeldWrites;
use self::cork::Cork;
pub use self::cork::Traffic;
use self::linger::Linger;
use self::mapped_writer::MappedWriter;
pub use self::transport::Encrypted;
use self::transport::Transport;
use crate::Bandwidth;

/// Prefix of the HTTP/2 client preface that identifies the protocol (RFC 9113, 3.4).
const HTTP_2: &[u8] = b"PRI ";

/// A TCP connection for servers that write blocks.
///
/// The socket behaves like a [`TcpStream`] with vectored writes. This process does not read a slice of a mapped file:
/// the kernel sends it from the page cache with `sendfile`. All other slices, and all slices on systems other than
/// Linux, are written in the ordinary way. With an [`Encrypted`] protocol, slices are encrypted where they are in
/// memory, each once the bytes encrypted before have been sent.
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
    stream: Transport,
    writer: MappedWriter,
    bandwidth: Bandwidth,
    traffic: Traffic,
    cork: Cork,
    /// Bytes that were read from the connection but not used.
    unread: Bytes,
    /// Short HTTP/2 writes. They are sent at the next read from the connection; the task has been woken for it.
    held: HeldWrites,
    /// Whether bytes were written since the last shutdown of the sending side.
    is_sending: bool,
    /// Whether the peer speaks HTTP/2; `None` until its first bytes have been read.
    is_http2: Option<bool>,
    /// The wait for the peer to close. Set once the sending side is shut down.
    linger: Option<Linger>,
    /// Whether the peer may still be sending a request that is not read any further.
    expects_more: bool,
}

/// Whether the peer of a socket is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Its sending side is open.
    Here,
    /// It has closed its sending side, and may still read.
    HalfClosed,
    /// The connection was reset.
    Gone,
}

impl Socket {
    /// Wraps a connection. `mappings` are those of the store whose blocks are sent; without them, every slice is
    /// copied. The caller sets socket options such as `TCP_NODELAY`.
    #[must_use]
    pub fn new(stream: TcpStream, mappings: Option<Mappings>, bandwidth: Bandwidth) -> Self {
        Self::over(Transport::Tcp(stream), mappings, bandwidth)
    }

    /// Wraps an encrypted connection.
    #[must_use]
    pub fn encrypted(stream: Box<dyn Encrypted>, mappings: Option<Mappings>, bandwidth: Bandwidth) -> Self {
        Self::over(Transport::Encrypted(stream), mappings, bandwidth)
    }

    fn over(stream: Transport, mappings: Option<Mappings>, bandwidth: Bandwidth) -> Self {
        Self {
            stream,
            writer: MappedWriter::new(mappings),
            bandwidth,
            traffic: Traffic::default(),
            cork: Cork::default(),
            unread: Bytes::new(),
            held: HeldWrites::new(),
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
        self.held.disable();
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
    pub fn has_arrived(&mut self) -> bool {
        use rustix::net::RecvFlags;

        if self.stream.has_decrypted() {
            return true;
        }
        let seen = rustix::net::recv(self.stream.tcp(), &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        seen != Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// Returns whether the peer is still there. Queries the kernel without waiting. Only Linux knows.
    #[must_use]
    #[cfg_attr(not(target_os = "linux"), expect(clippy::unused_self, reason = "only Linux knows"))]
    pub fn presence(&self) -> Presence {
        #[cfg(target_os = "linux")]
        return self.polled_presence();
        #[cfg(not(target_os = "linux"))]
        Presence::Here
    }

    #[cfg(target_os = "linux")]
    fn polled_presence(&self) -> Presence {
        use rustix::event::{PollFd, PollFlags, poll};

        let mut polled = [PollFd::new(self.stream.tcp(), PollFlags::RDHUP)];
        if poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() {
            return Presence::Here;
        }
        let events = polled[0].revents();
        if events.intersects(PollFlags::ERR | PollFlags::HUP) {
            Presence::Gone
        } else if events.contains(PollFlags::RDHUP) {
            Presence::HalfClosed
        } else {
            Presence::Here
        }
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
            rustix::net::sockopt::set_tcp_user_timeout(self.stream.tcp(), milliseconds)?;
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
        ready!(self.stream.poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        self.note_protocol(read);
        self.bandwidth.add_in(read.len() as u64);
        Poll::Ready(Ok(()))
    }

    /// Corks the socket if more data follows and one of `slices` is long enough to be sent from its file.
    #[cfg(target_os = "linux")]
    fn cork(&mut self, slices: &[IoSlice<'_>]) {
        if self.is_http2 != Some(true)
            && self.traffic.more_follows()
            && slices.iter().any(|slice| slice.len() >= sendfile::SENDFILE_MIN_BYTES)
        {
            self.cork.set(self.stream.tcp());
        }
    }

    /// Sends the held bytes.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.bytes().is_empty() {
            let held = [IoSlice::new(self.held.bytes())];
            let sent = ready!(self.writer.poll_write(&mut self.stream, cx, &held))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(sent);
            self.bandwidth.add_out(sent as u64);
        }
        self.held.release();
        Poll::Ready(Ok(()))
    }

    /// Determines the protocol from the first bytes of the peer.
    fn note_protocol(&mut self, read: &[u8]) {
        if self.is_http2.is_none() && !read.is_empty() {
            self.is_http2 = Some(read.starts_with(HTTP_2));
        }
    }
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
        if self.is_http2 == Some(true)
            && let Some(bytes) = self.held.hold(cx, slices)
        {
            return Poll::Ready(Ok(bytes));
        }
        ready!(self.poll_held(cx))?;
        #[cfg(target_os = "linux")]
        self.cork(slices);
        let this = &mut *self;
        let sent = ready!(this.writer.poll_write(&mut this.stream, cx, slices))?;
        self.bandwidth.add_out(sent as u64);
        Poll::Ready(Ok(sent))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Completes even while short writes are held: the task has been woken to send them.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.traffic.more_follows() {
            let this = &mut *self;
            this.cork.remove(this.stream.tcp())?;
        }
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_held(cx))?;
        let has_sent = std::mem::take(&mut this.is_sending);
        if this.linger.is_none() {
            ready!(this.stream.poll_shutdown(cx))?;
        }
        // If nothing was sent, nothing can be lost. However, if an earlier protocol shut this connection down and
        // left bytes of another request unread, then something was sent.
        let is_answered_amid = has_sent && (this.is_http2 == Some(true) || this.expects_more || this.has_arrived());
        if is_answered_amid || !this.unread.is_empty() || this.linger.is_some() {
            let is_http2 = this.is_http2 == Some(true);
            ready!(this.linger.get_or_insert_with(|| Linger::new(is_http2)).poll(this.stream.tcp_mut(), cx));
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
            let _ = rustix::net::sockopt::set_socket_linger(self.stream.tcp(), Some(Duration::ZERO));
        }
    }
}

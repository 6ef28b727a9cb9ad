//! A TLS connection below a [`Socket`](ipfrs_stream::Socket).

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use ipfrs_stream::Encrypted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection of a client, after the handshake.
#[derive(Debug)]
pub(super) struct TlsConnection {
    stream: TlsStream<TcpStream>,
    /// Whether records that must not be sent are buffered. They stay there until the connection is dropped.
    is_broken: bool,
}

impl TlsConnection {
    pub(super) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self { stream, is_broken: false }
    }

    /// Returns the connection for a use that sends what is buffered.
    fn sending(&mut self) -> io::Result<Pin<&mut TlsStream<TcpStream>>> {
        if self.is_broken { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(Pin::new(&mut self.stream)) }
    }
}

impl Encrypted for TlsConnection {
    fn tcp(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    fn tcp_mut(&mut self) -> &mut TcpStream {
        self.stream.get_mut().0
    }

    fn has_decrypted(&mut self) -> bool {
        self.stream.get_mut().1.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.sending()?.poll_read(cx, buf)
    }

    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.get_mut().1.writer().write_vectored(slices)
    }

    fn discard(&mut self) {
        self.is_broken = true;
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sending()?.poll_flush(cx)
    }

    /// Ends with a `close_notify` alert (RFC 8446, 6.1).
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sending()?.poll_shutdown(cx)
    }
}

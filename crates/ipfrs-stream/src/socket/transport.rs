//! The connection below a [`Socket`](super::Socket): TCP, or TLS over TCP.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Returns the TCP connection.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }

    /// Returns the TCP connection, to wait for its end.
    pub(super) fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }

    /// Returns whether decrypted bytes can be read without another read from the TCP connection.
    pub(super) fn has_decrypted(&mut self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Tls(stream) => {
                stream.get_mut().1.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
        }
    }

    /// Reads. Encrypted records that have not been sent yet are sent meanwhile, because nothing else may poll an idle
    /// connection.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => {
                if let Poll::Ready(sent) = Pin::new(&mut **stream).poll_flush(cx) {
                    sent?;
                }
                Pin::new(stream).poll_read(cx, buf)
            }
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    /// Ends the sending side: for TLS with a `close_notify` alert, then with that of TCP.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Encrypts a part of `slices`, sends what the kernel accepts, and returns the length of the part in bytes. The
/// encrypted rest is sent before anything else, so at most one part is buffered.
pub(super) fn poll_encrypt(
    stream: &mut TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    ready!(Pin::new(&mut *stream).poll_flush(cx))?;
    Pin::new(stream).poll_write_vectored(cx, slices)
}

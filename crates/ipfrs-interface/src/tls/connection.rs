//! A TLS connection below a [`Socket`](ipfrs_stream::Socket).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use ipfrs_stream::Encrypted;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection of a client, after the handshake.
#[derive(Debug)]
pub(super) struct TlsConnection(pub(super) TlsStream<TcpStream>);

impl Encrypted for TlsConnection {
    fn tcp(&self) -> &TcpStream {
        self.0.get_ref().0
    }

    fn tcp_mut(&mut self) -> &mut TcpStream {
        self.0.get_mut().0
    }

    fn has_decrypted(&mut self) -> bool {
        self.0.get_mut().1.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }

    fn poll_write_vectored(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    /// Ends with a `close_notify` alert (RFC 8446, 6.1).
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

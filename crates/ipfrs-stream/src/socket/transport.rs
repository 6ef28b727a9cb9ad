//! The connection below a [`Socket`](super::Socket): TCP, or an encrypted protocol over TCP.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An encrypted protocol over TCP, such as TLS, after its handshake.
pub trait Encrypted: Debug + Send {
    /// Returns the TCP connection.
    fn tcp(&self) -> &TcpStream;

    /// Returns the TCP connection, to wait for its end.
    fn tcp_mut(&mut self) -> &mut TcpStream;

    /// Returns whether decrypted bytes can be read without another read from the TCP connection.
    fn has_decrypted(&mut self) -> bool;

    /// Reads and decrypts. See [`AsyncRead::poll_read`].
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Encrypts a part of `slices` into a buffer of its own and returns its length in bytes: 0 only if the buffer is
    /// full. Nothing is sent.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Drops what has been encrypted and not sent. Everything else fails from now on.
    fn discard(&mut self);

    /// Sends all that has been encrypted. See [`AsyncWrite::poll_flush`].
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends the sending side of the protocol, then that of TCP. See [`AsyncWrite::poll_shutdown`].
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Encrypted(Box<dyn Encrypted>),
}

impl Transport {
    /// Returns the TCP connection.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Encrypted(stream) => stream.tcp(),
        }
    }

    /// Returns the TCP connection, to wait for its end.
    pub(super) fn tcp_mut(&mut self) -> &mut TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Encrypted(stream) => stream.tcp_mut(),
        }
    }

    /// Returns whether decrypted bytes can be read without another read from the TCP connection.
    pub(super) fn has_decrypted(&mut self) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Encrypted(stream) => stream.has_decrypted(),
        }
    }

    /// Reads. Encrypted records that have not been sent yet are sent meanwhile, because nothing else may poll an idle
    /// connection.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Encrypted(stream) => {
                if let Poll::Ready(sent) = stream.poll_flush(cx) {
                    sent?;
                }
                stream.poll_read(cx, buf)
            }
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Encrypted(stream) => stream.poll_flush(cx),
        }
    }

    /// Ends the sending side.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Encrypted(stream) => stream.poll_shutdown(cx),
        }
    }
}

/// Encrypts a part of `slices`, sends what the kernel accepts, and returns the length of the part in bytes. The
/// encrypted rest is sent before anything else, so at most one part is buffered. What `check` rejects is not sent.
pub(super) fn poll_encrypt(
    stream: &mut dyn Encrypted,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
    check: impl FnOnce() -> io::Result<()>,
) -> Poll<io::Result<usize>> {
    ready!(stream.poll_flush(cx))?;
    let length = stream.encrypt(slices)?;
    check().inspect_err(|_| stream.discard())?;
    match stream.poll_flush(cx) {
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(length)),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A protocol that counts bytes instead of sending them.
    #[derive(Debug, Default)]
    struct Counting {
        encrypted: usize,
        flushed: usize,
        is_discarded: bool,
    }

    impl Encrypted for Counting {
        fn tcp(&self) -> &TcpStream {
            unreachable!("there is no connection")
        }

        fn tcp_mut(&mut self) -> &mut TcpStream {
            unreachable!("there is no connection")
        }

        fn has_decrypted(&mut self) -> bool {
            false
        }

        fn poll_read(&mut self, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let length: usize = slices.iter().map(|slice| slice.len()).sum();
            self.encrypted += length;
            Ok(length)
        }

        fn discard(&mut self) {
            self.is_discarded = true;
        }

        fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.is_discarded {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            self.flushed += std::mem::take(&mut self.encrypted);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    #[test]
    fn encrypted_bytes_that_a_check_rejects_are_never_sent() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut stream = Counting::default();
        let slices = [IoSlice::new(b"right"), IoSlice::new(b" bytes")];
        assert!(matches!(poll_encrypt(&mut stream, &mut cx, &slices, || Ok(())), Poll::Ready(Ok(11))));
        assert_eq!((stream.flushed, stream.is_discarded), (11, false));
        let slices = [IoSlice::new(b"zeros")];
        let rejected = poll_encrypt(&mut stream, &mut cx, &slices, || Err(io::ErrorKind::InvalidData.into()));
        assert!(matches!(rejected, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidData));
        assert_eq!((stream.encrypted, stream.flushed, stream.is_discarded), (5, 11, true));
        // Nor does another use of the connection send them.
        let mut transport = Transport::Encrypted(Box::new(stream));
        assert!(matches!(transport.poll_flush(&mut cx), Poll::Ready(Err(_))));
        assert!(matches!(transport.poll_shutdown(&mut cx), Poll::Ready(Err(_))));
        let mut buffer = [0; 8];
        assert!(matches!(transport.poll_read(&mut cx, &mut ReadBuf::new(&mut buffer)), Poll::Ready(Err(_))));
        let Transport::Encrypted(mut stream) = transport else { unreachable!("it was created so") };
        let again = poll_encrypt(&mut *stream, &mut cx, &slices, || Ok(()));
        assert!(matches!(again, Poll::Ready(Err(_))));
    }
}

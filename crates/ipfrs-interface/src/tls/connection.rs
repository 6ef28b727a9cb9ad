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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// Returns both ends of a connection after its handshake.
    async fn connected() -> (TlsConnection, tokio_rustls::client::TlsStream<TcpStream>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let accepting = async {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(server)).accept(stream).await.unwrap()
        };
        let connecting = async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap()
        };
        let (accepted, client) = tokio::join!(accepting, connecting);
        (TlsConnection::new(accepted), client)
    }

    #[tokio::test]
    async fn discarded_records_never_reach_the_client() {
        let (mut server, mut client) = connected().await;
        assert_eq!(server.encrypt(&[IoSlice::new(b"right")]).unwrap(), 5);
        poll_fn(|cx| server.poll_flush(cx)).await.unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"right");
        assert_eq!(server.encrypt(&[IoSlice::new(b"zeros")]).unwrap(), 5);
        server.discard();
        // No use of the connection sends them.
        let mut buffer = [0; 8];
        assert!(poll_fn(|cx| server.poll_flush(cx)).await.is_err());
        assert!(poll_fn(|cx| server.poll_read(cx, &mut ReadBuf::new(&mut buffer))).await.is_err());
        assert!(poll_fn(|cx| server.poll_shutdown(cx)).await.is_err());
        drop(server);
        let mut rest = Vec::new();
        assert!(client.read_to_end(&mut rest).await.is_err(), "the connection breaks off");
        assert_eq!(rest, b"");
    }
}

//! Responses over TLS while another program truncates the packs of the store.

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use super::Issuer;
use crate::content;

#[tokio::test]
async fn response_over_tls_ends_where_the_store_lost_bytes() {
    let issuer = Issuer::new();
    let gateway = issuer.gateway(|_| {}).await;
    // More than the buffers of the sockets hold. All blocks differ, and zeros in the place of others would show.
    let content = content::bytes(160 << 20);
    let cid = gateway.add("", content.clone()).await;
    // The kernel must not take the whole response before the client has read its beginning.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let stream = socket.connect(gateway.address()).await.unwrap();
    let connector = TlsConnector::from(issuer.client_config());
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    let request = format!("GET /ipfs/{cid} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = vec![0; 256 * 1024];
    stream.read_exact(&mut received).await.unwrap();
    for pack in std::fs::read_dir(gateway.repo().path().join("packs")).unwrap() {
        let pack = std::fs::OpenOptions::new().write(true).open(pack.unwrap().path()).unwrap();
        let length = pack.metadata().unwrap().len();
        pack.set_len(length.min(1 << 20)).unwrap();
    }
    // The connection breaks, or ends before the length that the head stated.
    let _ = stream.read_to_end(&mut received).await;
    let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(received.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&received[..head]));
    let body = &received[head..];
    assert!(body.len() < content.len(), "{} bytes", body.len());
    let differs = body.iter().zip(&content).position(|(received, sent)| received != sent);
    assert_eq!(differs, None, "zeros in the place of lost bytes are not sent");
}

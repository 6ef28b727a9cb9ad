//! Tests of draining: running requests complete, late ones are terminated, and new connections are refused.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{Running, config, rest_of};

#[tokio::test]
async fn running_upload_completes_during_drain() {
    let mut running = Running::start(&config()).await;
    let mut upload = running.begin_upload(6).await;
    let idle = running.connect().await;
    running.gateway.shutdown();
    // The idle connection is closed at once, which shows that draining has begun and the listeners are closed.
    assert_eq!(rest_of(idle).await, "");
    assert!(TcpStream::connect(running.address()).await.is_err());
    upload.write_all(b"hello\n").await.unwrap();
    let answer = rest_of(upload).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"), "{answer}");
    running.gateway.join().await.unwrap();
}

#[tokio::test]
async fn transfers_are_cut_after_the_grace_period() {
    let mut config = config();
    config.server.shutdown_grace_seconds = 0;
    let mut running = Running::start(&config).await;
    let upload = running.begin_upload(6).await;
    running.gateway.shutdown();
    running.gateway.join().await.unwrap();
    assert_eq!(rest_of(upload).await, "");
}

#[tokio::test]
async fn shutdown_request_stops_the_gateway() {
    let mut running = Running::start(&config()).await;
    let request = "POST /api/v0/shutdown HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert!(rest_of(running.send(request).await).await.starts_with("HTTP/1.1 200 OK\r\n"));
    running.gateway.join().await.unwrap();
}

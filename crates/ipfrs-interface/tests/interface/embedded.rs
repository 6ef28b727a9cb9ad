//! The gateway in the HTTP server of a host program.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use ipfrs_interface::{Embedded, GatewayService};
use ipfrs_node::{AddOptions, AddPathOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{config, rest_of};

/// Serves `service` below the routes of a host program, and returns the address.
async fn serve(service: GatewayService) -> SocketAddr {
    let host = Router::new().route("/", get(|| async { "the host" })).fallback_service(service);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let host = host.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, host).await });
    address
}

/// Sends a request with these lines, and returns the response.
async fn send(address: SocketAddr, lines: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("{lines}\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    rest_of(connection).await
}

#[tokio::test]
async fn content_service_has_content_and_nothing_else() {
    let repo = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(&config(), repo.path(), "test").await.unwrap();
    let file = repo.path().join("hello.txt");
    std::fs::write(&file, "hello from below").unwrap();
    let add = AddOptions { wrap_with_directory: true, ..AddOptions::default() };
    let cid = embedded.node().add_path(file, AddPathOptions::from(add)).await.unwrap().cid;
    let address = serve(embedded.content()).await;

    let range = format!("GET /ipfs/{cid}/hello.txt HTTP/1.1\r\nRange: bytes=6-9");
    let response = send(address, &range).await;
    assert!(response.starts_with("HTTP/1.1 206") && response.ends_with("\r\n\r\nfrom"), "{response}");
    let head = send(address, &format!("HEAD /ipfs/{cid}/hello.txt HTTP/1.1")).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-length: 16\r\n"), "{head}");
    assert!(send(address, "GET / HTTP/1.1").await.ends_with("the host"));
    let refused = [
        "POST /api/v0/id",
        "POST /api/v0/repo/gc",
        "POST /api/v0/shutdown",
        "GET /health",
        "GET /metrics",
        "GET /debug/metrics/prometheus",
        "GET /v1/progress",
        "GET /routing/v1/ipns/k51qzi5uqu5dh9ihj4p2v5sl3hxvv27ryx2w0xrsv6jmmqi91t9xp8p9kaipc2",
        "POST /v1/block/batch/get",
        "PUT /ipfs/",
        "GET /ipfsx",
    ];
    for request in refused {
        let response = send(address, &format!("{request} HTTP/1.1\r\nContent-Length: 0")).await;
        let status = response.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "404" | "405"), "{request}: {response}");
    }
    // A name that is not configured is not looked up in DNS, where it could lead to a website.
    let unknown = "GET /nothing HTTP/1.0\r\nHost: app.example.com\r\n\r\n";
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(unknown.as_bytes()).await.unwrap();
    let response = rest_of(connection).await;
    assert!(response.contains(" 404 "), "{response}");
    assert!(send(address, "CONNECT example.com:80 HTTP/1.1").await.starts_with("HTTP/1.1 501"));
    embedded.close().await.unwrap();
}

#[tokio::test]
async fn everything_service_has_the_rpc_and_passes_shutdown_requests_on() {
    let repo = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(&config(), repo.path(), "test").await.unwrap();
    let address = serve(embedded.everything()).await;
    let response = send(address, "POST /api/v0/version HTTP/1.1\r\nContent-Length: 0").await;
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("Version"), "{response}");
    assert!(send(address, "GET /health HTTP/1.1").await.starts_with("HTTP/1.1 200"));
    assert!(send(address, "POST /api/v0/shutdown HTTP/1.1\r\nContent-Length: 0").await.starts_with("HTTP/1.1 200"));
    embedded.shutdown_requested().await;
    embedded.close().await.unwrap();
}

#[tokio::test]
async fn requested_pins_are_made_once_the_maintenance_runs() {
    let repo = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(&config(), repo.path(), "test").await.unwrap();
    let file = repo.path().join("hello.txt");
    std::fs::write(&file, "hello").unwrap();
    let add = AddOptions { unpinned: true, ..AddOptions::default() };
    let cid = embedded.node().add_path(file, AddPathOptions::from(add)).await.unwrap().cid;
    let address = serve(embedded.everything()).await;
    let pin = format!("{{\"cid\":\"{cid}\"}}");
    let post = format!("POST /pinning/v1/pins HTTP/1.1\r\nContent-Length: {}", pin.len());
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("{post}\r\nHost: {address}\r\nConnection: close\r\n\r\n{pin}");
    connection.write_all(request.as_bytes()).await.unwrap();
    assert!(rest_of(connection).await.starts_with("HTTP/1.1 202"));
    embedded.start_maintenance();
    while !send(address, "GET /pinning/v1/pins?status=pinned HTTP/1.1").await.contains(&cid.to_string()) {
        tokio::task::yield_now().await;
    }
    embedded.close().await.unwrap();
}

#[tokio::test]
async fn responses_end_with_an_error_after_the_store_lost_bytes() {
    let repo = tempfile::tempdir().unwrap();
    let embedded = Embedded::open(&config(), repo.path(), "test").await.unwrap();
    let file = repo.path().join("large");
    // All blocks differ.
    let content: Vec<u8> = (0..10_u32 << 20).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, content).unwrap();
    let cid = embedded.node().add_path(file, AddOptions::default()).await.unwrap().cid;
    let address = serve(embedded.content()).await;
    let packs = std::fs::read_dir(repo.path().join("packs")).unwrap().map(|entry| entry.unwrap().path());
    for pack in packs {
        std::fs::OpenOptions::new().write(true).open(pack).unwrap().set_len(1 << 20).unwrap();
    }
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // The connection breaks, or ends before the length that the head stated.
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut received).await;
    assert!(received.len() < 40 << 20, "{} bytes", received.len());
    let _damaged = embedded.close().await;
}

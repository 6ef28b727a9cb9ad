//! Tests of listening, of the limits of a connection, and of the errors of `bind`.

use std::fs;

use axum::body::Body;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ipfrs_core::ErrorKind;
use ipfrs_interface::{Embedded, Gateway, running_url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Running, config, rest_of};

const PING: &str = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST_PING: &str = "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn http1_and_http2_share_one_port() {
    let running = Running::start(&config()).await;
    assert!(rest_of(running.send(LAST_PING).await).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build::<_, Body>(HttpConnector::new());
    let url = format!("{}/health/ready", running.gateway.urls()[0]);
    let response = client.get(url.parse().unwrap()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, axum::http::Version::HTTP_2));
}

/// Sends `frame` over HTTP/2 until the gateway closes the connection. Returns the number of bytes that were sent, which
/// is at most `max_bytes`.
async fn bytes_until_the_end(running: &Running, frame: &[u8], max_bytes: usize) -> usize {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let (mut incoming, mut outgoing) = running.send(preface).await.into_split();
    let reading = tokio::spawn(async move { tokio::io::copy(&mut incoming, &mut tokio::io::sink()).await });
    let frames = frame.repeat(64 * 1024 / frame.len());
    let mut sent = 0;
    while sent < max_bytes && outgoing.write_all(&frames).await.is_ok() {
        sent += frames.len();
    }
    drop(outgoing);
    let _end = reading.await.unwrap();
    sent
}

#[tokio::test]
async fn http2_frames_without_requests_are_bounded() {
    const MAX_BYTES: usize = 64 << 20;
    let running = Running::start(&config()).await;
    let frame = |kind: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, payload.len() as u8, kind, 0, 0, 0, 0, stream], payload].concat()
    };
    let priority = frame(2, 1, &[0; 5]);
    let settings = frame(4, 0, &[]);
    let ping = frame(6, 0, &[7; 8]);
    let window_update = frame(8, 0, &[0, 0, 0, 1]);
    let unknown = frame(99, 0, &[0; 16]);
    for frame in [priority, settings, ping, window_update, unknown] {
        let sent = bytes_until_the_end(&running, &frame, MAX_BYTES).await;
        assert!(sent < MAX_BYTES, "frames of type {} have no bound", frame[3]);
    }
    assert!(rest_of(running.send(LAST_PING).await).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn the_url_is_in_the_repo_while_the_gateway_runs() {
    let mut running = Running::start(&config()).await;
    let url = running_url(running.repo.path()).unwrap();
    assert_eq!(url.as_deref(), Some(running.gateway.urls()[0].as_str()));
    // curl reads this file for ipfs:// URLs.
    let content_url = fs::read_to_string(running.repo.path().join("gateway")).unwrap();
    assert_eq!(content_url, running.gateway.urls()[0]);
    running.gateway.shutdown();
    running.gateway.join().await.unwrap();
    assert_eq!(running_url(running.repo.path()).unwrap(), None);
    assert!(!running.repo.path().join("gateway").exists());
}

#[tokio::test]
async fn repo_on_a_full_disk_is_served() {
    let mut running = Running::start(&config()).await;
    running.gateway.shutdown();
    running.gateway.join().await.unwrap();
    // Writes to these files fail as on a full disk.
    let repo = running.repo;
    fs::remove_file(repo.path().join("lock")).unwrap();
    for name in ["lock", "api.new"] {
        std::os::unix::fs::symlink("/dev/full", repo.path().join(name)).unwrap();
    }
    let gateway = Gateway::bind(&config(), repo.path()).await.unwrap();
    let running = Running { repo, gateway };
    assert!(rest_of(running.send(LAST_PING).await).await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(running_url(running.repo.path()).unwrap(), None);
}

#[tokio::test]
async fn repo_is_locked_by_one_gateway() {
    let mut running = Running::start(&config()).await;
    let repo = running.repo.path();
    let refused = Gateway::bind(&config(), repo).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(Embedded::open(&config(), repo, "test").await.unwrap_err().kind(), ErrorKind::Conflict);
    running.gateway.shutdown();
    running.gateway.join().await.unwrap();
    Embedded::open(&config(), repo, "test").await.unwrap().close().await.unwrap();
    let mut again = Gateway::bind(&config(), repo).await.unwrap();
    again.shutdown();
    again.join().await.unwrap();
}

#[tokio::test]
async fn next_user_of_the_repo_removes_a_stale_url() {
    let repo = tempfile::tempdir().unwrap();
    for name in ["api", "gateway"] {
        fs::write(repo.path().join(name), "http://127.0.0.1:1\n").unwrap();
    }
    Embedded::open(&config(), repo.path(), "test").await.unwrap().close().await.unwrap();
    assert_eq!(running_url(repo.path()).unwrap(), None);
    assert!(!repo.path().join("gateway").exists());
}

#[tokio::test]
async fn a_port_in_use_leaves_the_repo_free() {
    let running = Running::start(&config()).await;
    let mut taken = config();
    taken.server.port = running.address().port();
    let repo = tempfile::tempdir().unwrap();
    let error = Gateway::bind(&taken, repo.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(&format!("port {} on 127.0.0.1 is in use", taken.server.port)), "{error}");
    Embedded::open(&config(), repo.path(), "test").await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn grpc_port_conflict_and_exposure_are_errors() {
    let running = Running::start(&config()).await;
    let repo = tempfile::tempdir().unwrap();
    let mut taken = config();
    let port = running.gateway.grpc_addresses()[0].port();
    taken.grpc.port = Some(port);
    let error = Gateway::bind(&taken, repo.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(&format!("port {port} on 127.0.0.1 is in use")), "{error}");
    assert!(error.message().contains("--grpc-port or [grpc] port"), "{error}");
    let mut open = config();
    open.grpc.host = "0.0.0.0".to_owned();
    let error = Gateway::bind(&open, repo.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
    taken.grpc.enabled = false;
    let gateway = Gateway::bind(&taken, repo.path()).await.unwrap();
    assert!(gateway.grpc_addresses().is_empty());
}

#[tokio::test]
async fn second_daemon_starts_if_default_grpc_port_is_taken() {
    let mut unchosen = config();
    unchosen.grpc.port = None;
    // Either this daemon takes the default port, or another process already has it.
    let _first = Running::start(&unchosen).await;
    let second = Running::start(&unchosen).await;
    assert!(second.gateway.grpc_addresses().is_empty());
}

#[tokio::test]
async fn addresses_beyond_loopback_need_permission() {
    let repo = tempfile::tempdir().unwrap();
    for (host, is_refused) in
        [("0.0.0.0", true), ("::", true), ("::ffff:0.0.0.0", true), ("127.0.0.2", false), ("localhost", false)]
    {
        let mut config = config();
        config.server.host = host.to_owned();
        match Gateway::bind(&config, repo.path()).await {
            Ok(mut gateway) => {
                assert!(!is_refused, "{host}");
                gateway.shutdown();
                gateway.join().await.unwrap();
            }
            Err(error) => {
                assert!(is_refused, "{host}: {error}");
                assert_eq!(error.kind(), ErrorKind::Forbidden);
                assert!(error.message().contains("allow_unauthenticated = true"), "{error}");
            }
        }
    }
    let mut permitted = config();
    (permitted.server.host, permitted.server.allow_unauthenticated) = ("0.0.0.0".to_owned(), true);
    let mut gateway = Gateway::bind(&permitted, repo.path()).await.unwrap();
    let url = running_url(repo.path()).unwrap().unwrap();
    assert_eq!(url, format!("http://127.0.0.1:{}", gateway.addresses()[0].port()));
    gateway.shutdown();
    gateway.join().await.unwrap();
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_named() {
    let mut config = config();
    config.server.host = "no such host".to_owned();
    let repo = tempfile::tempdir().unwrap();
    let error = Gateway::bind(&config, repo.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().starts_with("server.host = \"no such host\": "), "{error}");
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() {
    let mut config = config();
    config.server.max_header_bytes = 8 * 1024;
    let running = Running::start(&config).await;
    let padding = "x".repeat(9 * 1024);
    let request = format!("GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-Padding: {padding}\r\n\r\n");
    assert!(rest_of(running.send(&request).await).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn connections_without_a_request_are_closed() {
    let mut config = config();
    config.server.header_timeout_seconds = 1;
    let running = Running::start(&config).await;
    let silent = running.connect().await;
    let version_unknown = running.send("PRI").await;
    let head_unfinished = running.send("GET /health/live HTTP/1.1\r\nHost:").await;
    let idle = running.send(PING).await;
    let (silent, version_unknown, head_unfinished, idle) =
        tokio::join!(rest_of(silent), rest_of(version_unknown), rest_of(head_unfinished), rest_of(idle));
    assert_eq!((silent.as_str(), version_unknown.as_str()), ("", ""));
    assert!(!head_unfinished.contains("200 OK"), "{head_unfinished}");
    assert!(idle.starts_with("HTTP/1.1 200 OK\r\n"), "{idle}");
}

#[tokio::test]
async fn a_client_may_close_its_side_and_still_read() {
    let running = Running::start(&config()).await;
    let mut connection = running.send(PING).await;
    connection.shutdown().await.unwrap();
    assert!(rest_of(connection).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_their_turn() {
    let mut config = config();
    config.server.max_connections = 1;
    let running = Running::start(&config).await;
    let mut first = running.send(PING).await;
    let mut start = [0; 15];
    first.read_exact(&mut start).await.unwrap();
    let mut second = running.send(LAST_PING).await;
    // While the first connection is open, the second one receives nothing, however long it waits.
    let mut rest = vec![0; 1024];
    for _ in 0..50 {
        first.write_all(PING.as_bytes()).await.unwrap();
        assert_ne!(first.read(&mut rest).await.unwrap(), 0);
    }
    assert_eq!(second.try_read(&mut start).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    second.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
}

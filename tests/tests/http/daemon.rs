//! Startup errors and shutdown of the daemon, and the files in its repo.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ipfrs_core::ErrorKind;
use ipfrs_interface::{Config, Gateway};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::harness::TestGateway;

fn config(host: &str) -> Config {
    let mut config = Config::default();
    (config.server.host, config.server.port) = (host.to_owned(), 0);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn non_loopback_listener_requires_permission() {
    for host in ["0.0.0.0", "::"] {
        let repo = tempfile::tempdir().unwrap();
        let error = Gateway::bind(&config(host), repo.path()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{host}");
        assert!(error.message().contains("allow_unauthenticated"), "it says how: {error}");
        assert!(!repo.path().join("api").exists());
    }
    let repo = tempfile::tempdir().unwrap();
    let mut allowed = config("0.0.0.0");
    allowed.server.allow_unauthenticated = true;
    let mut gateway = Gateway::bind(&allowed, repo.path()).await.unwrap();
    gateway.shutdown();
    gateway.join().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_spelling_of_loopback_is_accepted() {
    for host in ["127.0.0.1", "localhost", "127.0.0.2"] {
        let gateway = TestGateway::start_with(|config| config.server.host = host.to_owned()).await;
        assert!(gateway.address().ip().is_loopback(), "{host}");
        assert_eq!(gateway.get("/health/live").await.status(), 200, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repo_records_the_daemon_and_refuses_a_second_one() {
    let gateway = TestGateway::start().await;
    let api = gateway.repo().path().join("api");
    // As Kubo's clients read it.
    assert_eq!(fs::read_to_string(&api).unwrap(), format!("/ip4/127.0.0.1/tcp/{}", gateway.port()));
    let error = Gateway::bind(&config("127.0.0.1"), gateway.repo().path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("already open in this process"), "it says who holds it: {error}");
    assert!(api.exists(), "the first one's");
    let repo = gateway.stop().await;
    assert!(!repo.path().join("api").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn unix_socket_has_the_api_until_the_daemon_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let socket = path.clone();
    let gateway = TestGateway::start_with(|config| config.api.unix_socket = Some(socket)).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).await.unwrap();
    let request = b"POST /api/v0/version HTTP/1.1\r\nHost: unix\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("\"Version\""), "{response}");
    gateway.stop().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let gateway = TestGateway::start().await;
    let repo = tempfile::tempdir().unwrap();
    let mut config = config("127.0.0.1");
    config.server.port = gateway.port();
    let error = Gateway::bind(&config, repo.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(&gateway.port().to_string()), "{error}");
    config.server.port = 0;
    config.grpc.port = Some(0);
    config.api.enabled = false;
    // The failed attempt has released the repo.
    drop(Gateway::bind(&config, repo.path()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_command_responds_before_shutdown() {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.rpc("shutdown").send().await.unwrap().status(), 200);
    let repo = gateway.stop().await;
    assert!(!repo.path().join("api").exists());
}

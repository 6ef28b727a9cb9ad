//! Credentials, which no log and no metric may show.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::{SinkExt, StreamExt};
use ipfrs_proto::block::v1::GetBlockRequest;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use rustix::process::Signal;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tonic::transport::Channel;

use crate::harness::{Daemon, Place};

/// Sends a request without a body and returns the response.
fn exchange(mut connection: TcpStream, head: &str, lines: &str) -> String {
    let host = connection.peer_addr().unwrap();
    write!(connection, "{head} HTTP/1.1\r\nHost: {host}\r\n{lines}Content-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

/// Opens a WebSocket and sends a token as GraphQL does, in the first message. Returns the response.
async fn first_message(daemon: &Daemon, token: &str) -> String {
    let address = daemon.url().strip_prefix("http://").unwrap();
    let mut request = format!("ws://{address}/graphql/ws").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "graphql-transport-ws".parse().unwrap());
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let init = json!({ "type": "connection_init", "payload": { "Authorization": format!("Bearer {token}") } });
    socket.send(Message::text(init.to_string())).await.unwrap();
    format!("{:?}", socket.next().await.unwrap())
}

/// Calls a method of gRPC, over HTTP/2.
async fn call(daemon: &Daemon, token: &str) -> tonic::Code {
    let channel = Channel::from_shared(format!("http://{}", daemon.grpc.as_ref().unwrap())).unwrap().connect_lazy();
    let mut request = tonic::Request::new(GetBlockRequest { cid: "bafkqaaa".to_owned() });
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    let outcome = BlockServiceClient::new(channel).get_block(request).await;
    outcome.map_or_else(|status| status.code(), |_| tonic::Code::Ok)
}

#[test]
fn credentials_are_in_no_line_of_any_level_and_in_no_metric() {
    let place = Place::new();
    let token = place.ok(&["auth", "key", "create", "-s", "admin"]).trim().to_owned();
    place.write("daemon.toml", b"[auth]\nenabled = true\n[log]\nlevel = \"trace\"\naccess = true\n");
    let daemon = place.start(&["--config", "daemon.toml"]);
    let main = || TcpStream::connect(daemon.url().strip_prefix("http://").unwrap()).unwrap();
    // A token with a wrong end is still most of a secret.
    let wrong = format!("{token}x");
    let basic = BASE64_STANDARD.encode(format!("any:{token}"));
    for (lines, status) in [
        (format!("Authorization: Bearer {token}\r\n"), "200"),
        (format!("Authorization: Basic {basic}\r\n"), "200"),
        (format!("Authorization: Bearer {wrong}\r\n"), "401"),
        (format!("Authorization: {token}\r\n"), "401"),
    ] {
        let response = exchange(main(), "GET /v1/progress", &lines);
        assert_eq!(&response[9..12], status, "{response}");
    }
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let session = exchange(daemon.connect_to_api(), "POST /v1/auth/session", &bearer);
    let cookie =
        session.split("__Host-ipfrs=").nth(1).unwrap_or_else(|| panic!("{session}")).split(';').next().unwrap();
    let with_cookie = format!("Cookie: __Host-ipfrs={cookie}\r\n");
    let response = exchange(daemon.connect_to_api(), "GET /v1/progress", &with_cookie);
    assert_eq!(&response[9..12], "200", "{response}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert!(first_message(&daemon, &token).await.contains("connection_ack"));
        assert!(first_message(&daemon, &wrong).await.contains("4403"));
        assert_ne!(call(&daemon, &token).await, tonic::Code::Unauthenticated);
        assert_eq!(call(&daemon, &wrong).await, tonic::Code::Unauthenticated);
    });
    let metrics = exchange(main(), "GET /metrics", &bearer);
    assert!(metrics.contains("ipfrs_auth_attempts_total"), "{metrics}");
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0));
    assert!(log.contains("TRACE") && log.contains("/v1/progress"), "{log}");
    let secret = token.splitn(3, '_').nth(2).unwrap();
    for hidden in [secret, basic.as_str(), cookie] {
        for (name, text) in [("log", &log), ("metrics", &metrics)] {
            let line = text.lines().find(|line| line.contains(hidden));
            assert_eq!(line, None, "in the {name}");
        }
    }
}

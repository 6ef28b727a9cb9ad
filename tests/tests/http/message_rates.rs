//! `[rate_limit]`: messages of open WebSockets, which wait.

use std::fs;

use futures::FutureExt;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::harness::TestGateway;
use crate::rate_limits::{BURST, start, until_refused};
use crate::websocket::Client;

/// Returns the messages that have arrived.
fn arrived(socket: &mut Client) -> Vec<Message> {
    std::iter::from_fn(|| socket.next().now_or_never().flatten()).collect()
}

/// Returns the token of local commands, which have no limits.
fn local_token(gateway: &TestGateway) -> String {
    fs::read_to_string(gateway.repo().path().join("api-token")).unwrap()
}

/// Sends requests that have no limits. Meanwhile, the daemon could read and send all that waits.
async fn send_unlimited_requests(gateway: &TestGateway) {
    let token = local_token(gateway);
    for _ in 0..100 {
        let session = gateway.request(Method::GET, "/v1/auth/session").bearer_auth(&token);
        assert_eq!(session.send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn messages_to_events_are_read_at_the_rate_of_requests() {
    let gateway = start(|_| {}).await;
    let mut socket = Client::open(gateway.address(), "/ws", &[]).await.unwrap();
    for id in 0..4 * BURST {
        socket.send(json!({ "type": "ping", "id": id }).to_string()).await;
    }
    for id in 0..BURST - 1 {
        assert_eq!(socket.receive().await, json!({ "type": "pong", "id": id }));
    }
    // The bucket is that of all requests of the client.
    until_refused(async || gateway.get("/nothing").await).await;
    send_unlimited_requests(&gateway).await;
    let more = arrived(&mut socket);
    assert!(more.len() < BURST, "{}", more.len());
    assert!(more.iter().all(|message| matches!(message, Message::Text(_))), "the connection stays open: {more:?}");
}

#[tokio::test]
async fn messages_of_local_commands_do_not_wait() {
    let gateway = start(|_| {}).await;
    let bearer = format!("Bearer {}", local_token(&gateway));
    let mut socket = Client::open(gateway.address(), "/ws", &[("authorization", &bearer)]).await.unwrap();
    for id in 0..4 * BURST {
        socket.send(json!({ "type": "ping", "id": id }).to_string()).await;
        assert_eq!(socket.receive().await, json!({ "type": "pong", "id": id }));
    }
}

#[tokio::test]
async fn bytes_from_event_clients_wait_until_they_are_paid() {
    let gateway =
        start(|config| (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 1_000)).await;
    let mut socket = Client::open(gateway.address(), "/ws", &[]).await.unwrap();
    for _ in 0..4 {
        socket.send("x".repeat(600)).await;
    }
    // The second message exceeds the burst, so the third must wait.
    for _ in 0..2 {
        assert_eq!(socket.receive().await["type"], "error");
    }
    send_unlimited_requests(&gateway).await;
    assert!(arrived(&mut socket).is_empty());
}

#[tokio::test]
async fn sixteen_pings_over_graphql_count_as_a_request() {
    let gateway = start(|_| {}).await;
    let mut socket = Client::graphql(gateway.address()).await;
    for _ in 0..15 * BURST {
        socket.send(json!({ "type": "ping" }).to_string()).await;
    }
    for _ in 0..15 * BURST {
        assert_eq!(socket.receive().await, json!({ "type": "pong" }));
    }
    let (served, _) = until_refused(async || gateway.get("/nothing").await).await;
    assert!(served < BURST / 2, "{served}");
}

#[tokio::test]
async fn long_pings_over_graphql_wait_until_they_are_paid() {
    let gateway =
        start(|config| (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 1_000)).await;
    let mut socket = Client::graphql(gateway.address()).await;
    let ping = json!({ "type": "ping", "payload": { "text": "x".repeat(600) } }).to_string();
    for _ in 0..4 {
        socket.send(ping.clone()).await;
    }
    // The second ping exceeds the burst, so the third must wait.
    for _ in 0..2 {
        assert_eq!(socket.receive().await["type"], "pong");
    }
    send_unlimited_requests(&gateway).await;
    assert!(arrived(&mut socket).is_empty());
}

#[tokio::test]
async fn clients_whose_messages_wait_get_pongs() {
    let gateway =
        start(|config| (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 1_000)).await;
    let mut socket = Client::open(gateway.address(), "/ws", &[]).await.unwrap();
    for _ in 0..2 {
        socket.send("x".repeat(600)).await;
        assert_eq!(socket.receive().await["type"], "error");
    }
    socket.message(Message::Ping("a".into())).await;
    send_unlimited_requests(&gateway).await;
    assert_eq!(arrived(&mut socket), [Message::Pong("a".into())]);
}

#[tokio::test]
async fn events_wait_until_the_last_are_paid() {
    let gateway = start(|config| (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 1)).await;
    let token = local_token(&gateway);
    let bearer = format!("Bearer {token}");
    let mut unlimited = Client::open(gateway.address(), "/ws", &[("authorization", &bearer)]).await.unwrap();
    let mut limited = Client::open(gateway.address(), "/ws", &[]).await.unwrap();
    for socket in [&mut unlimited, &mut limited] {
        socket.send(json!({ "type": "subscribe", "topic": "blocks" }).to_string()).await;
        assert_eq!(socket.receive().await["type"], "subscribed");
    }
    let add = async |content: &'static str| {
        let add = gateway.rpc("add").bearer_auth(&token).header("content-type", "application/octet-stream");
        assert_eq!(add.body(content).send().await.unwrap().status(), 200);
    };
    add("first").await;
    for socket in [&mut unlimited, &mut limited] {
        assert_eq!(socket.receive().await["seq"], 1);
    }
    for (seq, content) in [(2, "second"), (3, "third"), (4, "fourth")] {
        add(content).await;
        assert_eq!(unlimited.receive().await["seq"], seq);
    }
    send_unlimited_requests(&gateway).await;
    assert!(arrived(&mut limited).is_empty());
}

#[tokio::test]
async fn open_subscriptions_follow_limits_of_a_reload() {
    let mut gateway = TestGateway::start().await;
    let token = local_token(&gateway);
    let bearer = format!("Bearer {token}");
    let mut unlimited = Client::open(gateway.address(), "/ws", &[("authorization", &bearer)]).await.unwrap();
    unlimited.send(json!({ "type": "subscribe", "topic": "blocks" }).to_string()).await;
    assert_eq!(unlimited.receive().await["type"], "subscribed");
    let mut limited = Client::graphql(gateway.address()).await;
    let payload = json!({ "query": "subscription { blockAdded { seq } }" });
    limited.send(json!({ "type": "subscribe", "id": "1", "payload": payload }).to_string()).await;
    // Messages are processed in order, so the subscription has begun without limits.
    limited.send(json!({ "type": "ping" }).to_string()).await;
    assert_eq!(limited.receive().await["type"], "pong");
    let mut config = ipfrs_interface::Config::default();
    config.rate_limit.enabled = true;
    (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 1);
    gateway.gateway.reload(&config).await.unwrap();
    for (seq, content) in [(1, "first"), (2, "second")] {
        let add = gateway.rpc("add").bearer_auth(&token).header("content-type", "application/octet-stream");
        assert_eq!(add.body(content).send().await.unwrap().status(), 200);
        assert_eq!(unlimited.receive().await["seq"], seq);
    }
    assert_eq!(limited.receive().await["payload"]["data"], json!({ "blockAdded": { "seq": 1 } }));
    // The connection serves other messages until the first event is paid, which takes a minute.
    for _ in 0..100 {
        limited.send(json!({ "type": "ping" }).to_string()).await;
        assert_eq!(limited.receive().await["type"], "pong");
    }
}

/// Returns `count` binary messages of a client, each of one byte.
fn one_byte_messages(count: usize) -> Vec<u8> {
    const FINAL_BINARY: u8 = 0x82;
    const MASKED: u8 = 0x80;
    [FINAL_BINARY, MASKED | 1, 0, 0, 0, 0, b'x'].repeat(count)
}

/// Returns the number of messages in the last acknowledgment.
fn acknowledged(received: &[u8]) -> usize {
    let text = String::from_utf8_lossy(received);
    let after = text.rsplit("\"messages\":").next().unwrap();
    after.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap_or(0)
}

#[tokio::test]
async fn burst_of_ingested_messages_waits_in_the_connection() {
    let gateway = start(|_| {}).await;
    let mut socket = Client::open(gateway.address(), "/ws/ingest?store=memory", &[]).await.unwrap();
    assert_eq!(socket.receive().await["type"], "ready");
    let (mut reader, mut writer) = socket.into_inner().into_split();
    let sending = tokio::spawn(async move { writer.write_all(&one_byte_messages(100_000)).await });
    let mut received = Vec::new();
    while acknowledged(&received) < BURST - 1 {
        assert!(reader.read_buf(&mut received).await.unwrap() > 0);
    }
    until_refused(async || gateway.get("/nothing").await).await;
    send_unlimited_requests(&gateway).await;
    let mut more = [0; 4_096];
    while let Ok(bytes) = reader.try_read(&mut more) {
        assert!(bytes > 0, "the connection stays open");
        received.extend_from_slice(&more[..bytes]);
    }
    assert!(acknowledged(&received) < 2 * BURST, "{}", acknowledged(&received));
    sending.abort();
}

#[tokio::test]
async fn client_that_waits_for_ingested_bytes_is_not_idle() {
    const MESSAGE: usize = 20_000;
    let gateway = start(|config| {
        (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 3 * MESSAGE as u64);
        config.ingest.idle_seconds = 2;
    })
    .await;
    let mut socket = Client::open(gateway.address(), "/ws/ingest?store=memory", &[]).await.unwrap();
    assert_eq!(socket.receive().await["type"], "ready");
    for _ in 0..6 {
        socket.message(Message::binary(vec![0; MESSAGE])).await;
    }
    while socket.receive().await["messages"] != 4 {}
    // Meanwhile, a client is idle for as long as is permitted.
    let bearer = format!("Bearer {}", local_token(&gateway));
    let idle = Client::open(gateway.address(), "/ws/ingest?store=memory", &[("authorization", &bearer)]).await;
    assert_eq!(idle.unwrap().close_code().await, 1008);
    assert!(arrived(&mut socket).is_empty());
}

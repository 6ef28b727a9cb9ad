//! Events over `/ws`.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use crate::harness::TestGateway;
use crate::websocket::Client;

async fn connect(gateway: &TestGateway) -> Client {
    Client::open(gateway.address(), "/ws", &[]).await.unwrap()
}

async fn subscribe(client: &mut Client, message: Value) -> Value {
    client.send(message.to_string()).await;
    client.receive().await
}

#[tokio::test]
async fn every_topic_has_its_events() {
    let gateway = TestGateway::start().await;
    let mut client = connect(&gateway).await;
    for topic in ["blocks", "pins", "operations", "gc"] {
        let answer = subscribe(&mut client, json!({"type": "subscribe", "topic": topic, "id": 7})).await;
        assert_eq!(
            (&answer["type"], &answer["topic"], &answer["id"]),
            (&"subscribed".into(), &topic.into(), &7.into())
        );
    }
    let cid = gateway.add("", "hello").await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.push(client.receive().await);
    }
    let of = |topic: &str| seen.iter().find(|event| event["topic"] == topic).unwrap().clone();
    assert_eq!(of("blocks")["data"], json!({"action": "added", "cid": cid, "size": 13}));
    assert_eq!(of("pins")["data"], json!({"action": "added", "cid": cid, "type": "recursive"}));
    let uploaded = gateway.request(Method::POST, "/v1/stream/upload?pin=false").body("bye").send().await.unwrap();
    let uploaded: Value = uploaded.json().await.unwrap();
    let mut states = Vec::new();
    while states.last() != Some(&Value::from("done")) {
        let event = client.receive().await;
        if event["topic"] == "operations" {
            assert_eq!(event["data"]["operation_id"], uploaded["operation_id"]);
            states.push(event["data"]["state"].clone());
        }
    }
    assert_eq!(states[0], "running");
    gateway.rpc_bytes("repo/gc").await;
    let (mut phases, mut removed) = (Vec::new(), None);
    while phases.last() != Some(&Value::from("done")) || removed.is_none() {
        let event = client.receive().await;
        match event["topic"].as_str() {
            Some("gc") => phases.push(event["data"]["phase"].clone()),
            Some("blocks") if event["data"]["action"] == "removed" => removed = Some(event["data"]["cid"].clone()),
            _ => {}
        }
    }
    assert_eq!((&phases[0], removed.unwrap()), (&"started".into(), uploaded["cid"].clone()));
    // A pin that stays as it is has no event, and keeps its name.
    gateway.rpc_json(&format!("pin/add?arg={cid}&name=x")).await;
    gateway.rpc_json(&format!("pin/add?arg={cid}")).await;
    let named = json!({"action": "added", "cid": cid, "type": "recursive", "name": "x"});
    assert_eq!(client.receive().await["data"], named);
    gateway.rpc_json(&format!("pin/rm?arg={cid}")).await;
    assert_eq!(client.receive().await["data"], json!({"action": "removed", "cid": cid}));
}

#[tokio::test]
async fn subscriptions_filter_resume_and_end() {
    let gateway = TestGateway::start().await;
    let mut client = connect(&gateway).await;
    let first = subscribe(&mut client, json!({"type": "subscribe", "topic": "blocks"})).await;
    let instance = first["instance"].clone();
    let cids = [gateway.put_block("", "a").await, gateway.put_block("", "b").await, gateway.put_block("", "c").await];
    for (seq, cid) in (1..).zip(&cids) {
        let event = client.receive().await;
        assert_eq!((event["seq"].as_u64(), &event["data"]["cid"]), (Some(seq), &cid.as_str().into()));
    }
    // A second client resumes behind the first event, and wants one block only.
    let mut second = connect(&gateway).await;
    let filter = json!({"cid": [cids[0], cids[2]], "action": "added"});
    let resume =
        json!({"type": "subscribe", "topic": "blocks", "filter": filter, "after": 1, "instance": instance, "id": "x"});
    assert_eq!(subscribe(&mut second, resume).await["seq"], 1);
    let event = second.receive().await;
    assert_eq!((&event["seq"], &event["data"]["cid"]), (&3.into(), &cids[2].as_str().into()));
    // Numbers of another process mean nothing.
    let foreign = json!({"type": "subscribe", "topic": "blocks", "after": 1, "instance": "0"});
    assert_eq!(subscribe(&mut second, foreign).await["seq"], 3);
    assert_eq!(second.receive().await, json!({"type": "lagged", "topic": "blocks", "missed": null}));
    let absent = json!({"type": "subscribe", "topic": "blocks", "filter": null, "after": null});
    assert_eq!(subscribe(&mut second, absent).await["seq"], 3);
    let ended = subscribe(&mut second, json!({"type": "unsubscribe", "topic": "blocks"})).await;
    assert_eq!(ended, json!({"type": "unsubscribed", "topic": "blocks"}));
    gateway.put_block("", "d").await;
    second.send(r#"{"type":"ping","id":"p"}"#).await;
    assert_eq!(second.receive().await, json!({"type": "pong", "id": "p"}));
    gateway.until_metric("ipfrs_websocket_messages_sent_total{topic=\"blocks\"}", |sent| sent == 5).await;
    assert_eq!(gateway.metric("ipfrs_websocket_connections_active").await, 2);
}

#[tokio::test]
async fn bad_messages_are_explained_and_change_nothing() {
    let gateway = TestGateway::start().await;
    let mut client = connect(&gateway).await;
    let long = "x".repeat(200);
    for (message, part) in [
        ("nonsense".to_owned(), "send messages such as"),
        ("[]".to_owned(), "send messages such as"),
        (json!({"type": "subscribe"}).to_string(), "topic"),
        (json!({"type": "subscribe", "topic": "block"}).to_string(), "the topics are blocks, pins, operations, gc"),
        (json!({"type": "subscribe", "topic": "gc", "filters": {}}).to_string(), "filters"),
        (json!({"type": "subscribe", "topic": "gc", "filter": {"cid": "x"}}).to_string(), "phase"),
        (json!({"type": "subscribe", "topic": "blocks", "filter": {"cid": "x"}}).to_string(), "content ID"),
        (json!({"type": "subscribe", "topic": "pins", "filter": {"name": 3}}).to_string(), "must be strings"),
        (
            json!({"type": "subscribe", "topic": "pins", "filter": {"type": "indirect"}}).to_string(),
            "direct, recursive",
        ),
        (json!({"type": "subscribe", "topic": "pins", "filter": {"name": []}}).to_string(), "no event would pass"),
        (json!({"type": "subscribe", "topic": "pins", "after": 5}).to_string(), "number 0"),
        (json!({"type": "ping", "id": long}).to_string(), "longer than 128"),
        (json!({"type": "subscribe", "topic": "pins", "filter": {"name": vec!["a"; 1001]}}).to_string(), "1000 values"),
    ] {
        client.send(message.clone()).await;
        let answer = client.receive().await;
        assert_eq!(answer["type"], "error", "{message}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{message}: {answer}");
    }
    // Errors quote at most 1,024 bytes.
    for (kind, topic) in [("é".repeat(20_000), "blocks"), ("subscribe".to_owned(), &*"é".repeat(20_000))] {
        client.send(json!({"type": kind, "topic": topic}).to_string()).await;
        let answer = client.receive().await;
        assert!(answer["message"].as_str().unwrap().len() < 1_100, "{answer}");
    }
    client.message(Message::binary(vec![0; 10])).await;
    assert_eq!(client.receive().await["code"], "invalid_input");
    client.message(Message::text("x".repeat(65_537))).await;
    assert_eq!(client.close_code().await, 1009);
}

/// Returns the close code after bytes that are no frames of a client (RFC 6455, 5).
async fn code_after(gateway: &TestGateway, bytes: &[u8]) -> u16 {
    let mut socket = connect(gateway).await.into_inner();
    socket.write_all(bytes).await.unwrap();
    let mut head = [0; 4];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(head[0], 0x88, "a close frame");
    u16::from_be_bytes([head[2], head[3]])
}

#[tokio::test]
async fn violations_of_the_protocol_have_their_close_codes() {
    let gateway = TestGateway::start().await;
    assert_eq!(code_after(&gateway, b"\x81\x02hi").await, 1002, "unmasked");
    // The closing handshake of a client ends without a reset.
    let mut socket = connect(&gateway).await.into_inner();
    socket.write_all(b"\x88\x82\0\0\0\0\x03\xe8").await.unwrap();
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"\x88\x02\x03\xe8");
    assert_eq!(code_after(&gateway, b"\xf1\x80\0\0\0\0").await, 1002, "reserved bits");
    assert_eq!(code_after(&gateway, b"\x83\x80\0\0\0\0").await, 1002, "an unknown operation");
    assert_eq!(code_after(&gateway, b"\x81\x82\0\0\0\0\xff\xff").await, 1007, "no UTF-8");
    assert_eq!(code_after(&gateway, b"\x81\xff\0\0\0\xff\0\0\0\0\0\0\0\0").await, 1009, "a huge frame");
    assert_eq!(code_after(&gateway, b"\x09\x80\0\0\0\0").await, 1002, "a fragmented ping");
    gateway.until_metric("ipfrs_websocket_connections_active", |active| active == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_without_data_end_the_connection() {
    let gateway = TestGateway::start().await;
    let (ping, pong) = (&b"\x89\x80\0\0\0\0"[..], &b"\x8a\x82\0\0\0\0hi"[..]);
    // A text that begins and is never continued.
    let fragments = [&b"\x01\x81\0\0\0\0{"[..], &b"\x00\x80\0\0\0\0".repeat(1_000)[..]].concat();
    for (frames, repeated) in [(ping, ping), (pong, pong), (&fragments[..], &fragments[7..])] {
        let (mut reader, mut writer) = connect(&gateway).await.into_inner().into_split();
        let reading = tokio::spawn(async move {
            let mut last = Vec::new();
            let mut piece = vec![0; 1 << 16];
            while let Ok(bytes @ 1..) = reader.read(&mut piece).await {
                last.extend_from_slice(&piece[..bytes]);
                last.drain(..last.len().saturating_sub(200));
            }
            last
        });
        let repeated = repeated.repeat(60_000 / repeated.len());
        let mut sent = frames.len();
        let mut result = writer.write_all(frames).await;
        while result.is_ok() {
            result = writer.write_all(&repeated).await;
            sent += repeated.len();
            assert!(sent < 64 << 20, "{frames:?} were read without end");
        }
        let last = reading.await.unwrap();
        assert!(String::from_utf8_lossy(&last).contains("than data"), "{last:?}");
    }
    gateway.until_metric("ipfrs_websocket_connections_active", |active| active == 0).await;
}

#[tokio::test]
async fn handshakes_from_pages_and_without_a_permit_are_refused() {
    let gateway = TestGateway::start_with(|config| config.websocket.max_connections_per_client = 2).await;
    let open = |headers: &'static [(&'static str, &'static str)]| Client::open(gateway.address(), "/ws", headers);
    assert_eq!(open(&[("origin", "https://evil.example")]).await.err(), Some(403));
    assert_eq!(open(&[("sec-fetch-site", "same-origin")]).await.err(), Some(403));
    assert_eq!(open(&[("sec-websocket-version", "7")]).await.err(), Some(426));
    let plain = gateway.get("/ws").await;
    assert_eq!((plain.status().as_u16(), plain.headers()["upgrade"].to_str().unwrap()), (426, "websocket"));
    let held = (open(&[]).await.ok().unwrap(), open(&[]).await.ok().unwrap());
    assert_eq!(open(&[]).await.err(), Some(429));
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_websockets_per_client\"}").await, 1);
    drop(held);
    gateway.until_metric("ipfrs_websocket_connections_active", |active| active == 0).await;
    assert!(open(&[]).await.is_ok());
}

#[tokio::test]
async fn silent_clients_are_pinged_and_dropped() {
    let gateway = TestGateway::start_with(|config| config.websocket.heartbeat_seconds = 2).await;
    // This client responds to pings while it reads.
    let mut live = connect(&gateway).await;
    let mut dead = connect(&gateway).await.into_inner();
    let mut received = Vec::new();
    let mut ended = std::pin::pin!(dead.read_to_end(&mut received));
    let mut pings = 0;
    loop {
        tokio::select! {
            _ = &mut ended => break,
            message = live.next() => pings += u32::from(matches!(message, Some(Message::Ping(_)))),
        }
    }
    assert!(received.starts_with(&[0x89, 0]), "a ping: {received:?}");
    assert!(pings > 0);
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"websocket_heartbeat\"}").await, 1);
    live.send(r#"{"type":"ping"}"#).await;
    assert!(live.next().await.is_some());
}

#[tokio::test]
async fn clients_that_read_nothing_delay_no_writer() {
    let gateway = TestGateway::start_with(|config| config.websocket.send_timeout_seconds = 1).await;
    let mut slow = connect(&gateway).await;
    subscribe(&mut slow, json!({"type": "subscribe", "topic": "blocks"})).await;
    let mut stuck = connect(&gateway).await;
    subscribe(&mut stuck, json!({"type": "subscribe", "topic": "blocks"})).await;
    // More events than the sockets of the clients hold, and more than the log.
    let mut stored = 0;
    while gateway.metric("ipfrs_refusals_total{limit=\"write_timeout\"}").await == 0 {
        let blocks: Vec<_> = (0..1_000).map(|n| json!({"data": base64(&format!("{stored} {n}"))})).collect();
        gateway.v1_json("block/batch/put", &json!({"blocks": blocks})).await;
        stored += 1_000;
    }
    gateway.until_metric("ipfrs_websocket_connections_active", |active| active == 0).await;
    drop((slow, stuck));
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(text)
}

#[tokio::test]
async fn draining_closes_with_a_code() {
    let gateway = TestGateway::start().await;
    let mut client = connect(&gateway).await;
    subscribe(&mut client, json!({"type": "subscribe", "topic": "gc"})).await;
    gateway.shutdown();
    assert_eq!(client.close_code().await, 1001);
    gateway.stop().await;
}

//! `/ws/ingest`: objects that arrive as messages.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::harness::TestGateway;
use crate::websocket::Client;

async fn open(gateway: &TestGateway, query: &str) -> Client {
    Client::open(gateway.address(), &format!("/ws/ingest?{query}"), &[]).await.unwrap()
}

/// Opens a connection when the permit of the one before is free again.
async fn open_in_turn(gateway: &TestGateway, query: &str) -> Client {
    loop {
        match Client::open(gateway.address(), &format!("/ws/ingest?{query}"), &[]).await {
            Ok(client) => return client,
            Err(status) => assert_eq!(status, 429),
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until so many messages are acknowledged. Returns the size of the object.
async fn acknowledged(client: &mut Client, messages: u64) -> u64 {
    loop {
        let ack = client.receive().await;
        assert_eq!(ack["type"], "ack", "{ack}");
        if ack["messages"] == messages {
            return ack["bytes"].as_u64().unwrap();
        }
    }
}

/// Sends messages one after the other, each after the acknowledgment of the last.
async fn send_each(client: &mut Client, messages: &[Vec<u8>]) {
    for (number, message) in messages.iter().enumerate() {
        client.message(Message::binary(message.clone())).await;
        acknowledged(client, number as u64 + 1).await;
    }
}

async fn end(client: &mut Client) -> Value {
    client.send(r#"{"type":"end"}"#).await;
    let stored = loop {
        let reply = client.receive().await;
        if reply["type"] != "ack" {
            break reply;
        }
    };
    assert_eq!(client.close_code().await, 1000);
    stored
}

/// Returns messages of different lengths, which together have more than a leaf and a record of the journal.
fn messages() -> Vec<Vec<u8>> {
    [1, 1, 0, 1_000, 20_000, 70_000, 3, 300_000, 1].into_iter().enumerate().map(|(n, len)| vec![n as u8; len]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_become_one_object_in_each_store() {
    let gateway = TestGateway::start().await;
    let (messages, content) = (messages(), messages().concat());
    for store in ["memory", "filesystem", "ipfs"] {
        let mut client = open(&gateway, &format!("store={store}&name=a.b")).await;
        let ready = client.receive().await;
        assert_eq!((&ready["type"], &ready["store"], &ready["bytes"]), (&json!("ready"), &json!(store), &json!(0)));
        send_each(&mut client, &messages).await;
        let stored = end(&mut client).await;
        assert_eq!((&stored["type"], &stored["messages"]), (&json!("stored"), &json!(messages.len())), "{stored}");
        assert_eq!(stored["bytes"], content.len());
        match store {
            "filesystem" => {
                assert_eq!(fs::read(stored["path"].as_str().unwrap()).unwrap(), content);
                assert_eq!(fs::read(gateway.repo().path().join("ingest/a.b")).unwrap(), content);
            }
            "ipfs" => {
                assert_eq!(gateway.rpc_bytes("files/read?arg=/ingest/a.b").await, content);
                assert_eq!(gateway.content(&format!("/ipfs/{}", stored["cid"].as_str().unwrap())).await, content);
            }
            _ => assert_eq!((&stored["path"], &stored["cid"]), (&Value::Null, &Value::Null)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_messages_in_memory_take_the_memory_of_their_content() {
    const MEMORY: &str = "ipfrs_request_memory_bytes";
    let gateway = TestGateway::start().await;
    let mut client = open(&gateway, "store=memory").await;
    assert_eq!(client.receive().await["type"], "ready");
    for _ in 0..4_096 {
        client.message(Message::binary("x")).await;
    }
    assert_eq!(acknowledged(&mut client, 4_096).await, 4_096);
    let held = gateway.metric(MEMORY).await;
    assert!((4_096..100_000).contains(&held), "{held}");
    client.message(Message::binary(vec![0; 1 << 20])).await;
    acknowledged(&mut client, 4_097).await;
    let held = gateway.metric(MEMORY).await;
    assert!((1 << 20..1_200_000).contains(&held), "{held}");
    end(&mut client).await;
    gateway.assert_metric(MEMORY, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_share_little_memory_store_all_messages() {
    const MESSAGE: usize = 100_000;
    async fn store(gateway: &TestGateway, number: u8) {
        let mut client = open(gateway, &format!("name=object-{number}")).await;
        assert_eq!(client.receive().await["type"], "ready");
        for _ in 0..64 {
            client.message(Message::binary(vec![number; MESSAGE])).await;
        }
        assert_eq!(end(&mut client).await["bytes"], 64 * MESSAGE);
        let content = gateway.rpc_bytes(&format!("files/read?arg=/ingest/object-{number}")).await;
        assert!(content.len() == 64 * MESSAGE && content.iter().all(|byte| *byte == number));
    }
    let gateway = TestGateway::start_with(|config| {
        config.ingest.max_message_bytes = MESSAGE;
        config.ingest.max_memory_bytes = MESSAGE + (2 << 20);
    })
    .await;
    futures::future::join_all((0..8).map(|number| store(&gateway, number))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_continued_only_with_append_and_by_one_client() {
    let gateway = TestGateway::start().await;
    for store in ["filesystem", "ipfs"] {
        let mut first = open(&gateway, &format!("store={store}&name=a")).await;
        first.receive().await;
        first.message(Message::binary("one")).await;
        assert_eq!(acknowledged(&mut first, 1).await, 3);
        let mut second = open(&gateway, &format!("store={store}&name=a&append=true")).await;
        assert_eq!(second.receive().await["code"], "conflict");
        assert_eq!(second.close_code().await, 1008);
        end(&mut first).await;
        let mut second = open(&gateway, &format!("store={store}&name=a")).await;
        assert!(second.receive().await["message"].as_str().unwrap().contains("append=true"));
        let mut third = open(&gateway, &format!("store={store}&name=a&append=true")).await;
        assert_eq!(third.receive().await["bytes"], 3);
        third.message(Message::binary("two")).await;
        assert_eq!(acknowledged(&mut third, 1).await, 6);
        end(&mut third).await;
    }
    assert_eq!(gateway.rpc_bytes("files/read?arg=/ingest/a").await, "onetwo");
    let file = gateway.repo().path().join("ingest/a");
    assert_eq!(fs::read(&file).unwrap(), b"onetwo");
    // Nothing is acknowledged into a file that was removed.
    let mut fourth = open(&gateway, "store=filesystem&name=a&append=true").await;
    fourth.receive().await;
    fs::remove_file(&file).unwrap();
    fourth.message(Message::binary("lost")).await;
    assert_eq!(fourth.receive().await["code"], "conflict");
    assert_eq!(fourth.close_code().await, 1008);
    for change in ["mv?arg=/ingest/b&arg=/moved", "rm?arg=/ingest/b", "cp?arg=/ingest/a&arg=/ingest/b&force=true"] {
        let mut fifth = open(&gateway, "name=b").await;
        fifth.receive().await;
        fifth.message(Message::binary("one")).await;
        assert_eq!(acknowledged(&mut fifth, 1).await, 3);
        gateway.rpc_bytes(&format!("files/{change}")).await;
        fifth.message(Message::binary("lost")).await;
        assert_eq!(fifth.receive().await["code"], "conflict", "{change}");
        assert_eq!(fifth.close_code().await, 1008);
    }
}

/// The journal of a killed daemon has bytes that its tree lacks.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_bytes_in_a_journal_are_recovered() {
    let gateway = TestGateway::start().await;
    let mut client = open(&gateway, "name=a").await;
    client.receive().await;
    send_each(&mut client, &[vec![1; 10], vec![2; 20]]).await;
    // A kill at this point leaves the journal, and an empty file in the tree.
    let journals = gateway.repo().path().join("ingest-journals");
    let journal = fs::read(journals.join("a")).unwrap();
    end(&mut client).await;
    assert!(!journals.join("a").exists());
    gateway.rpc_bytes("files/rm?arg=/ingest/a").await;
    let form = crate::multipart::Form::new().file("data", "");
    assert_eq!(gateway.post_form("files/write?arg=/ingest/a&create=true", form).await.status(), 200);
    let repo = gateway.stop().await;
    fs::write(journals.join("a"), &journal).unwrap();
    fs::write(journals.join("removed"), &journal).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    let content = [vec![1; 10], vec![2; 20]].concat();
    assert_eq!(gateway.rpc_bytes("files/read?arg=/ingest/a").await, content);
    assert_eq!(fs::read_dir(&journals).unwrap().count(), 0);
    // A journal whose bytes the tree has changes nothing.
    let repo = gateway.stop().await;
    fs::write(journals.join("a"), &journal).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/ingest/a").await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_journal_is_kept_and_shown_in_health() {
    let gateway = TestGateway::start().await;
    let mut client = open(&gateway, "name=a").await;
    client.receive().await;
    send_each(&mut client, &[vec![7; 1_000], vec![7; 1_000]]).await;
    let journals = gateway.repo().path().join("ingest-journals");
    let mut journal = fs::read(journals.join("a")).unwrap();
    end(&mut client).await;
    gateway.rpc_bytes("files/rm?arg=/ingest/a").await;
    let form = crate::multipart::Form::new().file("data", "");
    assert_eq!(gateway.post_form("files/write?arg=/ingest/a&create=true", form).await.status(), 200);
    let repo = gateway.stop().await;
    // In the first record.
    journal[500] ^= 1;
    fs::write(journals.join("a"), &journal).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(gateway.rpc_bytes("files/read?arg=/ingest/a").await, "");
    let health: Value = serde_json::from_slice(&gateway.content("/health").await).unwrap();
    let problem = health["problems"][0].as_str().unwrap();
    assert!(problem.contains("acknowledged bytes of /ingest/a are lost"), "{health}");
    assert_eq!(fs::read(journals.join("a~damaged")).unwrap(), journal);
    assert!(!journals.join("a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_and_messages_are_refused() {
    let gateway = TestGateway::start_with(|config| {
        config.ingest.max_message_bytes = 2_000;
        config.ingest.max_object_bytes = 3_000;
        config.ingest.max_files_bytes = 1_500;
        config.ingest.max_connections = 1;
    })
    .await;
    let status = async |query: &str| Client::open(gateway.address(), &format!("/ws/ingest?{query}"), &[]).await.err();
    for query in ["store=disk", "name=../a", "name=a%2Fb", "name=", "append=yes", "append=true", "x=1", "name=a&name=b"]
    {
        assert_eq!(status(query).await, Some(400), "{query}");
    }
    assert_eq!(gateway.get("/ws/ingest").await.status(), 426);
    let failed = async |store: &str, messages: Vec<Message>| {
        let mut client = open_in_turn(&gateway, &format!("store={store}")).await;
        assert_eq!(client.receive().await["type"], "ready");
        assert_eq!(status("").await, Some(429));
        for message in messages {
            client.message(message).await;
        }
        client.close_code().await
    };
    assert_eq!(failed("memory", vec![Message::text("hello")]).await, 1003);
    for store in ["memory", "ipfs"] {
        assert_eq!(failed(store, vec![Message::binary(vec![0; 2_000]); 2]).await, 1009, "{store}");
    }
    assert_eq!(failed("filesystem&name=refused", vec![Message::binary(vec![0; 1_600])]).await, 1013);
    while gateway.repo().path().join("ingest/refused").exists() {
        tokio::task::yield_now().await;
    }
    // Messages that have arrived before the one that does not fit are stored.
    let mut client = open_in_turn(&gateway, "store=ipfs&name=kept").await;
    assert_eq!(client.receive().await["type"], "ready");
    for _ in 0..2 {
        client.message(Message::binary(vec![1; 2_000])).await;
    }
    assert_eq!(acknowledged(&mut client, 1).await, 2_000);
    assert_eq!(client.close_code().await, 1009);
    let mut client = open_in_turn(&gateway, "store=memory").await;
    assert_eq!(client.receive().await["type"], "ready");
    client.message(Message::binary(vec![0; 2_001])).await;
    assert_eq!(client.receive().await["type"], "ack");
    assert_eq!(client.receive().await["code"], "too_large");
    assert_eq!(client.close_code().await, 1009);
    let stat = gateway.rpc_json("files/stat?arg=/ingest/kept").await;
    assert_eq!(stat["Size"], 2_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn basic_authentication_is_required_if_configured() {
    let gateway = TestGateway::start_with(|config| {
        config.ingest.user = "writer".into();
        // The hash of "password".
        config.ingest.password_sha256 = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8".into();
    })
    .await;
    let open = async |credentials: Option<&str>| {
        let header = credentials.map(|text| format!("Basic {}", STANDARD.encode(text)));
        let headers: Vec<_> = header.iter().map(|value| ("authorization", value.as_str())).collect();
        Client::open(gateway.address(), "/ws/ingest", &headers).await.err()
    };
    assert_eq!(open(None).await, Some(401));
    for wrong in ["writer:passwort", "reader:password", "writer", ":"] {
        assert_eq!(open(Some(wrong)).await, Some(401), "{wrong}");
    }
    assert_eq!(open(Some("writer:password")).await, None);
    let refused = gateway.get("/ws/ingest").await;
    assert_eq!(refused.headers()["www-authenticate"], "Basic realm=\"ingest\"");
}

#[tokio::test]
async fn guesses_of_the_password_are_limited() {
    let gateway = TestGateway::start_with(|config| {
        config.ingest.user = "writer".into();
        // The hash of "password".
        config.ingest.password_sha256 = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8".into();
        config.auth.max_failures_per_minute = 3;
    })
    .await;
    let ask = async |password: &str| {
        let request = gateway.request(reqwest::Method::GET, "/ws/ingest").basic_auth("writer", Some(password));
        request.send().await.unwrap()
    };
    for guess in ["a", "b", "c"] {
        assert_eq!(ask(guess).await.status(), 401);
    }
    // The right one is refused unread, so that a client that guesses does not learn it.
    for password in ["d", "password"] {
        let refused = ask(password).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers().get_all("retry-after").iter().count(), 1);
    }
    // No credentials are no guess.
    assert_eq!(gateway.get("/ws/ingest").await.status(), 401);
}

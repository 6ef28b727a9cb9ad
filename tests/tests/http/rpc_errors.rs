//! Errors in the words of Kubo, which scripts compare.

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

const PEM: &str = include_str!("../../../crates/ipfrs-ipns/tests/keys/ed25519.pem");
const NAME: &str = "k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8";

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_commands_begin_with_those_of_kubo() {
    let gateway = TestGateway::start().await;
    let lines = ndjson(gateway.post_form("dag/put", Form::new().file("", "{\"a\":1}")).await).await;
    let node = lines[0]["Cid"]["/"].as_str().unwrap();
    // Nothing listens on this port.
    let added = gateway.rpc("pin/remote/service/add?arg=s&arg=http://127.0.0.1:1&arg=key").send().await.unwrap();
    assert_eq!(added.status(), 200);
    let form = Form::new().file("", "{\"Links\":[]}");
    let lines = ndjson(gateway.post_form("dag/put?store-codec=dag-pb", form).await).await;
    let empty = lines[0]["Cid"]["/"].as_str().unwrap();
    for (command, text) in [
        (&*format!("cat?arg={node}"), "unknown node type"),
        (&format!("cat?arg={empty}"), "proto: required field \"Type\" not set"),
        (&format!("get?arg={node}"), "unknown node type"),
        (&format!("get?arg={node}&compress=true"), "unknown node type"),
        ("pin/remote/ls?service=s", "empty response from remote pinning service: "),
        ("id?peerid-base=nope", "unsupported multibase encoding: nope"),
        ("key/gen?arg=x&ipns-base=nope", "unsupported multibase encoding: nope"),
        ("key/list?ipns-base=nope", "cannot get key encoder: unsupported multibase encoding: nope"),
    ] {
        let message = rpc_failure(gateway.rpc(command).send().await.unwrap()).await;
        assert!(message.starts_with(text), "{command}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_uploads_begin_with_those_of_kubo() {
    let gateway = TestGateway::start().await;
    let big = vec![0_u8; 3_000_000];
    for (command, content, text) in [
        ("add?chunker=size-0", &b"x"[..], "chunker size must be greater than 0"),
        ("add?chunker=size-9999999", b"x", "chunker parameters may not exceed the maximum chunk size of 2096896"),
        ("add?max-hamt-fanout=7", b"x", "HAMT fanout must be a power of 2, between 8 and 1024 (got 7)"),
        ("block/put", &big, "produced block is over 2MiB: big blocks can't be exchanged with other peers."),
        ("dag/put?hash=nope", b"{}", "unknown multicodec: \"nope\""),
        (
            "key/import?arg=x",
            PEM.as_bytes(),
            "unexpected PEM block for format=libp2p-protobuf-cleartext: try again with",
        ),
        (&*format!("name/put?arg={NAME}"), b"x", "invalid IPNS record: record is malformed"),
    ] {
        let message = rpc_failure(gateway.post_form(command, Form::new().file("f", content)).await).await;
        assert!(message.starts_with(text), "{command}: {message}");
    }
}

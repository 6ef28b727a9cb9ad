//! Errors in the words of Kubo, which scripts compare.

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

const PEM: &str = include_str!("../../../crates/ipfrs-ipns/tests/keys/ed25519.pem");
const ABSENT: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
/// A node with a link to a block that is not stored.
const BROKEN: &str = r#"{"to":{"/":"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}}"#;
const NAME: &str = "k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8";

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_commands_begin_with_those_of_kubo() {
    let gateway = TestGateway::start().await;
    let lines = ndjson(gateway.post_form("dag/put", Form::new().file("", "{\"a\":1}")).await).await;
    let node = lines[0]["Cid"]["/"].as_str().unwrap();
    let lines = ndjson(gateway.post_form("dag/put", Form::new().file("", BROKEN)).await).await;
    let broken = lines[0]["Cid"]["/"].as_str().unwrap();
    let unknown = gateway.put_block("cid-codec=0x90", "x").await;
    let missing = format!("block was not found locally (offline): ipld: could not find {ABSENT}");
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
        (&format!("files/stat?arg=/ipfs/{node}"), "not unixfs node (proto or raw)"),
        (&format!("dag/stat?arg={broken}"), &format!("error traversing DAG: {missing}")),
        (&format!("dag/stat?arg={broken}&progress=false"), &format!("error traversing DAG: {missing}")),
        (&format!("dag/stat?arg={ABSENT}"), &missing),
        (&format!("pin/add?arg={broken}"), &format!("pin: {missing}")),
        (&format!("pin/add?arg={broken}&progress=true"), &format!("pin: {missing}")),
        (&format!("pin/add?arg={broken}/to"), &format!("pin: {missing}")),
        (&format!("pin/ls?arg={broken}/to"), &format!("path '{broken}/to' is not pinned")),
        (&format!("pin/rm?arg={broken}/to"), "not pinned or pinned indirectly"),
        (
            &format!("pin/add?arg={unknown}"),
            "pin: could not choose a decoder: no decoder registered for multicodec code",
        ),
        ("pin/remote/ls?service=s", "empty response from remote pinning service: "),
        ("id?peerid-base=nope", "unsupported multibase encoding: nope"),
        ("key/gen?arg=x&ipns-base=nope", "unsupported multibase encoding: nope"),
        ("key/list?ipns-base=nope", "cannot get key encoder: unsupported multibase encoding: nope"),
        ("id?peerid-base=", "empty multibase encoding"),
        ("key/list?ipns-base=", "cannot get key encoder: empty multibase encoding"),
        // The prefix of the identity base.
        ("key/list?ipns-base=%00", "cannot get key encoder: unsupported multibase encoding: \0"),
        ("block/stat?arg=bafkqaaa&cid-base=%00", "unsupported multibase encoding: \0"),
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

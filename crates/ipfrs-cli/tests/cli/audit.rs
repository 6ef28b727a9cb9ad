//! The audit log: each change has one line, with its outcome, whatever the front-end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, Place};

const SETTINGS: &[u8] = b"[auth]\nenabled = true\n[log]\nformat = \"json\"\n";

/// An identity block, which is never stored.
const IDENTITY: &str = "bafkqaaa";
/// A block that is not in the store.
const ABSENT: &str = "bafybeie5gq4jxvzmsym6hjlwxej4rwdoxt7wadqvmmwbqi7r27fclha2va";

/// A binary message of a WebSocket client.
const HELLO: &[u8] = b"\x82\x85\0\0\0\0hello";
const CID_OF_HELLO: &str = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";

/// A daemon with authentication, and a client with a key that may do everything.
struct Audited {
    daemon: Daemon,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    token: String,
}

/// Response to a request: status, location and body.
struct Response {
    status: String,
    location: String,
    body: String,
}

impl Audited {
    fn start(place: &Place) -> Self {
        let token = place.ok(&["auth", "key", "create", "-s", "admin"]).trim().to_owned();
        place.write("auth.toml", SETTINGS);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { daemon: place.start(&["--config", "auth.toml"]), client, runtime, token }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Response {
        let (method, body): (reqwest::Method, Vec<u8>) = (method.parse().unwrap(), body.into());
        let request = self.client.request(method, format!("{}{path}", self.daemon.url())).bearer_auth(&self.token);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.runtime.block_on(async {
            let response = request.body(body).send().await.unwrap();
            let status = response.status().as_u16().to_string();
            let location = response.headers().get("location").map(|place| place.to_str().unwrap().to_owned());
            let body = String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned();
            Response { status, location: location.unwrap_or_default(), body }
        })
    }

    fn graphql(&self, document: &str) -> Response {
        let body = serde_json::json!({ "query": document }).to_string();
        self.send("POST", "/graphql", &[("content-type", "application/json")], body)
    }

    /// Calls a method that takes one message, with gRPC-Web.
    fn call(&self, method: &str, message: &[u8]) {
        self.call_with(method, &[message]);
    }

    /// Calls a method that takes a stream, with gRPC-Web.
    fn call_with(&self, method: &str, messages: &[&[u8]]) {
        let mut body: Vec<u8> = Vec::new();
        for message in messages {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            body.extend([&[0][..], &length, *message].concat());
        }
        self.send("POST", &format!("/ipfrs.{method}"), &[("content-type", "application/grpc-web+proto")], body);
    }

    /// Opens a connection that sends an object.
    fn ingest(&self, query: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.daemon.url().strip_prefix("http://").unwrap()).unwrap();
        let upgrade = format!(
            "GET /ws/ingest?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token
        );
        socket.write_all(upgrade.as_bytes()).unwrap();
        let mut head = [0; 12];
        socket.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 101");
        socket
    }

    /// Checks the next line of the audit log.
    fn expect(&mut self, what: &str, target: &str, status: &str) {
        let line = self.daemon.wait_for_log("\"audit\"");
        let parsed: Value = serde_json::from_str(&line).unwrap();
        let field = |name: &str| match &parsed["fields"][name] {
            Value::Null => parsed[name].as_str().unwrap_or_default().to_owned(),
            found => found.as_str().unwrap_or_default().to_owned(),
        };
        assert_eq!((field("what"), field("status")), (what.to_owned(), status.to_owned()), "{line}");
        assert!(field("object").contains(target), "{target}: {line}");
        assert!(field("principal").starts_with("key:"), "{line}");
        assert!(!field("request_id").is_empty(), "{line}");
    }
}

/// Returns the field with this number of a message, which is a text.
fn text(number: u8, value: &str) -> Vec<u8> {
    [&[(number << 3) | 2, u8::try_from(value.len()).unwrap()][..], value.as_bytes()].concat()
}

/// Reads until `text` has arrived.
fn read_until(socket: &mut TcpStream, text: &[u8]) {
    let mut received = Vec::new();
    while !received.windows(text.len()).any(|window| window == text) {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        received.extend_from_slice(&byte);
    }
}

#[test]
fn changes_over_http_have_one_line_with_their_outcome() {
    let place = Place::new();
    let mut audited = Audited::start(&place);
    let json = [("content-type", "application/json")];

    let tus = [("tus-resumable", "1.0.0"), ("upload-length", "5")];
    let begun = audited.send("POST", "/v1/stream/upload", &tus, "");
    assert_eq!(begun.status, "201", "{}", begun.body);
    audited.expect("/v1/stream/upload", "POST /v1/stream/upload", "201");
    let part =
        [("tus-resumable", "1.0.0"), ("upload-offset", "0"), ("content-type", "application/offset+octet-stream")];
    let sent = audited.send("PATCH", &begun.location, &part, "hello");
    assert!(sent.status.starts_with('2'), "{}: {}", sent.status, sent.body);
    let finished = format!("PATCH {} QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX", begun.location);
    audited.expect("/v1/stream/upload/{id}", &finished, &sent.status);

    let file = [("content-type", "application/octet-stream")];
    assert_eq!(audited.send("POST", "/v1/stream/upload", &file, "text").status, "200");
    let stored = "POST /v1/stream/upload QmY2T5EfgLn8qWCt8eus6VX1gJuAp1nmUSdmoehgMxznAf";
    audited.expect("/v1/stream/upload", stored, "200");

    let first = "POST /v1/block/batch/put bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";
    for (body, stored) in [
        (r#"{"blocks":[{"data":"aGVsbG8="}]}"#, first.to_owned()),
        (r#"{"blocks":[{"data":"aGVsbG8="},{"data":"YQ=="}]}"#, format!("{first} and 1 more")),
    ] {
        let put = audited.send("POST", "/v1/block/batch/put", &json, body);
        assert_eq!(put.status, "200", "{}", put.body);
        audited.expect("/v1/block/batch/put", &stored, "200");
    }

    let wanted = format!(r#"{{"cid":"{IDENTITY}"}}"#);
    let pinned = audited.send("POST", "/pinning/v1/pins", &json, wanted);
    assert_eq!(pinned.status, "202", "{}", pinned.body);
    audited.expect("/pinning/v1/pins", &format!("POST /pinning/v1/pins {IDENTITY}"), "202");
    let request: Value = serde_json::from_str(&pinned.body).unwrap();
    let replaced = format!("/pinning/v1/pins/{}", request["requestid"].as_str().unwrap());
    let wanted = format!(r#"{{"cid":"{IDENTITY}","name":"new"}}"#);
    assert_eq!(audited.send("POST", &replaced, &json, wanted).status, "202");
    audited.expect("/pinning/v1/pins/{requestid}", &format!("POST {replaced} {IDENTITY}"), "202");

    let key = audited.send("POST", "/v1/auth/keys", &json, r#"{"name":"k","scopes":["read"]}"#);
    assert!(key.status.starts_with('2'), "{}: {}", key.status, key.body);
    let created: Value = serde_json::from_str(&key.body).unwrap();
    let stored = format!("POST /v1/auth/keys {}", created["key"]["id"].as_str().unwrap());
    audited.expect("/v1/auth/keys", &stored, &key.status);

    // A connection has a line at its end, and not each of its messages.
    let mut ended = audited.ingest("name=ended");
    ended.write_all(HELLO).unwrap();
    ended.write_all(b"\x81\x8e\0\0\0\0{\"type\":\"end\"}").unwrap();
    audited.expect("/ws/ingest", &format!("GET /ws/ingest ended {CID_OF_HELLO}"), "101");
    let mut left = audited.ingest("name=left");
    left.write_all(HELLO).unwrap();
    read_until(&mut left, b"\"ack\"");
    drop(left);
    audited.expect("/ws/ingest", &format!("GET /ws/ingest left {CID_OF_HELLO}"), "101");
    let mut wrong = audited.ingest("name=wrong");
    wrong.write_all(HELLO).unwrap();
    wrong.write_all(b"\x81\x81\0\0\0\0x").unwrap();
    audited.expect("/ws/ingest", &format!("GET /ws/ingest wrong {CID_OF_HELLO}"), "invalid_input");
    let existing = audited.ingest("name=ended");
    audited.expect("/ws/ingest", "GET /ws/ingest ended", "conflict");
    // The daemon would wait for clients that do not close.
    drop((ended, wrong, existing));

    audited.daemon.signal(Signal::TERM);
    let (_, log) = audited.daemon.wait();
    assert!(!log.contains("\"audit\""), "a change has two lines: {log}");
}

#[test]
fn rpc_changes_have_one_line_with_what_they_stored() {
    let place = Place::new();
    let mut audited = Audited::start(&place);
    let file = [("content-type", "application/octet-stream")];
    let part = |kind: &str, body: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n{kind}\r\n{body}\r\n")
    };
    let [media, trailers] = [("content-type", "multipart/form-data; boundary=x"), ("te", "trailers")];
    let raw = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";
    for (command, query, stored) in [
        ("add", "", "QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX"),
        ("add", "?silent=true&wrap-with-directory=true", "QmSjwuQC95jZLLUydxm8iAy3PvxHYpHkM683z2afGWsoQ8 and 1 more"),
        ("block/put", "", raw),
        ("dag/put", "?input-codec=raw&store-codec=raw", raw),
    ] {
        let path = format!("/api/v0/{command}");
        let added = audited.send("POST", &format!("{path}{query}"), &[media], part("", "hello") + "--x--\r\n");
        assert_eq!(added.status, "200", "{}", added.body);
        audited.expect(&path, &format!("POST {path} {stored}"), "200");
    }
    // A CAR without blocks, whose root is an identity block.
    let car = b"\x19\xa2\x65roots\x81\xd8\x2a\x45\x00\x01\x55\x00\x00\x67version\x01";
    let imported = audited.send("POST", "/api/v0/dag/import", &file, &car[..]);
    assert_eq!(imported.status, "200", "{}", imported.body);
    audited.expect("/api/v0/dag/import", &format!("POST /api/v0/dag/import {IDENTITY}"), "200");
    // The head of the response is sent before the import fails.
    let link = part("Content-Type: application/symlink\r\n", &"x".repeat(5_000));
    let form = [part("", "hello"), link, "--x--\r\n".to_owned()].concat();
    let failed = audited.send("POST", "/api/v0/add?progress=true", &[media, trailers], form);
    assert_eq!(failed.status, "200", "{}", failed.body);
    audited.expect("/api/v0/add", "POST /api/v0/add", "too_large");

    audited.daemon.signal(Signal::TERM);
    let (_, log) = audited.daemon.wait();
    assert!(!log.contains("\"audit\""), "a change has two lines: {log}");
}

#[test]
fn changes_over_graphql_and_grpc_have_one_line_with_their_outcome() {
    let place = Place::new();
    let mut audited = Audited::start(&place);

    let added = audited.graphql("mutation { addBlock(data: \"aGVsbG8=\") { cid } }");
    let added: Value = serde_json::from_str(&added.body).unwrap();
    let cid = added["data"]["addBlock"]["cid"].as_str().unwrap_or_else(|| panic!("{added}")).to_owned();
    audited.expect("graphql addBlock", &cid, "ok");
    let part = |head: &str, body: &str| format!("--x\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n");
    let query =
        r#"{"query":"mutation($f: Upload!) { addFile(file: $f, name: \"n\") { cid } }","variables":{"f":null}}"#;
    let file = [
        part("name=\"operations\"", query),
        part("name=\"map\"", r#"{"0":["variables.f"]}"#),
        part("name=\"0\"; filename=\"a\"", "hello"),
        "--x--\r\n".to_owned(),
    ];
    let multipart = [("content-type", "multipart/form-data; boundary=x")];
    let added = audited.send("POST", "/graphql", &multipart, file.concat());
    audited.expect("graphql addFile", "n QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX", "ok");
    assert!(added.body.contains("QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX"), "{}", added.body);
    let both = format!("mutation {{ pin(path: \"/ipfs/{cid}\") deleteBlock(cid: \"{ABSENT}\") }}");
    let refused: Value = serde_json::from_str(&audited.graphql(&both).body).unwrap();
    let code = refused["errors"][0]["extensions"]["code"].as_str().unwrap_or_else(|| panic!("{refused}")).to_owned();
    audited.expect("graphql pin", &format!("/ipfs/{cid}"), "ok");
    audited.expect("graphql deleteBlock", ABSENT, &code);

    audited.call("block.v1.BlockService/PutBlock", &text(1, "another"));
    let cid_of_another = "bafkreifoisfmq3corzg6yzcxffyi55ayooxhtrw77bhp64zwbgeuq7yi4u";
    audited.expect("/ipfrs.block.v1.BlockService/PutBlock", cid_of_another, "OK");
    let blocks = ["first", "second", "third"].map(|data| text(1, data));
    audited.call_with("block.v1.BlockService/BatchPutBlocks", &blocks.each_ref().map(Vec::as_slice));
    let stored = "bafkreifhsn5wjogkuwhqg4q3w25m6xdyzmrv727a44frxbgntfkbiynary and 2 more";
    audited.expect("/ipfrs.block.v1.BlockService/BatchPutBlocks", stored, "OK");
    // Blocks of a stream are stored in any order. What only reads is not noted.
    let operation = |number, block: &[u8]| text(number, str::from_utf8(block).unwrap());
    let [get, put] = [operation(2, &text(1, ABSENT)), operation(3, &text(1, "streamed"))];
    audited.call_with("block.v1.BlockService/StreamBlocks", &[&get, &put, &put]);
    let streamed = "bafkreiexu6gabayvkt34zf2f5d3hglw47nlrz5kivdiswsfg4p6ddzpd4y and 1 more";
    audited.expect("/ipfrs.block.v1.BlockService/StreamBlocks", streamed, "OK");
    audited.call("dag.v1.DagService/PutDag", &text(1, r#"{"a":1}"#));
    let node = "bafyreihltcnuuyqp2jm24aqydpnlj7b6w3ogwrplomrjtg5rifv44mmjey";
    audited.expect("/ipfrs.dag.v1.DagService/PutDag", node, "OK");
    audited.call_with("file.v1.FileService/AddFile", &[&text(1, ""), &text(2, "hello")]);
    let file = "QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX";
    audited.expect("/ipfrs.file.v1.FileService/AddFile", file, "OK");
    // A tensor "t" of one Boolean.
    audited
        .call_with("tensor.v1.TensorService/PutTensor", &[b"\x0a\x08\x0a\x01t\x10\x01\x1a\x01\x01", b"\x12\x01\x01"]);
    audited.expect("/ipfrs.tensor.v1.TensorService/PutTensor", "QmaEkjaHUjapP6sh3FraPdHevgPtRqWMeiKrFe78QaKy2x", "OK");
    audited.call("block.v1.BlockService/DeleteBlock", &text(1, ABSENT));
    audited.expect("/ipfrs.block.v1.BlockService/DeleteBlock", ABSENT, "OK");
    audited.call("file.v1.FileService/UnpinFile", &text(1, &format!("/ipfs/{cid}")));
    audited.expect("/ipfrs.file.v1.FileService/UnpinFile", &format!("/ipfs/{cid}"), "OK");
    audited.call("block.v1.BlockService/DeleteBlock", &text(1, "no-cid"));
    audited.expect("/ipfrs.block.v1.BlockService/DeleteBlock", "no-cid", "INVALID_ARGUMENT");

    audited.daemon.signal(Signal::TERM);
    let (_, log) = audited.daemon.wait();
    assert!(!log.contains("\"audit\""), "a change has two lines: {log}");
}

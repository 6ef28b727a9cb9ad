//! API keys on the command line, against a daemon that authenticates its callers.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, Place, Ran};

const SETTINGS: &[u8] = b"[auth]\nenabled = true\n[server]\nhost = \"0.0.0.0\"\n\
    [public]\nenabled = true\nhost = \"127.0.0.1\"\nport = 0\n[log]\nformat = \"json\"\n";

fn start(place: &Place) -> Daemon {
    place.write("auth.toml", SETTINGS);
    place.start(&["--config", "auth.toml"])
}

/// Returns the URL of the daemon for another machine.
fn remote(daemon: &Daemon) -> String {
    daemon.url().replace("0.0.0.0", "127.0.0.1")
}

fn ran(mut command: Command) -> Ran {
    command.output().unwrap().into()
}

/// Returns arguments with the token in the file `token`.
fn with_file<'a>(url: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&["--api", url, "--token-file", "token"], arguments].concat()
}

#[test]
fn keys_that_were_created_without_a_daemon_work_with_it() {
    let place = Place::new();
    place.write("file", b"content");
    let reader = place.ok(&["auth", "key", "create", "reader", "--scope", "read,pin", "--expires-in", "90d"]);
    let reader = reader.trim();
    assert!(reader.starts_with("ipfrs_"), "{reader}");
    let list = place.ok(&["auth", "key", "list"]);
    let id = reader.split('_').nth(1).unwrap();
    assert!(list.starts_with(&format!("{id}  read,pin  expires 2")) && list.ends_with("  reader"), "{list}");
    let daemon = start(&place);
    let url = remote(&daemon);
    // Commands on the repo of the daemon find its token. Those for a URL need one.
    assert!(place.ok(&["auth", "whoami"]).starts_with("local: admin"));
    let cid = place.ok(&["add", "-Q", "file"]);
    let message = place.fails(&["--api", &url, "cat", cid.trim()]);
    assert!(message.contains("IPFRS_TOKEN") && message.contains("--token-file"), "{message}");
    let mut command = place.command(&["--api", &url, "cat", cid.trim()]);
    command.env("IPFRS_TOKEN", reader);
    assert_eq!(ran(command).text(), "content");
    place.write("token", format!("{reader}\n").as_bytes());
    assert!(place.ok(&with_file(&url, &["auth", "whoami"])).starts_with(&format!("key:{id}: read, pin")));
    let refused = place.fails(&with_file(&url, &["add", "file"]));
    assert!(refused.contains("has read, pin, and this needs write"), "{refused}");
    // Keys of a running daemon are its own business, and end at once.
    let admin = place.ok(&["auth", "key", "create", "-s", "admin", "--json"]);
    let admin: Value = serde_json::from_str(&admin).unwrap();
    assert_eq!(admin["key"]["scopes"][0], "admin");
    place.ok(&["auth", "key", "revoke", reader, admin["key"]["id"].as_str().unwrap()]);
    let refused = place.fails(&with_file(&url, &["cat", cid.trim()]));
    assert!(refused.contains("not valid here"), "{refused}");
    assert_eq!(place.ok(&["auth", "key", "list"]), "");
    assert!(place.fails(&["auth", "key", "revoke", id]).contains("no API key has the ID"));
}

#[test]
fn changes_are_audited_and_tokens_are_never_logged() {
    let place = Place::new();
    place.write("file", b"content");
    let writer = place.ok(&["auth", "key", "create", "-s", "write"]).trim().to_owned();
    let mut daemon = start(&place);
    let url = remote(&daemon);
    let as_writer = |arguments: &[&str]| {
        let mut command = place.command(&[&["--api", &url], arguments].concat());
        command.env("IPFRS_TOKEN", &writer);
        ran(command)
    };
    assert_eq!(as_writer(&["add", "file"]).code, Some(0));
    assert_eq!(as_writer(&["pin", "rm", "bafkqaaa"]).code, Some(1));
    let id = writer.split('_').nth(1).unwrap();
    let added: Value = serde_json::from_str(&daemon.wait_for_log("\"audit\"")).unwrap();
    let fields = &added["fields"];
    let field = |name: &str| if fields[name].is_null() { added[name].clone() } else { fields[name].clone() };
    assert_eq!(field("principal"), format!("key:{id}"), "{added}");
    assert_eq!((field("what"), field("status")), ("/api/v0/add".into(), "200".into()), "{added}");
    assert!(added["timestamp"].is_string() && field("client") == "127.0.0.1", "{added}");
    let refused = daemon.wait_for_log("\"audit\"");
    assert!(refused.contains("POST /api/v0/pin/rm") && refused.contains("forbidden"), "{refused}");
    assert!(refused.contains(&format!("key:{id}")), "{refused}");
    // No argument is hidden behind a long one.
    let long = format!("/{}", "x".repeat(2_000));
    as_writer(&["files", "rm", &long, "/victim"]);
    let removal = daemon.wait_for_log("\"audit\"");
    assert!(removal.contains("…(2001 bytes)…") && removal.contains(" /victim"), "{removal}");
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0));
    let secret = writer.splitn(3, '_').nth(2).unwrap();
    assert!(!log.contains(secret) && !refused.contains(secret) && !added.to_string().contains(secret));
}

/// Returns a frame of HTTP/2 (RFC 9113).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns what a client sends over HTTP/2 that begins a POST: HEADERS with these flags, and `rest` behind them.
fn begun_post(path: &str, token: &str, flags: u8, rest: &[u8]) -> Vec<u8> {
    // Literals with a name of the static table, which no table keeps (RFC 7541, 6.2.2).
    let literal = |name: &[u8], value: &str| [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat();
    let (method, scheme) = (&[0x83][..], &[0x86][..]);
    let mut headers = [method, scheme, &literal(&[4], path), &literal(&[1], "127.0.0.1")].concat();
    if path.starts_with("/ipfrs.") {
        headers.extend(literal(&[0x0f, 16], "application/grpc"));
    }
    if !token.is_empty() {
        headers.extend(literal(&[0x0f, 8], &format!("Bearer {token}")));
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    [preface, frame(4, 0, 0, &[]), frame(1, flags, 1, &headers), rest.to_vec()].concat()
}

/// Returns what a client sends over HTTP/2 that cancels a POST at once.
fn cancelled_post(path: &str, token: &str) -> Vec<u8> {
    let (end_stream_and_headers, cancel) = (5, 8_u32.to_be_bytes());
    begun_post(path, token, end_stream_and_headers, &frame(3, 0, 1, &cancel))
}

#[test]
fn changes_of_clients_that_leave_are_audited() {
    let place = Place::new();
    let admin = place.ok(&["auth", "key", "create", "-s", "admin"]).trim().to_owned();
    let mut daemon = start(&place);
    let address = remote(&daemon);
    for path in ["/api/v0/pin/rm?arg=bafkqaaa", "/api/v0/key/gen?arg=left"] {
        let mut connection = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
        connection.write_all(&cancelled_post(path, &admin)).unwrap();
        let line = daemon.wait_for_log("\"audit\"");
        let (route, argument) = path.split_once("?arg=").unwrap();
        assert!(line.contains(&format!("POST {route} {argument}")), "{line}");
    }
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.wait();
    assert!(!log.contains("\"audit\""), "a change has two lines: {log}");
}

#[test]
fn refused_changes_are_audited() {
    let place = Place::new();
    let admin = place.ok(&["auth", "key", "create", "-s", "admin"]).trim().to_owned();
    let limits = "[rate_limit]\nenabled = true\nrequests_per_second = 1\nburst_requests = 1\ncaller_factor = 1\n";
    place.write("auth.toml", &[SETTINGS, limits.as_bytes()].concat());
    let daemon = place.start(&["--config", "auth.toml"]);
    let url = format!("{}/api/v0/pin/rm?arg=bafkqaaa", remote(&daemon));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = || runtime.block_on(client.post(&url).bearer_auth(&admin).send()).unwrap().status().as_u16();
    let refused = (0..50).filter(|_| send() == 429).count();
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.wait();
    let lines = log.lines().filter(|line| line.contains("\"audit\"") && line.contains("POST /api/v0/pin/rm bafkqaaa"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 50);
    assert!(refused > 0 && lines.iter().filter(|line| line.contains("\"429\"")).count() == refused, "{refused}");
}

/// Returns the address of the gRPC listener.
fn grpc_address(place: &Place) -> String {
    let status: Value = serde_json::from_str(&place.ok(&["gateway", "status", "--json"])).unwrap();
    status["grpc"][0].as_str().unwrap().to_owned()
}

/// Sends a gRPC call with an empty message, and returns its connection. `ends` tells whether the request does.
fn call(address: &str, method: &str, token: &str, ends: bool) -> TcpStream {
    let mut connection = TcpStream::connect(address).unwrap();
    let (end_headers, end_stream) = (4, u8::from(ends));
    let message = frame(0, end_stream, 1, &[0; 5]);
    let path = format!("/ipfrs.block.v1.BlockService/{method}");
    connection.write_all(&begun_post(&path, token, end_headers, &message)).unwrap();
    connection
}

/// Returns the principal of a key in the audit log.
fn principal(token: &str) -> String {
    format!("\"key:{}\"", token.split('_').nth(1).unwrap())
}

#[test]
fn refused_calls_are_audited() {
    let place = Place::new();
    let reader = place.ok(&["auth", "key", "create", "-s", "read"]).trim().to_owned();
    let mut daemon = start(&place);
    let address = grpc_address(&place);
    for (token, principal, outcome) in [
        ("", "\"anonymous\"".to_owned(), "unauthenticated"),
        ("wrong", "\"anonymous\"".to_owned(), "unauthenticated"),
        (reader.as_str(), principal(&reader), "forbidden"),
    ] {
        let _connection = call(&address, "PutBlock", token, true);
        let line = daemon.wait_for_log("\"audit\"");
        assert!(line.contains(&principal) && line.contains(outcome), "{token}: {line}");
        assert!(line.contains("\"/ipfrs.block.v1.BlockService/PutBlock\""), "{line}");
    }
    // With gRPC-Web, HTTP refuses the credentials.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (method, is_change) in [("GetBlock", false), ("PutBlock", true)] {
        let web = client.post(format!("{}/ipfrs.block.v1.BlockService/{method}", remote(&daemon))).bearer_auth("wrong");
        runtime.block_on(web.header("content-type", "application/grpc-web+proto").body(vec![0; 5]).send()).unwrap();
        if is_change {
            let line = daemon.wait_for_log("\"audit\"");
            assert!(line.contains("unauthenticated") && line.contains("BlockService/PutBlock"), "{line}");
        }
    }
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.wait();
    assert!(!log.contains("\"audit\""), "a call has two lines: {log}");
}

#[test]
fn calls_that_a_limit_refuses_are_audited_once() {
    let place = Place::new();
    let reader = place.ok(&["auth", "key", "create", "-s", "read"]).trim().to_owned();
    let writer = place.ok(&["auth", "key", "create", "-s", "write"]).trim().to_owned();
    let limits = "[rate_limit]\nenabled = true\nrequests_per_second = 1\nburst_requests = 1\ncaller_factor = 1\n";
    place.write("auth.toml", &[SETTINGS, limits.as_bytes()].concat());
    let mut daemon = place.start(&["--config", "auth.toml"]);
    let (address, mut lines) = (grpc_address(&place), Vec::new());
    for _ in 0..10 {
        let _connection = call(&address, "PutBlock", &writer, true);
        lines.push(daemon.wait_for_log("\"audit\""));
    }
    assert!(lines.iter().all(|line| line.contains(&principal(&writer))), "{lines:?}");
    let count = |outcome: &str| lines.iter().filter(|line| line.contains(outcome)).count();
    assert!((1..10).contains(&count("rate_limited")) && count("aborted") == 0, "{lines:?}");
    drop(daemon);
    // The only permit is in use, and permits are taken before callers are known.
    place.write("auth.toml", &[SETTINGS, b"[grpc]\nmax_concurrent_calls = 1\n"].concat());
    let mut daemon = place.start(&["--config", "auth.toml"]);
    let address = grpc_address(&place);
    let open = call(&address, "StreamBlocks", &writer, false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let metrics = || {
        let request = client.get(format!("{}/metrics", remote(&daemon))).bearer_auth(&reader);
        runtime.block_on(async { request.send().await.unwrap().text().await.unwrap() })
    };
    while !metrics().contains("ipfrs_grpc_requests_active 1\n") {}
    let _refused = call(&address, "PutBlock", &writer, true);
    let line = daemon.wait_for_log("\"audit\"");
    assert!(line.contains("rate_limited") && line.contains("\"anonymous\""), "{line}");
    // A stream has its line when it ends.
    drop(open);
    let line = daemon.wait_for_log("\"audit\"");
    assert!(line.contains("StreamBlocks") && line.contains("aborted"), "{line}");
    assert!(line.contains(&principal(&writer)), "{line}");
}

#[test]
fn users_of_the_rpc_have_their_commands_and_nothing_else() {
    let place = Place::new();
    let settings = "[auth]\nenabled = true\nmax_failures_per_minute = 60000\n[auth.rpc.alice]\n\
        secret = \"basic:alice:hunter2\"\npaths = [\"/api/v0/pin\", \"/api/v0/config/show\"]\n[auth.rpc.bob]\n\
        secret = \"all-of-it\"\npaths = [\"/api/v0/\"]\n[auth.rpc.nobody]\nsecret = \"bearer:nothing\"\n";
    place.write("auth.toml", settings.as_bytes());
    let daemon = place.start(&["--config", "auth.toml"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = |path: &str, credentials: &str| {
        let mut request = client.post(format!("{}{path}", daemon.url())).body(r#"{"query":"{ version { version } }"}"#);
        if !credentials.is_empty() {
            request = request.header("authorization", credentials);
        }
        runtime.block_on(async {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    };
    // alice:hunter2, alice:hunter3
    let (alice, wrong) = ("Basic YWxpY2U6aHVudGVyMg==", "Basic YWxpY2U6aHVudGVyMw==");
    for (path, credentials, status) in [
        ("/api/v0/pin/ls", alice, 200),
        ("/api/v0/pin/ls/", alice, 200),
        ("/api/v0/config/show", alice, 200),
        ("/api/v0/version", alice, 200),
        ("/api/v0/version", "Bearer nothing", 200),
        ("/api/v0/ping?arg=x", alice, 403),
        ("/api/v0/config", alice, 403),
        ("/api/v0/id", "Bearer nothing", 403),
        ("/api/v0/id", "Bearer all-of-it", 200),
        ("/api/v0/id", "Basic OmFsbC1vZi1pdA==", 403),
        ("/api/v0/pin/ls", wrong, 403),
        ("/api/v0/version", wrong, 403),
        ("/api/v0/version", "", 403),
        ("/v1/auth/keys", "Bearer all-of-it", 403),
        ("/v1/block/batch/has", "Bearer all-of-it", 403),
        ("/pinning/v1/pins", "Bearer all-of-it", 403),
    ] {
        let (found, text) = post(path, credentials);
        assert_eq!(found, status, "{path} {credentials}: {text}");
        let is_refused = path.starts_with("/api/v0") && status == 403;
        assert_eq!(text.contains("Kubo RPC Access Denied"), is_refused, "{path}: {text}");
        assert!(!text.contains("hunter2") && !text.contains("all-of-it"), "{path}: {text}");
    }
    let (_, text) = post("/graphql", "Bearer all-of-it");
    assert!(text.contains("rpc:bob has no scope"), "{text}");
    // Keys and local commands work as before.
    assert!(place.ok(&["pin", "ls"]).is_empty());
    for json in [&[][..], &["--json"]] {
        let shown = place.ok(&[json, &["config", "show", "--config", "auth.toml"]].concat());
        assert!(shown.contains("***") && !shown.contains("hunter2") && !shown.contains("all-of-it"), "{shown}");
    }
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0));
    assert!(!log.contains("hunter2") && !log.contains("all-of-it"), "{log}");
}

#[test]
fn mistakes_with_keys_are_explained() {
    let place = Place::new();
    for (arguments, message) in [
        (&["auth", "key", "create"][..], "--scope"),
        (&["auth", "key", "create", "-s", "root"], "read, write, pin, names and admin"),
        (&["auth", "key", "create", "-s", "write", "--root", "bafkqaaa"], "can only read"),
        (&["auth", "key", "create", "-s", "read", "--expires-in", "2w"], "use s, m, h or d"),
        (&["--token-file", "missing", "auth", "whoami"], "cannot read the token in missing"),
        (&["auth", "key", "revoke", ""], "`ipfrs-cli auth key list` prints them"),
    ] {
        let ran = place.run(arguments);
        assert_ne!(ran.code, Some(0), "{arguments:?}");
        assert!(ran.stderr.contains(message), "{arguments:?}: {}", ran.stderr);
    }
    let daemon = place.start(&[]);
    let message = place.fails(&["auth", "key", "create", "-s", "read"]);
    assert!(message.contains("auth.enabled = true"), "{message}");
    assert!(place.ok(&["auth", "whoami"]).contains("anyone may do everything"));
    drop(daemon);
    for (settings, message) in [
        ("[auth]\nprivate_gateway = true\n", "auth.private_gateway"),
        ("[auth.rpc.a]\nsecret = \"x\"\n", "auth.rpc needs auth.enabled"),
        ("[auth]\nenabled = true\n[auth.rpc.a]\nsecret = \"digest:x\"\n", "auth.rpc.a: secret must be bearer:TOKEN"),
        ("[auth]\nenabled = true\n[auth.rpc.a]\nsecret = \"x\"\npaths = [\"/v1\"]\n", "is no command"),
        ("[auth]\nenabled = true\n[auth.rpc.a]\nsecret = \"x\"\npath = [\"/v1\"]\n", "auth.rpc must be"),
        ("[auth]\nenabled = true\nrpc.a = \"hunter2\"\n", "auth.rpc must be"),
        ("[auth]\nenabled = true\n[auth.rpc.a]\nAuthSecret = \"hunter2\"\n", "auth.rpc must be"),
        ("[auth]\nenabled = true\njwt_keys = \"keys.json\"\n", "auth.jwt_issuer"),
        ("[auth]\nenabled = true\njwt_audience = \"a\"\n", "auth.jwt_audience needs auth.jwt_keys"),
        (
            "[auth]\nenabled = true\njwt_keys = \"http://example.org/keys\"\njwt_issuer = \"i\"\njwt_audience = \"a\"\n",
            "https",
        ),
        ("[auth]\nenabled = true\njwt_keys = \"keys.json\"\njwt_issuer = \"i\"\njwt_audience = \"a\"\n", "keys.json"),
        (
            "[auth]\nenabled = true\n[ingest]\nuser = \"u\"\npassword_sha256 = \"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\"\n",
            "ingest.user",
        ),
    ] {
        place.write("wrong.toml", settings.as_bytes());
        let refused = place.fails(&["gateway", "start", "--port", "0", "--config", "wrong.toml"]);
        assert!(refused.contains(message) && !refused.contains("hunter2"), "{settings}: {refused}");
    }
}

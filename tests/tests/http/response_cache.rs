//! Cached responses bypass hyper. On the wire, they must be indistinguishable from other responses, in any sequence.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use ipfrs_http::{HostConfig, Lifecycle, SerializedResponse, Service};
use ipfrs_interface::Config;
use ipfrs_middleware::MemoryPool;
use ipfrs_node::Node;
use prometheus::Registry;
use proptest::prelude::*;
use tokio::time::timeout;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, ndjson};
use crate::wire::{Answer, Wire};

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

/// `hello\n` as an identity block.
const HELLO: &str = "/ipfs/bafkqabtimvwgy3yk";

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Returns the cached response of `path`. Requests it on the slow path until the response is cached, which the
/// second request of a path causes.
async fn written(service: &Service, path: &str, headers: &HeaderMap, head: &mut Vec<u8>) -> Option<SerializedResponse> {
    for _ in 0..100 {
        let mut request = Request::get(path).body(String::new()).unwrap();
        request.headers_mut().insert(HOST, HeaderValue::from_static("x"));
        service.answer(request, Some(PEER)).await.unwrap();
        head.clear();
        let written = service
            .cacheable_request(headers, Some(PEER))
            .and_then(|plain| service.serialized_response(path, &plain, head));
        if written.is_some() {
            return written;
        }
    }
    None
}

fn headers(lines: &[(HeaderName, &'static str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn small_file_is_cached_only_for_plain_requests() {
    let text = "plain text ".repeat(300);
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a.txt", text.as_str())]).await;
    let (repo, mut config, registry) = (gateway.stop().await, Config::default(), Registry::new());
    config.gateway.hosts.insert("example.com".into(), HostConfig { subdomains: true, ..HostConfig::default() });
    let node = Node::builder(repo.path())
        .store(config.store.clone())
        .config(config.node())
        .registry(&registry)
        .open()
        .await
        .unwrap();
    let memory = MemoryPool::register(&node, &registry).unwrap();
    let app = ipfrs_http::app(
        node.clone(),
        &config.http(),
        8080,
        Lifecycle::new(),
        memory,
        ipfrs_middleware::Rules::none(&node),
        &registry,
    )
    .unwrap();
    let path = format!("/ipfs/{root}/a.txt");

    let mut head = Vec::new();
    for lines in [
        &[(HOST, "x")][..],
        &[(HOST, "127.0.0.1:8080"), (ACCEPT, "*/*"), (ACCEPT_ENCODING, "identity")],
        &[(HOST, "x"), (HeaderName::from_static("x-request-id"), "mine")],
    ] {
        let written = written(&app.service, &path, &headers(lines), &mut head).await.expect("ready");
        assert_eq!(written.body, text);
        let head = String::from_utf8(head.clone()).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nX-Request-Id: {}\r\n", &head[written.request_id])), "{head}");
    }
    for lines in [
        &[][..],
        &[(HOST, "x"), (HOST, "x")],
        &[(HOST, "no host")],
        &[(HOST, "example.com")],
        &[(HOST, "x"), (RANGE, "bytes=0-1")],
        &[(HOST, "x"), (IF_NONE_MATCH, "\"a\"")],
        &[(HOST, "x"), (ACCEPT, "application/vnd.ipld.car")],
        &[(HOST, "x"), (ACCEPT_ENCODING, "br")],
        &[(HOST, "x"), (ACCEPT_ENCODING, "identity;q=0")],
    ] {
        assert!(written(&app.service, &path, &headers(lines), &mut head).await.is_none(), "{lines:?}");
    }
    let plain = headers(&[(HOST, "x")]);
    let block =
        written(&app.service, &format!("{path}?format=raw"), &plain, &mut head).await.expect("the block is cached");
    assert!(block.body.len() > text.len() && block.body.windows(text.len()).any(|part| part == text.as_bytes()));
    assert!(String::from_utf8(head.clone()).unwrap().contains("\r\nContent-Type: application/vnd.ipld.raw\r\n"));
    let file = written(&app.service, &path, &plain, &mut head).await.expect("so is the file");
    assert_eq!(file.body, text);
    let accepted = headers(&[(HOST, "x"), (ACCEPT, "application/vnd.ipld.raw")]);
    assert!(written(&app.service, &path, &accepted, &mut head).await.is_none());
    for line in [(RANGE, "bytes=0-1"), (IF_NONE_MATCH, "\"a\""), (ACCEPT, "application/vnd.ipld.car")] {
        let lines = headers(&[(HOST, "x"), line.clone()]);
        let found = written(&app.service, &format!("{path}?format=raw"), &lines, &mut head).await;
        assert!(found.is_none(), "{line:?}");
    }
    for query in ["?format=car", "?format=raw&filename=a.txt", "?"] {
        assert!(written(&app.service, &format!("{path}{query}"), &plain, &mut head).await.is_none(), "{query}");
    }
    for other in [&format!("/ipfs/{root}/"), &format!("/ipfs/{root}/b.txt")] {
        assert!(written(&app.service, other, &plain, &mut head).await.is_none(), "{other}");
    }
    node.close().await.unwrap();
}

/// Returns the bytes of one response, with the values that depend on the request or the time replaced.
async fn raw(wire: &mut Wire, request: &str, body_bytes: usize) -> String {
    wire.send(request).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(wire.take(1).await);
    }
    let head = String::from_utf8(head).unwrap();
    let body = String::from_utf8(wire.take(body_bytes).await).unwrap();
    let blanked = |line: &str| match line.split_once(": ") {
        Some((name @ ("Date" | "X-Request-Id"), value)) => format!("{name}: {} bytes\n", value.len()),
        _ => format!("{line}\n"),
    };
    head.split("\r\n").map(blanked).collect::<String>() + &body
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_response_equals_the_uncached_bytes() {
    let gateway = TestGateway::start().await;
    let text = "text that can be compressed ".repeat(100);
    let fast = async || gateway.metric("ipfrs_http_served_total{path=\"fast_path\"}").await;
    // With these options, the block of a file is its content.
    for (options, query) in [("", ""), ("cid-version=1&raw-leaves=true", "?format=raw")] {
        let root = gateway.add_tree(options, &[("d/a.txt", &text), ("d/b", &text[..40]), ("d/empty", "")]).await;
        let before = fast().await;
        for (name, len) in [("a.txt", text.len()), ("b", 40), ("empty", 0)] {
            let path = format!("/ipfs/{root}/{name}{query}");
            let mut wire = Wire::connect(&gateway).await;
            let first = raw(&mut wire, &get(&path), len).await;
            assert!(first.starts_with("HTTP/1.1 200 OK\n"), "{first}");
            for _ in 0..20 {
                assert_eq!(raw(&mut wire, &get(&path), len).await, first, "{path}");
                // hyper serves requests with headers that describe a body.
                let by_hyper = get(&path).replacen("Host", "Content-Length: 0\r\nHost", 1);
                assert_eq!(raw(&mut wire, &by_hyper, len).await, first, "{path} by hyper");
            }
        }
        assert!(fast().await > before, "{query}");
    }
}

/// Requests of all kinds, each with a check of its response.
struct Mixture {
    gateway: TestGateway,
    requests: Vec<(String, Check)>,
}

enum Check {
    Body(bytes::Bytes),
    Head(usize),
    Status(u16),
}

impl Mixture {
    async fn start() -> Self {
        let gateway = TestGateway::start().await;
        let (small, large) = (content::bytes(1_000), content::bytes(300_000));
        let small_path = format!("/ipfs/{}", gateway.add("", small.clone()).await);
        let large_path = format!("/ipfs/{}", gateway.add("", large.clone()).await);
        let ranged = get(&small_path).replacen("Host", "Range: bytes=10-19\r\nHost", 1);
        let requests = vec![
            (get(&small_path), Check::Body(small.clone())),
            (
                get(&small_path).replacen("Host: x", "hOsT: x\r\nConnection: Keep-Alive\r\nA: b", 1),
                Check::Body(small.clone()),
            ),
            (format!("\r\n{}", get(&small_path)), Check::Body(small.clone())),
            (ranged, Check::Body(small.slice(10..20))),
            (get(&small_path).replacen("GET", "HEAD", 1), Check::Head(small.len())),
            (get(&format!("{small_path}?download=true")), Check::Body(small)),
            (get(&large_path), Check::Body(large)),
            (get(HELLO), Check::Body("hello\n".into())),
            (get("/nothing"), Check::Status(404)),
            ("POST /api/v0/cat HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nGET /".to_owned(), Check::Status(400)),
        ];
        Self { gateway, requests }
    }

    /// Sends the requests with these numbers in pieces with these boundaries, then closes the sending side, and reads
    /// the responses.
    async fn exchange(&self, numbers: &[usize], mut ends: Vec<usize>, is_awaited: bool) {
        let mut wire = Wire::connect(&self.gateway).await;
        let asked: Vec<_> = numbers.iter().map(|number| &self.requests[number % self.requests.len()]).collect();
        let bytes: Vec<u8> = asked.iter().flat_map(|(request, _)| request.bytes()).collect();
        ends.retain_mut(|end| {
            *end %= bytes.len() + 1;
            true
        });
        ends.push(bytes.len());
        ends.sort_unstable();
        let mut from = 0;
        for end in ends {
            wire.send(&bytes[from..end]).await;
            // Give the server a chance to receive the piece separately.
            tokio::task::yield_now().await;
            from = end;
        }
        if !is_awaited {
            wire.finish().await;
        }
        for (request, check) in &asked {
            let answer = if matches!(check, Check::Head(_)) { wire.head().await } else { wire.answer().await };
            check.look_at(&answer, request);
        }
        if is_awaited {
            wire.finish().await;
        }
        assert!(wire.rest().await.is_empty(), "more than the answers to {numbers:?}");
    }
}

impl Check {
    fn look_at(&self, answer: &Answer, request: &str) {
        match self {
            Self::Body(body) => assert_same(&answer.body, body, request),
            Self::Head(len) => assert_eq!(answer.header("content-length"), len.to_string(), "{request}"),
            Self::Status(status) => assert_eq!(answer.status, *status, "{request}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mixed_requests_in_any_pieces_are_served_in_order() {
    let mixture = Mixture::start().await;
    mixture.exchange(&(0..mixture.requests.len()).cycle().take(40).collect::<Vec<_>>(), vec![], true).await;
    let numbers = || prop::collection::vec(0..100_usize, 1..25);
    let ends = || prop::collection::vec(0..10_000_usize, 0..12);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..60 {
        use proptest::strategy::ValueTree;
        let case = (numbers(), ends(), any::<bool>()).new_tree(&mut runner).unwrap().current();
        mixture.exchange(&case.0, case.1, case.2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_may_be_split_at_any_byte() {
    let mixture = Mixture::start().await;
    let len = 2 * mixture.requests[0].0.len();
    mixture.exchange(&[0, 0, 7, 0], (0..4 * len).collect(), true).await;
    for end in 0..len {
        mixture.exchange(&[0, 0], vec![end], true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_reads_get_pipelined_responses_in_order() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(60_000);
    let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
    let mut wire = Wire::connect(&gateway).await;
    // More response bytes than the kernel buffers, and more request bytes than the server reads at once.
    let batch = get(&path).repeat(300);
    wire.send(&batch).await;
    wire.finish().await;
    for number in 0..300 {
        assert_same(&wire.answer().await.body, &content, &format!("answer {number}"));
    }
    assert!(wire.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connection_closes_on_timeout_and_at_shutdown() {
    let gateway = TestGateway::start_with(|config| config.server.header_timeout_seconds = 1).await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    for half in ["", "G", "GET /health HTTP/1.1\r\nHost:"] {
        let mut wire = Wire::connect(&gateway).await;
        for _ in 0..3 {
            wire.send(get(&path)).await;
            assert_eq!(wire.answer().await.text(), "small");
        }
        wire.send(half).await;
        let rest = wire.rest().await;
        assert!(!rest.windows(4).any(|text| text == b" 200"), "{}", String::from_utf8_lossy(&rest));
    }
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    let mut wires = Vec::new();
    for requests in 0..4 {
        let mut wire = Wire::connect(&gateway).await;
        for _ in 0..requests {
            wire.send(get(&path)).await;
            assert_eq!(wire.answer().await.text(), "small");
        }
        wires.push(wire);
    }
    timeout(WATCHDOG, gateway.stop()).await.unwrap();
    for mut wire in wires {
        assert!(wire.rest().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_preface_may_be_split_but_must_come_first() {
    let gateway = TestGateway::start().await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    // The connection preface and an empty SETTINGS frame.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let mut wire = Wire::connect(&gateway).await;
    for byte in preface {
        wire.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    let frame = wire.take(9).await;
    assert_eq!(frame[3], 4, "settings come first: {frame:?}");
    let mut wire = Wire::connect(&gateway).await;
    wire.send([b"\r\n", &preface[..]].concat()).await;
    assert_eq!(wire.answer().await.status, 505);
    let mut wire = Wire::connect(&gateway).await;
    for _ in 0..3 {
        wire.send(get(&path)).await;
        assert_eq!(wire.answer().await.text(), "small");
    }
    wire.send(preface).await;
    let rest = wire.rest().await;
    assert!(rest.starts_with(b"HTTP/1.1 505"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_responses_are_counted_in_all_metrics() {
    let gateway = TestGateway::start().await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    let mut wire = Wire::connect(&gateway).await;
    wire.send(get(&path).repeat(50)).await;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        ids.insert(wire.answer().await.header("x-request-id").to_owned());
    }
    assert_eq!(ids.len(), 50, "each has an ID of its own");
    let labels = "{endpoint=\"/ipfs/{*path}\",method=\"GET\"";
    assert_eq!(gateway.metric(&format!("ipfrs_http_requests_total{labels},status=\"200\"}}")).await, 50);
    assert_eq!(gateway.metric(&format!("ipfrs_http_response_size_bytes_sum{labels}}}")).await, 250);
    assert_eq!(gateway.metric(&format!("ipfrs_http_request_duration_seconds_count{labels}}}")).await, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_directories_are_cached_when_they_are_requested_again() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a", "1"), ("d/b", "2"), ("d/c", "3")]).await;
    let size = async |cache: &str| gateway.metric(&format!("ipfrs_cache_size_bytes{{cache=\"{cache}\"}}")).await;
    for (name, content) in [("a", "1"), ("b", "2"), ("c", "3")] {
        assert_eq!(gateway.content(&format!("/ipfs/{root}/{name}")).await, content);
    }
    // The second search in the directory made its index, and the third used it.
    assert_eq!(gateway.metric("ipfrs_cache_hits_total{cache=\"node\"}").await, 1);
    assert_eq!((size("path").await, size("answer").await), (0, 0));
    assert_eq!(gateway.content(&format!("/ipfs/{root}/a")).await, "1");
    // A cached response needs no path.
    assert!(size("path").await == 0 && size("answer").await > 0);
    for _ in 0..2 {
        let request = gateway.request(Method::GET, &format!("/ipfs/{root}/b")).header(RANGE, "bytes=0-0");
        assert_eq!(request.send().await.unwrap().status(), 206);
    }
    assert!(size("path").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_other_blocks_leaves_cached_responses() {
    for query in ["", "?format=raw"] {
        remove_blocks(query).await;
    }
}

/// Removes another block, and then one that the response depends on.
async fn remove_blocks(query: &str) {
    let gateway = TestGateway::start().await;
    // A sharded directory: the responses depend on its inner blocks as well.
    let names: Vec<_> = (0..2_000).map(|number| (format!("d/file-{number}"), format!("content {number}"))).collect();
    let files: Vec<_> = names.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
    let root = gateway.add_tree("max-directory-links=8", &files).await;
    let path = format!("/ipfs/{root}/file-7{query}");
    let fast = async || gateway.metric("ipfrs_http_served_total{path=\"fast_path\"}").await;
    let mut wire = Wire::connect(&gateway).await;
    for _ in 0..3 {
        wire.send(get(&path)).await;
        assert_eq!(wire.answer().await.status, 200);
    }
    assert_eq!(fast().await, 1);
    gateway.add("pin=false", "garbage").await;
    gateway.rpc_bytes("repo/gc").await;
    wire.send(get(&path)).await;
    wire.answer().await;
    assert_eq!(fast().await, 2, "gc removed another block");
    // Removing an inner block of the directory makes the path unreadable.
    let shards = ndjson(gateway.rpc(&format!("refs?arg={root}")).send().await.unwrap()).await;
    gateway.rpc_bytes(&format!("pin/rm?arg={root}")).await;
    for shard in &shards {
        gateway.rpc_bytes(&format!("block/rm?arg={}", shard["Ref"].as_str().unwrap())).await;
    }
    wire.send(get(&path)).await;
    assert_eq!(wire.answer().await.status, 404);
    assert_eq!(fast().await, 2);
}

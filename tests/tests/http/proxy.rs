//! The gateway as the forward proxy of its clients: absolute targets and tunnels.

use std::time::Duration;

use ipfrs_http::HostConfig;
use ipfrs_interface::Config;
use reqwest::{Method, StatusCode, Version};
use tokio::time::timeout;

use crate::content;
use crate::harness::{TestGateway, client};
use crate::wire::{Answer, Wire, exchange};

/// `hello\n` as an identity block.
const HELLO: &str = "bafkqabtimvwgy3yk";

/// Longer than anything here takes.
const WATCHDOG: Duration = Duration::from_secs(60);

const CONNECT: &str = "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n";

fn hosts(config: &mut Config) {
    config.gateway.hosts.insert("example.com".into(), HostConfig { subdomains: true, ..HostConfig::default() });
    config.gateway.dnslink.insert("site.example".into(), format!("/ipfs/{HELLO}"));
    config.dns.enabled = false;
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// A connection that is a tunnel.
async fn tunnel(gateway: &TestGateway) -> Wire {
    let mut wire = Wire::connect(gateway).await;
    wire.send(CONNECT).await;
    opened(&mut wire).await;
    wire
}

/// The answer that opens a tunnel has no body, and no header that speaks of one.
async fn opened(wire: &mut Wire) {
    let answer = wire.head().await;
    assert_eq!(answer.status, 200);
    assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), ("", ""));
    assert_ne!(answer.header("x-request-id"), "");
}

fn assert_says(answer: &Answer, text: &str) {
    assert_eq!((answer.status, answer.text().as_str()), (200, text));
}

#[tokio::test(flavor = "multi_thread")]
async fn absolute_target_says_the_host_whatever_the_header_says() {
    let gateway = TestGateway::start_with(hosts).await;
    for (target, host) in [
        (format!("http://{HELLO}.ipfs.example.com/"), "example.com"),
        (format!("http://{HELLO}.ipfs.example.com"), "nothing.example"),
        (format!("http://{HELLO}.IPFS.Example.COM:80/"), "localhost"),
        ("http://site.example/".to_owned(), "example.com"),
        // A host that is nobody's is the path gateway.
        (format!("http://127.0.0.1/ipfs/{HELLO}"), "site.example"),
    ] {
        let request = |method: &str| format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut wire = Wire::connect(&gateway).await;
        wire.send(request("GET")).await;
        assert_says(&wire.answer().await, "hello\n");
        wire.send(request("HEAD")).await;
        let head = wire.head().await;
        assert_eq!((head.status, head.header("content-length")), (200, "6"), "{target}");
    }
    let moved = exchange(&gateway, format!("GET http://example.com/ipfs/{HELLO}?a=b HTTP/1.1")).await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (301, format!("http://{HELLO}.ipfs.example.com/?a=b").as_str())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_leads_to_the_gateway_again() {
    let gateway = TestGateway::start_with(hosts).await;
    let big = content::bytes(600_000);
    let cid = gateway.add("cid-version=1", big.clone()).await;
    let mut wire = tunnel(&gateway).await;
    // One after the other, and several at once: in the order of the requests, each for the host that it names.
    wire.send(get(&format!("{HELLO}.ipfs.example.com"), "/")).await;
    assert_says(&wire.answer().await, "hello\n");
    let requests = [
        get("site.example", "/"),
        get(&format!("{cid}.ipfs.example.com"), "/"),
        get("example.com", &format!("/ipfs/{HELLO}")),
        get("site.example", "/"),
    ];
    wire.send(requests.concat()).await;
    assert_says(&wire.answer().await, "hello\n");
    let file = wire.answer().await;
    assert!(file.status == 200 && file.body == big);
    assert_eq!(wire.answer().await.status, 301);
    assert_says(&wire.answer().await, "hello\n");
    // A tunnel within the tunnel is one as well.
    wire.send(CONNECT).await;
    opened(&mut wire).await;
    wire.send(get("site.example", "/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).await;
    assert_says(&wire.answer().await, "hello\n");
    assert!(wire.rest().await.is_empty());
    let tunnels = "ipfrs_http_requests_total{endpoint=\"unmatched\",method=\"CONNECT\",status=\"200\"}";
    assert_eq!(gateway.metric(tunnels).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_before_the_tunnel_is_there_is_not_lost() {
    let gateway = TestGateway::start_with(hosts).await;
    let requests = get("site.example", "/").repeat(500);
    for tunnels in [1, 3] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send([CONNECT.repeat(tunnels), requests.clone()].concat()).await;
        wire.finish().await;
        for _ in 0..tunnels {
            opened(&mut wire).await;
        }
        for _ in 0..500 {
            assert_says(&wire.answer().await, "hello\n");
        }
        assert!(wire.rest().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_without_a_port_and_what_is_no_http_in_a_tunnel_are_refused() {
    let gateway = TestGateway::start_with(hosts).await;
    for target in ["example.com", "/", "http://example.com:80/"] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("CONNECT {target} HTTP/1.1\r\nHost: example.com\r\n\r\n")).await;
        let refusal = wire.answer().await;
        assert_eq!(refusal.status, 400, "{target}");
        assert!(wire.rest().await.is_empty(), "{target}");
    }
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let refusal = http2.request(Method::CONNECT, gateway.url("/")).send().await.unwrap();
    assert_eq!((refusal.status(), refusal.version()), (StatusCode::NOT_IMPLEMENTED, Version::HTTP_2));
    // TLS is not ended here, and not passed on to anybody.
    let mut wire = tunnel(&gateway).await;
    wire.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    wire.finish().await;
    let rest = wire.rest().await;
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_count_as_the_connections_that_they_are() {
    let change = |config: &mut Config| {
        hosts(config);
        config.server.max_connections = 2;
        config.server.shutdown_grace_seconds = 3_600;
    };
    let gateway = TestGateway::start_with(change).await;
    let (first, mut second) = (tunnel(&gateway).await, tunnel(&gateway).await);
    let mut third = Wire::connect(&gateway).await;
    third.send([CONNECT, get("site.example", "/").as_str()].concat()).await;
    second.send(get("localhost", "/metrics")).await;
    let metrics = second.answer().await.text();
    assert!(metrics.contains("\nipfrs_http_connections_active 2\n"), "{metrics}");
    drop(first);
    opened(&mut third).await;
    assert_says(&third.answer().await, "hello\n");
    // Nobody waits for a tunnel without requests.
    timeout(WATCHDOG, gateway.stop()).await.unwrap();
    assert!(second.rest().await.is_empty() && third.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_may_follow_answers_that_were_ready_and_has_such_within() {
    let gateway = TestGateway::start_with(hosts).await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    let request = get("localhost", &path);
    let mut wire = Wire::connect(&gateway).await;
    // All of it at once: nothing of what follows a CONNECT is lost.
    wire.send([&request.repeat(4), CONNECT, &request.repeat(4)].concat()).await;
    for number in 0..8 {
        if number == 4 {
            opened(&mut wire).await;
        }
        assert_says(&wire.answer().await, "small");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_within_a_tunnel_is_not_waited_for_longer_than_without() {
    let change = |config: &mut Config| {
        hosts(config);
        config.server.header_timeout_seconds = 1;
    };
    let gateway = TestGateway::start_with(change).await;
    let mut wires = Vec::new();
    for beginning in ["", "G", "GET / HTTP/1.1\r\nX-Slow: "] {
        let mut wire = tunnel(&gateway).await;
        wire.send(beginning).await;
        wires.push(wire);
    }
    for mut wire in wires {
        let rest = wire.rest().await;
        let text = String::from_utf8_lossy(&rest);
        assert!(!text.contains("200 OK"), "{text}");
    }
}

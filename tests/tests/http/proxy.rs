//! The gateway as a forward proxy: absolute targets and tunnels.

use std::time::Duration;

use ipfrs_http::HostConfig;
use ipfrs_interface::Config;
use reqwest::{Method, StatusCode, Version};
use tokio::time::timeout;

use crate::content;
use crate::content_ids::HELLO;
use crate::harness::{TestGateway, client};
use crate::wire::{Answer, Wire};

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

const CONNECT: &str = "CONNECT tunnel.example:80 HTTP/1.1\r\nHost: tunnel.example:80\r\n\r\n";

fn hosts(config: &mut Config) {
    config.gateway.hosts.insert("example.com".into(), HostConfig { subdomains: true, ..HostConfig::default() });
    config.gateway.dnslink.insert("site.example".into(), format!("/ipfs/{HELLO}"));
    config.dns.enabled = false;
    config.gateway.proxy = true;
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// Opens a tunnel and returns its connection.
async fn tunnel(gateway: &TestGateway) -> Wire {
    let mut wire = Wire::connect(gateway).await;
    wire.send(CONNECT).await;
    opened(&mut wire).await;
    wire
}

/// Checks the response that opens a tunnel: it has no body and no header that describes one.
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
async fn absolute_target_with_the_host_of_the_header_is_served() {
    for is_proxy in [false, true] {
        let gateway = TestGateway::start_with(|config| {
            hosts(config);
            config.gateway.proxy = is_proxy;
        })
        .await;
        for (target, host) in [
            (format!("http://{HELLO}.ipfs.example.com/"), format!("{HELLO}.ipfs.example.com")),
            (format!("http://{HELLO}.IPFS.Example.COM.:80"), format!("{HELLO}.ipfs.example.com")),
            ("http://site.example/".to_owned(), "SITE.example.:8080".to_owned()),
            (format!("http://127.0.0.1/ipfs/{HELLO}"), "127.0.0.1:1".to_owned()),
            (format!("http://[::1]/ipfs/{HELLO}"), "[0:0::0:1]".to_owned()),
        ] {
            let request = |method: &str| format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let mut wire = Wire::connect(&gateway).await;
            wire.send(request("GET")).await;
            assert_says(&wire.answer().await, "hello\n");
            wire.send(request("HEAD")).await;
            let head = wire.head().await;
            assert_eq!((head.status, head.header("content-length")), (200, "6"), "{target}");
        }
        let target = format!("GET http://example.com/ipfs/{HELLO}?a=b HTTP/1.1\r\nHost: example.com\r\n\r\n");
        let mut wire = Wire::connect(&gateway).await;
        wire.send(target).await;
        let moved = wire.answer().await;
        assert_eq!(
            (moved.status, moved.header("location")),
            (301, format!("http://{HELLO}.ipfs.example.com/?a=b").as_str())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_serves_the_host_of_the_target() {
    let gateway = TestGateway::start_with(hosts).await;
    for (target, host) in [
        ("http://site.example/".to_owned(), "other.example"),
        (format!("http://127.0.0.1/ipfs/{HELLO}"), "other.example"),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        assert_says(&wire.answer().await, "hello\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_proxy_there_are_no_tunnels_and_no_other_targets() {
    let gateway = TestGateway::start_with(|config| {
        hosts(config);
        config.gateway.proxy = false;
    })
    .await;
    for (request, status) in [
        (CONNECT.to_owned(), 501),
        ("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n".to_owned(), 501),
        (format!("GET http://localhost/ipfs/{HELLO} HTTP/1.1\r\nHost: other.example\r\n\r\n"), 400),
        ("GET http://localhost/metrics HTTP/1.1\r\nHost: \r\n\r\n".to_owned(), 400),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        // The gateway does not read the request after it.
        wire.send([request.as_str(), &get("localhost", "/metrics")].concat()).await;
        let refusal = wire.answer().await;
        assert_eq!(refusal.status, status, "{request}");
        assert!(refusal.text().contains("[gateway] proxy"), "{}", refusal.text());
        assert!(wire.rest().await.is_empty(), "{request}");
    }
}

/// Spellings of configured host names, and of names below one.
const CONFIGURED: [&str; 6] =
    ["example.com", "EXAMPLE.com.", "example.com:8080", "below.example.com", "bafkqaaa.ipfs.example.com", "[0:0::1]"];

/// Whether a response is from the daemon and not from a public host.
fn is_of_daemon(answer: &Answer) -> bool {
    let text = answer.text();
    answer.header("content-type").starts_with("application/grpc")
        || ["\"Version\"", "# HELP", "\"operations\"", "\"blocks\""].iter().any(|word| text.contains(word))
}

/// Requests that the daemon serves and that public hosts refuse.
const OF_DAEMON: [(&str, &str, &str); 5] = [
    ("POST", "/api/v0/version", ""),
    ("GET", "/metrics", ""),
    ("GET", "/v1/progress", ""),
    ("GET", "/health", ""),
    ("POST", "/ipfrs.block.v1.BlockService/HasBlock", "Content-Type: application/grpc-web+proto\r\n"),
];

/// Host names in a request.
#[derive(Debug, Clone, Copy)]
struct Names<'a> {
    /// Authority of a preceding CONNECT.
    tunnel: Option<&'a str>,
    target: Option<&'a str>,
    host: &'a str,
    forwarded: Option<&'a str>,
}

const LOCAL: Names<'_> = Names { tunnel: None, target: None, host: "localhost", forwarded: None };

/// Whether the daemon responds to one of its requests with these names.
async fn reaches_daemon(gateway: &TestGateway, names: Names<'_>) -> bool {
    let mut reached = 0;
    for (method, path, headers) in OF_DAEMON {
        let Names { tunnel, target, host, forwarded } = names;
        let mut wire = Wire::connect(gateway).await;
        if let Some(authority) = tunnel {
            let port = if authority.ends_with("8080") { "" } else { ":80" };
            wire.send(format!("CONNECT {authority}{port} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
            if wire.head().await.status != 200 {
                continue;
            }
        }
        let target = target.map_or_else(|| path.to_owned(), |target| format!("http://{target}{path}"));
        let forwarded = forwarded.map(|host| format!("X-Forwarded-Host: {host}\r\n")).unwrap_or_default();
        wire.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{forwarded}{headers}Content-Length: 0\r\n\
             Connection: close\r\n\r\n"
        ))
        .await;
        reached += usize::from(is_of_daemon(&wire.answer().await));
    }
    assert!(reached == 0 || reached == OF_DAEMON.len(), "{reached} of them by {names:?}");
    reached > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_name_anywhere_keeps_a_request_from_the_daemon() {
    for is_proxy in [false, true] {
        let gateway = TestGateway::start_with(|config| {
            hosts(config);
            config.gateway.proxy = is_proxy;
            config.gateway.hosts.insert("[::1]".into(), HostConfig::default());
        })
        .await;
        for name in CONFIGURED {
            let several = format!("localhost, {name}, localhost");
            for names in [
                Names { host: name, ..LOCAL },
                Names { target: Some("localhost"), host: name, ..LOCAL },
                Names { target: Some(name), ..LOCAL },
                Names { target: Some("localhost"), forwarded: Some(name), ..LOCAL },
                Names { target: Some("localhost"), forwarded: Some(&several), ..LOCAL },
                Names { target: Some(name), host: name, forwarded: Some("localhost"), ..LOCAL },
                Names { tunnel: Some(name), ..LOCAL },
                Names { tunnel: Some(name), target: Some("localhost"), ..LOCAL },
                Names { tunnel: Some("tunnel.example"), host: name, ..LOCAL },
                Names { tunnel: Some("tunnel.example"), forwarded: Some(name), ..LOCAL },
                Names { tunnel: Some("tunnel.example"), target: Some("localhost"), host: name, ..LOCAL },
            ] {
                assert!(!reaches_daemon(&gateway, names).await, "proxy = {is_proxy}: {names:?}");
            }
        }
        // A website is equally public within a tunnel and outside.
        for names in [
            Names { tunnel: Some("site.example"), ..LOCAL },
            Names { target: Some("localhost"), host: "site.example", ..LOCAL },
        ] {
            assert!(!reaches_daemon(&gateway, names).await, "proxy = {is_proxy}: {names:?}");
        }
        assert!(reaches_daemon(&gateway, LOCAL).await);
        assert!(reaches_daemon(&gateway, Names { target: Some("localhost"), ..LOCAL }).await);
        for names in [
            Names { tunnel: Some("tunnel.example"), ..LOCAL },
            Names { target: Some("localhost"), host: "other.example", ..LOCAL },
            Names { target: Some("other.example"), ..LOCAL },
        ] {
            assert_eq!(reaches_daemon(&gateway, names).await, is_proxy, "{names:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_request_with_two_hosts_is_malformed() {
    let gateway = TestGateway::start_with(hosts).await;
    let http2 = client().http2_prior_knowledge().build().unwrap();
    for (host, status) in [("example.com", 400), ("localhost", 400), ("127.0.0.1", 200)] {
        let request = http2.get(gateway.url("/metrics")).header("host", host);
        assert_eq!(request.send().await.unwrap().status(), status, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_within_each_other_name_a_bounded_number_of_hosts() {
    let gateway = TestGateway::start_with(hosts).await;
    let mut wire = Wire::connect(&gateway).await;
    for number in 0..8 {
        wire.send(CONNECT.replace("tunnel.", &format!("t{number}."))).await;
        opened(&mut wire).await;
    }
    wire.send(CONNECT).await;
    assert_eq!(wire.answer().await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_ends_at_the_gateway_itself() {
    let gateway = TestGateway::start_with(hosts).await;
    let big = content::bytes(600_000);
    let cid = gateway.add("cid-version=1", big.clone()).await;
    let mut wire = tunnel(&gateway).await;
    // Sequential and pipelined requests: the responses have the order of the requests, and each is for the host in
    // its request.
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
    // A tunnel within a tunnel also works.
    wire.send(CONNECT).await;
    opened(&mut wire).await;
    wire.send(get("site.example", "/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).await;
    assert_says(&wire.answer().await, "hello\n");
    assert!(wire.rest().await.is_empty());
    let tunnels = "ipfrs_http_requests_total{endpoint=\"unmatched\",method=\"CONNECT\",status=\"200\"}";
    assert_eq!(gateway.metric(tunnels).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_to_the_address_has_absolute_targets_within() {
    // Clients of the conformance suite do this: they send proxy requests through the tunnel.
    let gateway = TestGateway::start_with(hosts).await;
    let mut wire = Wire::connect(&gateway).await;
    let address = gateway.address();
    wire.send(format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n")).await;
    opened(&mut wire).await;
    let host = format!("{HELLO}.ipfs.example.com:{}", address.port());
    wire.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
    assert_says(&wire.answer().await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_sent_before_tunnel_opens_are_kept() {
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
async fn connect_without_port_or_non_http_tunnel_is_refused() {
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
    // The gateway neither terminates TLS nor forwards it.
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
    // Shutdown does not wait for an idle tunnel.
    timeout(WATCHDOG, gateway.stop()).await.unwrap();
    assert!(second.rest().await.is_empty() && third.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnel_works_after_and_with_cached_responses() {
    let gateway = TestGateway::start_with(hosts).await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    let request = get("localhost", &path);
    let mut wire = Wire::connect(&gateway).await;
    // All in one write: the bytes after a CONNECT must not be lost.
    wire.send([&request.repeat(4), CONNECT, &request.repeat(4)].concat()).await;
    for number in 0..8 {
        if number == 4 {
            opened(&mut wire).await;
        }
        assert_says(&wire.answer().await, "small");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_head_in_a_tunnel_times_out() {
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

//! The fast path of connections: its responses are the same bytes as those of the HTTP library.

use crate::content;
use crate::harness::TestGateway;
use crate::wire::Wire;

/// Returns the bytes of all responses on one connection, without what differs from request to request.
async fn responses(gateway: &TestGateway, requests: &str, piece: usize) -> String {
    let mut wire = Wire::connect(gateway).await;
    for part in requests.as_bytes().chunks(piece) {
        wire.send(part).await;
    }
    wire.finish().await;
    let bytes = wire.rest().await;
    let is_stable = |line: &&str| !line.starts_with("Date: ") && !line.starts_with("X-Request-Id: ");
    String::from_utf8_lossy(&bytes).split("\r\n").filter(is_stable).collect::<Vec<_>>().join("\r\n")
}

/// Returns requests in every form that may or may not take the fast path.
fn variants(path: &str, listing: &str) -> Vec<String> {
    let lines = [
        "",
        "Accept: */*\r\n",
        "Accept: application/vnd.ipld.raw\r\n",
        "Accept: text/html\r\n",
        "Accept-Encoding: gzip\r\n",
        "Accept-Encoding: identity;q=0\r\n",
        "Range: bytes=0-2\r\n",
        "If-None-Match: *\r\n",
        "If-None-Match: \"x\"\r\n",
        "If-Match: \"x\"\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 1\r\n\r\nx",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Expect: 100-continue\r\n",
        "Upgrade: h2c\r\n",
        "X-Request-Id: mine\r\n",
        "X-Forwarded-Host: example.com\r\n",
        "Origin: http://example.com\r\n",
        "Service-Worker: script\r\n",
        "Cache-Control: only-if-cached\r\n",
        "Range: bytes=9999-\r\n",
        "Range: bytes=0-2\r\nIf-Range: \"x\"\r\n",
        "Accept-Encoding: br\r\nCache-Control: no-cache\r\n",
        "Bad Header: x\r\n",
        " folded: x\r\n",
    ];
    let hosts = ["localhost", "127.0.0.1:80", "gateway.example", "bafy.ipfs.gateway.example", "", "a b"];
    let raw = format!("{path}?format=raw");
    let targets = [
        path,
        listing,
        listing.trim_end_matches('/'),
        &format!("{listing}d/a.txt"),
        &format!("{listing}d/empty"),
        &format!("{listing}d/missing"),
        &format!("{listing}large"),
        "/ipfs/nothing",
        "/ipns/nothing",
        "/",
        &raw,
        &format!("{path}?format=car"),
        &format!("{path}?filename=a.txt&download=true"),
        &format!("//{path}"),
        "*",
    ];
    let mut variants: Vec<String> =
        lines.iter().map(|lines| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).collect();
    for method in ["GET", "HEAD", "POST", "OPTIONS", "get"] {
        for host in hosts {
            variants.push(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        }
        for target in targets {
            variants.push(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        }
    }
    for version in ["HTTP/1.0", "HTTP/1.1", "HTTP/9.9", "HTTP/2.0"] {
        variants.push(format!("GET {path} {version}\r\n\r\n"));
        variants.push(format!("GET {path} {version}\r\nHost: localhost\r\nHost: localhost\r\n\r\n"));
        variants.push(format!("GET http://localhost{path} {version}\r\nHost: localhost\r\n\r\n"));
    }
    let get = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    variants.push(get.repeat(3));
    variants.push(format!("GET {raw} HTTP/1.1\r\nHost: localhost\r\n\r\n").repeat(4));
    variants.push(format!("\r\n\n{get}\r\n{get}"));
    variants.push(format!("{get}HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n{get}"));
    variants.push(format!("{get}GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n{get}"));
    variants.push(format!("{get}garbage\r\n\r\n"));
    variants
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_path_sends_the_bytes_of_the_slow_path() {
    let start = async |fast_path| {
        let gateway = TestGateway::start_with(|config| {
            config.server.fast_path = fast_path;
            config.gateway.hosts.insert("gateway.example".into(), ipfrs_http::HostConfig::default());
        })
        .await;
        let cid = gateway.add("", content::bytes(3_000)).await;
        let large = "text ".repeat(300_000);
        let root = gateway.add_tree("", &[("d/a.txt", "text"), ("d/empty", ""), ("large", &large)]).await;
        // Both are cached from now on.
        gateway.content(&format!("/ipfs/{cid}")).await;
        gateway.content(&format!("/ipfs/{root}/")).await;
        (gateway, format!("/ipfs/{cid}"), format!("/ipfs/{root}/"))
    };
    let ((fast, path, listing), (slow, same_path, _)) = (start(true).await, start(false).await);
    assert_eq!(path, same_path);
    let variants = variants(&path, &listing);
    assert!(variants.len() >= 100, "{}", variants.len());
    for request in &variants {
        for piece in [usize::MAX, 11] {
            let (one, other) = (responses(&fast, request, piece).await, responses(&slow, request, piece).await);
            assert_eq!(one, other, "{request:?} in pieces of {piece}");
        }
    }
    assert!(fast.metric("ipfrs_http_served_total{path=\"fast_path\"}").await > 0);
    assert_eq!(slow.metric("ipfrs_http_served_total{path=\"fast_path\"}").await, 0);
    assert!(slow.metric("ipfrs_http_served_total{path=\"response_cache\"}").await > 0);
}

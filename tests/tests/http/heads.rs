//! Request heads over a socket: size limits and invalid heads.

use reqwest::Method;

use crate::content;
use crate::harness::{TestGateway, client};
use crate::wire::{Answer, Wire};

const MOST: usize = 16 * 1024;

async fn start() -> TestGateway {
    TestGateway::start_with(|config| config.server.max_header_bytes = MOST).await
}

/// Returns a head of `len` bytes.
fn head(len: usize) -> String {
    let around = "GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nX: \r\n\r\n".len();
    format!("GET /health/live HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nX: {}\r\n\r\n", "x".repeat(len - around))
}

/// Checks that the response has `status` and contains all of `texts`, and that the connection is closed afterwards.
async fn assert_refused(wire: &mut Wire, status: u16, texts: &[&str]) -> Answer {
    let answer = wire.answer().await;
    let text = answer.text();
    assert_eq!(answer.status, status, "{text}");
    assert!(answer.is_complete && texts.iter().all(|part| text.contains(part)), "{text}");
    assert!(!answer.header("x-request-id").is_empty() && !answer.header("date").is_empty());
    assert_eq!((answer.header("connection"), answer.header("cache-control")), ("close", "no-store"));
    assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    wire.end().await;
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn head_over_the_limit_is_431_however_it_arrives() {
    let gateway = start().await;
    let put = "POST /api/v0/block/put HTTP/1.1\r\nHost: x\r\n";
    let befores = [
        String::new(),
        "\r\n\r\n".to_owned(),
        "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        format!("{put}Content-Length: 3\r\n\r\nabc"),
        format!("{put}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"),
    ];
    for before in &befores {
        for (len, status) in [(MOST, 200), (MOST + 1, 431), (2 * MOST, 431), (200_000, 431)] {
            for piece in [usize::MAX, 1_000] {
                let mut wire = Wire::connect(&gateway).await;
                let bytes = format!("{before}{}", head(len));
                for part in bytes.as_bytes().chunks(piece) {
                    wire.send(part).await;
                }
                if before.contains("HTTP") {
                    assert_ne!(wire.answer().await.status, 431, "{before}");
                }
                if status == 200 {
                    assert_eq!(wire.answer().await.status, 200, "{before:?} and {len} bytes");
                } else {
                    let key = format!("server.max_header_bytes = {MOST}");
                    assert_refused(&mut wire, 431, &[&key, "send fewer or shorter headers"]).await;
                }
            }
        }
    }
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_header\"}").await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_head_has_a_text_an_id_and_is_counted() {
    let gateway = start().await;
    let many = format!("GET / HTTP/1.1{}\r\n\r\n", "\r\nA: b".repeat(101));
    for (request, status, text) in [
        ("GET / HTTP/9.9\r\n\r\n", 505, "HTTP/1.1"),
        ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505, "HTTP/1.1"),
        ("nonsense\r\n\r\n", 400, "RFC 9112"),
        ("GET / HTTP/1.1\r\nA : b\r\n\r\n", 400, "header's name"),
        ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400, "header's"),
        (&many, 431, "100 headers"),
        (&format!("GET /{}", "x".repeat(MOST)), 414, "server.max_header_bytes"),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(request).await;
        assert_refused(&mut wire, status, &[text]).await;
    }
    let requests = |method: &str, status: u16| {
        format!("ipfrs_http_requests_total{{endpoint=\"unmatched\",method=\"{method}\",status=\"{status}\"}}")
    };
    assert_eq!(gateway.metric(&requests("GET", 505)).await, 2);
    assert_eq!(gateway.metric(&requests("GET", 414)).await, 1);
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_target\"}").await, 1);
    let mut wire = Wire::connect(&gateway).await;
    wire.send("HEAD / HTTP/9.9\r\nHost: x\r\n\r\n").await;
    assert_eq!(wire.head().await.status, 505);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_that_stays_incomplete_is_408() {
    let gateway = TestGateway::start_with(|config| config.server.header_timeout_seconds = 1).await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send("GET / HTTP/1.1\r\nHost: x\r\nX-").await;
    assert_refused(&mut wire, 408, &["server.header_timeout_seconds = 1"]).await;
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"header_timeout\"}").await, 1);
    let mut silent = Wire::connect(&gateway).await;
    silent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_coding_but_chunked_is_501_and_stores_nothing() {
    let gateway = TestGateway::start().await;
    let blocks = gateway.blocks().await;
    for (lines, status) in [
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, chunked", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked", 501),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
    ] {
        for path in ["/api/v0/block/put", "/api/v0/add", "/v1/block/batch/put", "/health"] {
            let mut wire = Wire::connect(&gateway).await;
            let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n");
            wire.send(format!("{head}3\r\nabc\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            assert_refused(&mut wire, status, &["RFC 9112"]).await;
        }
    }
    assert_eq!(gateway.blocks().await, blocks);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_behind_bodies_are_answered_on_the_same_connection() {
    let gateway = TestGateway::start().await;
    let put = |body: &str| {
        let part = "--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"x\"\r\n\r\nabc\r\n--b--\r\n";
        let head = "POST /api/v0/block/put HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n";
        match body {
            "sized" => format!("{head}Content-Length: {}\r\n\r\n{part}", part.len()),
            _ => format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{part}\r\n0\r\n\r\n", part.len()),
        }
    };
    let get = "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n";
    let requests = [put("chunked"), get.to_owned(), put("sized"), put("chunked"), get.to_owned()].concat();
    for piece in [usize::MAX, 7] {
        let mut wire = Wire::connect(&gateway).await;
        for part in requests.as_bytes().chunks(piece) {
            wire.send(part).await;
        }
        for _ in 0..5 {
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.is_complete), (200, true), "{}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_whole_server_is_204_with_its_methods() {
    let gateway = TestGateway::start().await;
    for version in ["1.1", "1.0"] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("OPTIONS * HTTP/{version}\r\nHost: x\r\n\r\n")).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, 204);
        assert!(answer.header("allow").contains("GET, HEAD, POST"), "{}", answer.header("allow"));
        assert!(!answer.header("x-request-id").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_reaches_client_that_sends_before_reading() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(100 << 20);
    let chunked = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n0\r\n\r\n"].concat();
    let form = "Content-Type: multipart/form-data; boundary=b\r\n";
    let part = b"--b\r\nContent-Disposition: form-data; name=\"data\"; filename=\"x\"\r\n\r\n";
    let upload = [&part[..], &body].concat();
    let length = format!("Content-Length: {}\r\n", upload.len());
    let long = format!("X: {}\r\n", "x".repeat(100_000));
    let cases: [(&str, String, Vec<u8>, u16); 6] = [
        ("POST /v1/block/batch/get", length.clone(), upload.clone(), 413),
        ("POST /v1/block/batch/get", format!("Expect: 100-continue\r\n{length}"), upload.clone(), 413),
        ("POST /v1/block/batch/get", "Transfer-Encoding: chunked\r\n".to_owned(), chunked(&upload), 413),
        ("POST /api/v0/block/put", format!("{form}{length}"), upload.clone(), 500),
        ("POST /api/v0/block/put", format!("{form}{length}{long}"), upload.clone(), 431),
        ("POST /api/v0/block/put", "Transfer-Encoding: gzip, chunked\r\n".to_owned(), upload, 501),
    ];
    for (line, headers, body, status) in cases {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n")).await;
        wire.send(&body).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.is_complete), (status, true), "{line} {}", answer.text());
        assert!(!answer.header("x-request-id").is_empty() && !answer.text().is_empty());
    }
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_body\"}").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_429_reaches_client_that_sends_before_reading() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let cid = gateway.add("", content::bytes(32 << 20)).await;
    gateway.until_idle().await;
    let mut holding = Wire::connect(&gateway).await;
    holding.send(format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    holding.take(100_000).await;
    let body = content::bytes(100 << 20);
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut wire = Wire::connect(&gateway).await;
        let head = format!("POST /api/v0/add HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: {}\r\n\r\n", body.len());
        wire.send(head).await;
        wire.send(&body).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.is_complete), (429, true));
    }
    let h2 = client().http2_prior_knowledge().build().unwrap();
    let response = h2.post(gateway.url("/api/v0/add")).body(body).send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert!(!response.text().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_head_over_the_limit_is_431_with_a_text() {
    let gateway = start().await;
    let h2 = client().http2_prior_knowledge().http2_max_header_list_size(1 << 20).build().unwrap();
    let send = async |len: usize| {
        let request = h2.request(Method::GET, gateway.url("/health/live")).header("x", "x".repeat(len));
        request.send().await.unwrap()
    };
    assert_eq!(send(MOST / 2).await.status(), 200);
    let response = send(MOST + 1).await;
    assert_eq!(response.status(), 431);
    assert!(response.headers().contains_key("x-request-id"));
    let text = response.text().await.unwrap();
    assert!(text.contains(&format!("server.max_header_bytes = {MOST}")), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn head_over_the_limit_is_431_for_a_cached_response() {
    let gateway = start().await;
    let path = format!("/ipfs/{}", gateway.add("", "small").await);
    let around = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX: \r\n\r\n").len();
    let mut statuses = Vec::new();
    for len in [around, MOST, MOST + 1] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(len - around));
        let mut wire = Wire::connect(&gateway).await;
        for part in head.as_bytes().chunks(8_100) {
            wire.send(part).await;
        }
        statuses.push(wire.answer().await.status);
    }
    assert_eq!(statuses, [200, 200, 431]);
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_with_content_is_refused_however_it_arrives() {
    let gateway = TestGateway::start_with(|config| config.gateway.proxy = true).await;
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let request = format!("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n{framing}\r\n\r\n");
        for piece in [usize::MAX, 7] {
            let mut wire = Wire::connect(&gateway).await;
            for part in request.as_bytes().chunks(piece) {
                wire.send(part).await;
            }
            assert_refused(&mut wire, 400, &["CONNECT has no content"]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn target_without_a_path_is_400_except_for_connect_and_options() {
    let gateway = TestGateway::start().await;
    for request in ["GET localhost:80", "POST *", "GET *", "OPTIONS localhost:80", "GET foo"] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("{request} HTTP/1.1\r\nHost: localhost:80\r\n\r\n")).await;
        assert_refused(&mut wire, 400, &["neither a path nor a URL"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_values_with_spaces_around_them_are_400() {
    let gateway = TestGateway::start().await;
    let h2 = client().http2_prior_knowledge().build().unwrap();
    for (value, status) in [("bytes=0-1", 200), (" bytes=0-1", 400), ("bytes=0-1\t", 400)] {
        let response = h2.get(gateway.url("/health/live")).header("range", value).send().await.unwrap();
        assert_eq!(response.status(), status, "{value:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn target_with_a_fragment_is_400() {
    let gateway = TestGateway::start().await;
    for request in ["POST /api/v0/files/rm?arg=/a#b&recursive=true", "GET /health#x", "GET http://localhost/health#x"] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")).await;
        assert_refused(&mut wire, 400, &["send # as %23"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_version_is_505_before_the_head_ends() {
    let gateway = TestGateway::start().await;
    for parts in [&["GET / HTTP/9.9\r\n"][..], &["GET / HT", "TP/9.9\r\n"]] {
        let mut wire = Wire::connect(&gateway).await;
        for part in parts {
            wire.send(part).await;
        }
        assert_refused(&mut wire, 505, &["use HTTP/1.1"]).await;
    }
}

//! Requirements in request headers, and the refusals that they cause.

use reqwest::{Method, Response, Version};
use serde_json::{Value, json};

use crate::content;
use crate::harness::{TestGateway, client, header, rpc_failure};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

#[tokio::test(flavor = "multi_thread")]
async fn bodies_in_a_content_coding_are_refused_and_nothing_is_stored() {
    let gateway = TestGateway::start().await;
    let post = |path: &str| gateway.request(Method::POST, path).body(Form::new().file("a", "coded").end());
    for path in ["/api/v0/add", "/api/v0/block/put", "/api/v0/dag/import", "/v1/block/batch/put", "/v1/stream/upload"] {
        for coding in ["gzip", "identity, br"] {
            let request = post(path).header("content-type", Form::new().content_type());
            let response = request.header("content-encoding", coding).send().await.unwrap();
            assert_eq!((response.status().as_u16(), header(&response, "accept-encoding")), (415, "identity"), "{path}");
            let text = response.text().await.unwrap();
            assert!(text.contains(coding.trim_start_matches("identity, ")), "{path}: {text}");
        }
    }
    assert_eq!(gateway.blocks().await, 0);
    let request = post("/api/v0/add").header("content-type", Form::new().content_type());
    assert_eq!(request.header("content-encoding", "identity").send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_that_content_does_not_have_are_refused() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "content").await;
    let get = async |query: &str, accept: &str| {
        let request = gateway.request(Method::GET, &format!("/ipfs/{cid}{query}"));
        request.header("accept", accept).send().await.unwrap()
    };
    for (query, accept, status) in [
        ("?format=ipns-record", "application/vnd.ipld.car", 400),
        ("?format=ipns-record", "*/*", 400),
        ("?format=nonsense", "*/*", 400),
        ("", "application/vnd.ipfs.ipns-record", 400),
        ("", "application/x-tar", 200),
        ("", "application/json", 200),
        ("?format=raw", "application/vnd.ipld.car", 200),
    ] {
        assert_eq!(get(query, accept).await.status(), status, "{query} {accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_match_is_a_condition() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", content::bytes(2_000)).await;
    let dir = gateway.add_tree("", &[("d/a.txt", "x")]).await;
    let listing = header(&gateway.get(&format!("/ipfs/{dir}/")).await, "etag").to_owned();
    for (path, tag, status) in [
        (format!("/ipfs/{cid}"), format!("\"{cid}\""), 200),
        (format!("/ipfs/{cid}"), format!("\"x\", \"{cid}-gzip\""), 200),
        (format!("/ipfs/{cid}"), "*".to_owned(), 200),
        (format!("/ipfs/{cid}"), format!("W/\"{cid}\""), 412),
        (format!("/ipfs/{cid}"), "\"other\"".to_owned(), 412),
        (format!("/ipfs/{cid}?format=raw"), format!("\"{cid}\""), 412),
        (format!("/ipfs/{dir}/"), listing, 200),
        (format!("/ipfs/{dir}/"), format!("\"{dir}\""), 412),
    ] {
        // The second plain request uses the response cache.
        for _ in 0..2 {
            let request = gateway.request(Method::GET, &path).header("if-match", &tag);
            assert_eq!(request.send().await.unwrap().status(), status, "{path} {tag}");
            gateway.content(&path).await;
        }
    }
    // Content has no modification date to compare with.
    let request = gateway.request(Method::GET, &format!("/ipfs/{cid}"));
    let request = request.header("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT");
    assert_eq!(request.send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_host_or_with_several_is_malformed() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "content").await;
    gateway.content(&format!("/ipfs/{cid}")).await;
    for (request, status) in [
        (format!("GET /ipfs/{cid} HTTP/1.1\r\n\r\n"), 400),
        (format!("GET /ipfs/{cid} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400),
        (format!("GET http://a/ipfs/{cid} HTTP/1.1\r\n\r\n"), 400),
        (format!("GET /ipfs/{cid} HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400),
        (format!("GET /ipfs/{cid} HTTP/1.1\r\nHost:\r\n\r\n"), 200),
        (format!("GET /ipfs/{cid} HTTP/1.0\r\n\r\n"), 200),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(&request).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, status, "{request}");
        assert_ne!(answer.header("x-request-id"), "", "{request}");
    }
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    let line = "ipfrs_http_requests_total{endpoint=\"unmatched\",method=\"GET\",status=\"400\"} 4\n";
    assert!(metrics.contains(line), "{metrics}");
}

fn allows_reading(response: &Response) -> bool {
    let lists = |name: &str, wanted: &[&str]| {
        let listed: Vec<_> = header(response, name).split(", ").collect();
        wanted.iter().all(|item| listed.contains(item))
    };
    header(response, "access-control-allow-origin") == "*"
        && lists("access-control-allow-methods", &["GET", "HEAD", "OPTIONS"])
        && lists("access-control-allow-headers", &["Content-Type", "Range", "User-Agent", "X-Requested-With"])
        && lists("access-control-expose-headers", &["Content-Length", "Content-Range", "X-Ipfs-Path", "X-Ipfs-Roots"])
        && header(response, "access-control-allow-credentials").is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_may_read_content_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "content").await;
    let dir = gateway.add_tree("", &[("d/a.txt", "x")]).await;
    let send = async |method: Method, path: &str| {
        let request = gateway.request(method, path).header("origin", "https://example.com");
        request.header("access-control-request-method", "GET").send().await.unwrap()
    };
    let missing = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
    for (method, path, status) in [
        (Method::GET, format!("/ipfs/{cid}"), 200),
        (Method::GET, format!("/ipfs/{cid}"), 200),
        (Method::HEAD, format!("/ipfs/{cid}"), 200),
        (Method::OPTIONS, format!("/ipfs/{cid}"), 204),
        (Method::GET, format!("/ipfs/{dir}"), 301),
        (Method::GET, format!("/ipfs/{dir}/"), 200),
        (Method::GET, format!("/ipfs/{missing}"), 404),
        (Method::PUT, format!("/ipfs/{cid}"), 405),
    ] {
        let response = send(method.clone(), &path).await;
        assert_eq!(response.status(), status, "{method} {path}");
        assert!(allows_reading(&response), "{method} {path}: {:?}", response.headers());
    }
    for path in ["/api/v0/version", "/api/v0/id", "/v1/block/batch/get", "/v1/progress", "/metrics", "/health"] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let response = send(method.clone(), path).await;
            let names = response.headers().keys().map(ToString::to_string);
            assert_eq!(names.filter(|name| name.starts_with("access-control-")).count(), 0, "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_timeout_option_limits_the_command() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", content::bytes(1_000)).await;
    for timeout in ["0", "0s", "1h30m", "2540400h", ""] {
        assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}&timeout={timeout}")).await, content::bytes(1_000));
    }
    for timeout in ["5", "soon", "-1s"] {
        let response = gateway.rpc(&format!("cat?arg={cid}&timeout={timeout}")).send().await.unwrap();
        assert_eq!(response.status(), 400, "{timeout}");
    }
    // An upload that never ends: the head of its response is sent with the first line.
    let mut wire = Wire::connect(&gateway).await;
    wire.send(
        "POST /api/v0/add?timeout=20ms HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/octet-stream\r\n\r\n1\r\na\r\n",
    )
    .await;
    let answer = wire.answer().await;
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &error["Code"], &error["Type"]), (500, &json!(0), &json!("error")));
    assert!(error["Message"].as_str().unwrap().starts_with("context deadline exceeded"), "{error}");
    assert_eq!(gateway.blocks().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_timeout_during_stream_is_reported_at_its_end() {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("first", "1").file("second", content::bytes(100)).end();
    let begun = &form[..form.len() - 50];
    let ask = async |te: &str| {
        let mut wire = Wire::connect(&gateway).await;
        let head = format!(
            "POST /api/v0/add?progress=true&timeout=2s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n{te}\
             Content-Type: {}\r\n\r\n{:x}\r\n",
            Form::new().content_type(),
            begun.len()
        );
        wire.send([head.as_bytes(), begun, b"\r\n"].concat()).await;
        wire.answer().await
    };
    let (told, cut) = tokio::join!(ask("TE: trailers\r\n"), ask(""));
    for (answer, is_told) in [(told, true), (cut, false)] {
        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}");
        assert!(text.lines().next().unwrap().contains("first"), "{text}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert!(last["Message"].as_str().unwrap().starts_with("context deadline exceeded"), "{text}");
        assert_eq!(answer.is_complete, is_told, "without trailers the connection breaks off");
        assert_eq!(answer.trailer("x-stream-error").starts_with("context deadline exceeded"), is_told);
    }
    let failure = gateway.rpc("cat?arg=nonsense&timeout=1h").send().await.unwrap();
    assert!(!rpc_failure(failure).await.contains("deadline"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_refuses_encodings_that_kubo_does_not_have() {
    let gateway = TestGateway::start().await;
    for (encoding, status) in [("json", 200), ("", 400), ("text", 200), ("xml", 200), ("protobuf", 400)] {
        let answer =
            exchange(&gateway, format!("POST /api/v0/version?encoding={encoding} HTTP/1.1\r\nContent-Length: 0")).await;
        assert_eq!(answer.status, status, "{encoding}");
        assert_eq!(answer.text().contains("invalid encoding"), status == 400, "{encoding}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn method_is_checked_before_parameters() {
    const UPLOAD: &str = "DELETE, HEAD, OPTIONS, PATCH";
    let gateway = TestGateway::start().await;
    for (method, path, allow) in [
        (Method::GET, "/v1/stream/upload/x?y", UPLOAD),
        (Method::PUT, "/v1/stream/upload/%FF", UPLOAD),
        (Method::GET, "/v1/block/batch/get?x=1", "POST"),
        (Method::PATCH, "/v1/auth/keys/%FF?x", "DELETE"),
        (Method::PUT, "/pinning/v1/pins/%FF", "GET, HEAD, POST, DELETE"),
        (Method::DELETE, "/routing/v1/providers/%FF?filter-addrs=a&filter-addrs=b", "GET, HEAD, OPTIONS"),
        (Method::PUT, "/ipfs/bafkqaaa?format=nonsense", "GET, HEAD, OPTIONS"),
        (Method::POST, "/graphql/ws?x", "GET, HEAD"),
        (Method::DELETE, "/graphql/schema.graphql", "GET, HEAD"),
    ] {
        let response = gateway.request(method.clone(), path).send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "allow")), (405, allow), "{method} {path}");
        assert!(!response.bytes().await.unwrap().is_empty(), "{method} {path}");
    }
    let options = gateway.request(Method::OPTIONS, "/v1/stream/upload/x?y").send().await.unwrap();
    assert_eq!(options.status(), 204);
    let head = gateway.request(Method::HEAD, "/v1/stream/upload/x?y").header("tus-resumable", "1.0.0");
    assert_eq!(head.send().await.unwrap().status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_are_not_utf8_are_refused_in_the_form_of_each_api() {
    let gateway = TestGateway::start().await;
    for method in [Method::GET, Method::POST, Method::DELETE] {
        let pin = gateway.request(method.clone(), "/pinning/v1/pins/%FF").body(json!({"cid": "bafkqaaa"}).to_string());
        let refused = pin.send().await.unwrap();
        assert_eq!(refused.status(), 400, "{method}");
        let error: Value = refused.json().await.unwrap();
        assert_eq!(error, json!({"error": {"reason": "BAD_REQUEST", "details": "the path is not UTF-8"}}));
    }
    for (method, path) in [
        (Method::GET, "/routing/v1/ipns/%FF"),
        (Method::PUT, "/routing/v1/ipns/%FF"),
        (Method::GET, "/routing/v1/providers/%FF"),
        (Method::GET, "/routing/v1/peers/%FF"),
    ] {
        let refused = gateway.request(method, path).send().await.unwrap();
        assert_eq!(refused.status(), 400, "{path}");
        let text = refused.text().await.unwrap();
        assert!(text.contains("the path is not UTF-8"), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_a_key_that_does_not_arrive_is_not_too_large() {
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    let post = |length: usize| format!("POST /v1/auth/keys HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{");
    for (length, status, named) in [(100, 408, "gateway.upload_idle_seconds = 1"), (300_000, 413, "body of a key")] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(post(length)).await;
        let refused = wire.answer().await;
        assert!(refused.status == status && refused.text().contains(named), "{}", refused.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_pauses_is_408_with_connection_close() {
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    // The parser of a CAR says where it stopped.
    let targets = [
        ("/v1/block/batch/get", "application/json"),
        ("/v1/block/batch/put", "application/vnd.ipld.car"),
        ("/v1/stream/upload", "application/octet-stream"),
        ("/graphql", "application/json"),
    ];
    let gateway = &gateway;
    // The rest of a body is discarded only without Expect, and then the connection of every failed request ends.
    let cases = targets.into_iter().flat_map(|target| [(target, ""), (target, "Expect: 100-continue\r\n")]);
    let refusals = cases.map(|((target, media), expect)| async move {
        let mut wire = Wire::connect(gateway).await;
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Type: {media}\r\n{expect}");
        wire.send(format!("{head}Content-Length: 9\r\n\r\n")).await;
        if !expect.is_empty() {
            assert_eq!(wire.take(25).await, b"HTTP/1.1 100 Continue\r\n\r\n", "{target}");
        }
        let refused = wire.answer().await;
        assert_eq!((refused.status, refused.header("connection")), (408, "close"), "{target}: {}", refused.text());
        assert!(refused.text().contains("gateway.upload_idle_seconds = 1"), "{target}: {}", refused.text());
    });
    futures::future::join_all(refusals).await;
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"upload_idle\"}").await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_with_a_slash_has_the_errors_of_its_routes() {
    let gateway = TestGateway::start().await;
    for (method, path, status, content_type, text) in [
        (Method::POST, "/api/v0/", 404, "text/plain; charset=utf-8", "404 page not found\n"),
        (Method::GET, "/api/v0/", 405, "text/plain; charset=utf-8", "405 - Method Not Allowed: use POST\n"),
        (Method::GET, "/v1/", 404, "application/problem+json", "no route /v1/"),
        (Method::GET, "/pinning/v1/", 404, "application/json", "\"NOT_FOUND\""),
        (Method::GET, "/routing/v1/", 404, "text/plain; charset=utf-8", "no route /routing/v1/"),
    ] {
        let response = gateway.request(method, path).send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "content-type")), (status, content_type), "{path}");
        let is_not_sniffed = header(&response, "x-content-type-options") == "nosniff";
        assert!(is_not_sniffed || !content_type.starts_with("text/"), "{path}");
        let body = response.text().await.unwrap();
        assert!(body.contains(text), "{path}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_without_content_has_no_length_over_http2() {
    let gateway = TestGateway::start().await;
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let begun = gateway.request(Method::POST, "/v1/stream/upload").header("tus-resumable", "1.0.0");
    let begun = begun.header("upload-length", "1").send().await.unwrap();
    for (method, path) in [
        (Method::OPTIONS, "/ipfs/bafkqaaa"),
        (Method::OPTIONS, "/api/v0/version"),
        (Method::OPTIONS, "/routing/v1/providers/bafkqaaa"),
        (Method::OPTIONS, "/v1/stream/upload"),
        (Method::DELETE, header(&begun, "location")),
    ] {
        let request = http2.request(method, gateway.url(path)).header("tus-resumable", "1.0.0");
        let response = request.send().await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 204), "{path}");
        assert_eq!(header(&response, "content-length"), "", "{path}");
    }
}

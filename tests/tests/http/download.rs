//! `GET /v1/stream/download/{cid}[/path]`.

use reqwest::{Method, Response};
use serde_json::Value;

use crate::batch_get::problem;
use crate::content::{self, assert_same};
use crate::harness::{TestGateway, header};

#[tokio::test(flavor = "multi_thread")]
async fn download_honours_offset_and_limit() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(700_000);
    let cid = gateway.add("", body.clone()).await;
    for (query, from, to) in [
        ("", 0, 700_000),
        ("?offset=0", 0, 700_000),
        ("?offset=699999", 699_999, 700_000),
        ("?offset=262100&limit=100", 262_100, 262_200),
        ("?limit=1", 0, 1),
        ("?limit=0", 0, 0),
        ("?offset=600000&limit=18446744073709551615", 600_000, 700_000),
        ("?offset=700000", 700_000, 700_000),
    ] {
        let path = format!("/v1/stream/download/{cid}{query}");
        let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
        let response = gateway.get(&path).await;
        assert_eq!((head.status().as_u16(), response.status().as_u16()), (200, 200), "{query}");
        for name in ["content-length", "etag", "content-disposition", "content-type", "accept-ranges"] {
            assert_eq!(header(&head, name), header(&response, name), "{query}: {name}");
        }
        assert_eq!(header(&response, "content-length"), (to - from).to_string(), "{query}");
        assert_eq!(header(&response, "etag"), format!("\"{cid}\""));
        assert_same(&response.bytes().await.unwrap(), &body[from..to], query);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn download_name_is_from_query_path_or_cid() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a b.txt", "hello world")]).await;
    let cid = gateway.add("", "hello world").await;
    for (path, name, media) in [
        (format!("{root}/a%20b.txt"), "a b.txt", "text/plain; charset=utf-8"),
        (format!("{root}/a%20b.txt?filename=%22x%22.png"), "_x_.png", "image/png"),
        (cid.clone(), cid.as_str(), "application/octet-stream"),
    ] {
        let response = gateway.get(&format!("/v1/stream/download/{path}")).await;
        assert_eq!(response.status(), 200, "{path}");
        let expected = format!("attachment; filename=\"{name}\";");
        assert!(header(&response, "content-disposition").starts_with(&expected), "{:?}", response.headers());
        assert_eq!(header(&response, "content-type"), media);
        assert_eq!(response.text().await.unwrap(), "hello world");
    }
}

async fn with(gateway: &TestGateway, path: &str, name: &str, value: &str) -> Response {
    let request = gateway.request(Method::GET, &format!("/v1/stream/download/{path}"));
    request.header(name, value).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn download_supports_range_and_if_none_match() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    let part = with(&gateway, &cid, "range", "bytes=6-").await;
    assert_eq!((part.status().as_u16(), header(&part, "content-range")), (206, "bytes 6-10/11"));
    assert_eq!(part.text().await.unwrap(), "world");
    let same = with(&gateway, &cid, "if-none-match", &format!("\"{cid}\"")).await;
    assert_eq!(same.status(), 304);
    problem(with(&gateway, &cid, "if-match", "\"other\"").await, 412, "precondition_failed").await;
    let both = with(&gateway, &format!("{cid}?offset=1"), "range", "bytes=6-").await;
    problem(both, 400, "invalid_input").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn download_offset_past_end_returns_416_with_size() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    for response in [
        gateway.get(&format!("/v1/stream/download/{cid}?offset=12")).await,
        with(&gateway, &cid, "range", "bytes=11-").await,
    ] {
        assert_eq!(header(&response, "content-range"), "bytes */11");
        let problem: Value = problem(response, 416, "range_not_satisfiable").await;
        assert!(problem["detail"].as_str().unwrap().contains("11 bytes"), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn download_of_a_non_file_is_refused() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a", "hello world")]).await;
    let missing = "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4";
    for (path, status, code) in [
        (root.as_str(), 400, "invalid_input"),
        ("nonsense", 400, "invalid_input"),
        (missing, 404, "not_found"),
        (&format!("{root}/b"), 404, "not_found"),
        (&format!("{root}/a?offset=x"), 400, "invalid_input"),
        (&format!("{root}/a?limit=-1"), 400, "invalid_input"),
        (&format!("{root}/a?offset=1&offset=2"), 400, "invalid_input"),
        (&format!("{root}/a?lenght=5"), 400, "invalid_input"),
    ] {
        problem(gateway.get(&format!("/v1/stream/download/{path}")).await, status, code).await;
    }
}

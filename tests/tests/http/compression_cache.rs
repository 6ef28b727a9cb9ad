//! Cache of compressed bodies (`compression.cache_bytes`). Each body is compressed once and served to all clients,
//! except if its content is blocked or removed.

use std::fs;

use http::header::ACCEPT_ENCODING;
use ipfrs_http::CompressionLevel;
use reqwest::{Method, Response};

use crate::compression::{decoded, text};
use crate::content::{self, assert_same};
use crate::harness::{TestGateway, header};
use crate::missing_blocks::without_some_leaves;
use crate::wire::{Answer, exchange};

const HITS: &str = "ipfrs_cache_hits_total{cache=\"compressed\"}";
const MISSES: &str = "ipfrs_cache_misses_total{cache=\"compressed\"}";
const SIZE: &str = "ipfrs_cache_size_bytes{cache=\"compressed\"}";
const CHUNK: usize = 262_144;

async fn ask(gateway: &TestGateway, method: Method, path: &str, accept: &str) -> Response {
    gateway.request(method, path).header(ACCEPT_ENCODING, accept).send().await.unwrap()
}

/// Returns the number of bytes that were compressed so far with a coding.
async fn compressed(gateway: &TestGateway, coding: &str) -> u64 {
    gateway.metric(&format!("ipfrs_compression_input_bytes_total{{coding=\"{coding}\"}}")).await
}

/// Returns the sorted headers, except for those that differ between requests or transfers.
fn described(response: &Response) -> Vec<(String, String)> {
    let untold = ["content-length", "transfer-encoding", "date", "x-request-id"];
    let headers = response.headers().iter().filter(|(name, _)| !untold.contains(&name.as_str()));
    let mut told: Vec<_> =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    told.sort();
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_bodies_are_reused_per_coding_and_level() {
    for level in [CompressionLevel::Balanced, CompressionLevel::Number(5)] {
        let gateway = TestGateway::start_with(|config| config.compression.level = level).await;
        let mut hits = 0;
        for len in [3_000, 100_000, 1_000_000] {
            let content = text(len);
            let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
            for coding in ["zstd", "br", "gzip", "deflate"] {
                let what = format!("{level:?} {coding} {len}");
                let before = compressed(&gateway, coding).await;
                let first = ask(&gateway, Method::GET, &path, coding).await;
                let told = described(&first);
                let made = first.bytes().await.unwrap();
                assert_eq!(compressed(&gateway, coding).await, before + len as u64, "{what}");
                let again = ask(&gateway, Method::GET, &path, coding).await;
                assert_eq!(header(&again, "content-length"), made.len().to_string(), "{what}");
                assert_eq!(described(&again), told, "{what}");
                assert_same(&again.bytes().await.unwrap(), &made, &what);
                let head = ask(&gateway, Method::HEAD, &path, coding).await;
                assert_eq!(header(&head, "content-length"), made.len().to_string(), "HEAD {what}");
                assert_eq!(described(&head), told, "HEAD {what}");
                assert_eq!(compressed(&gateway, coding).await, before + len as u64, "{what}: once");
                assert_same(&decoded(coding, &made), &content, &what);
                hits += 2;
                assert_eq!(gateway.metric(HITS).await, hits, "{what}");
            }
            assert_same(&gateway.content(&path).await, &content, "as it is");
        }
        assert_eq!((gateway.metric(MISSES).await, gateway.metric(HITS).await), (12, hits));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_cache_respects_conditions_and_ranges() {
    let gateway = TestGateway::start().await;
    let content = text(100_000);
    let cid = gateway.add("", content.clone()).await;
    let path = format!("/ipfs/{cid}");
    let made = ask(&gateway, Method::GET, &path, "gzip").await.bytes().await.unwrap();
    let request = || gateway.request(Method::GET, &path).header(ACCEPT_ENCODING, "gzip");
    let held = request().header("if-none-match", format!("\"{cid}-gzip\"")).send().await.unwrap();
    assert_eq!((held.status().as_u16(), header(&held, "etag")), (304, &*format!("\"{cid}-gzip\"")));
    let part = request().header("range", "bytes=10-99").send().await.unwrap();
    assert_eq!((part.status().as_u16(), header(&part, "content-encoding")), (206, ""));
    assert_same(&part.bytes().await.unwrap(), &content[10..100], "a range");
    assert_eq!(gateway.metric(HITS).await, 0);
    // The same content under other names: the same bytes with another content type.
    for (name, content_type) in [
        (format!("{path}?filename=a.css"), "text/css; charset=utf-8"),
        (format!("/v1/stream/download/{cid}?filename=a.html"), "text/html"),
    ] {
        let named = ask(&gateway, Method::GET, &name, "gzip").await;
        assert_eq!((header(&named, "etag"), named.status().as_u16()), (&*format!("\"{cid}-gzip\""), 200), "{name}");
        assert!(header(&named, "content-type").starts_with(content_type), "{name}: {}", header(&named, "content-type"));
        assert_same(&named.bytes().await.unwrap(), &made, &name);
    }
    assert_eq!(gateway.metric(HITS).await, 2);
    // A part of the content has the same entity tag, but the cached body does not match it.
    let part = format!("/v1/stream/download/{cid}?filename=a.txt&offset=5000&limit=50000");
    for _ in 0..2 {
        let body = ask(&gateway, Method::GET, &part, "gzip").await.bytes().await.unwrap();
        assert_same(&decoded("gzip", &body), &content[5_000..55_000], "offset and limit");
    }
    assert_same(&request().send().await.unwrap().bytes().await.unwrap(), &made, "after that");
    assert_eq!((gateway.metric(HITS).await, gateway.metric(MISSES).await), (3, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_small_file_is_compressed_on_the_fast_path() {
    let gateway = TestGateway::start().await;
    let content = text(3_000);
    let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
    let ready = "ipfrs_cache_hits_total{cache=\"answer\"}";
    // One request per second takes the slow path, which may be one of these.
    for _ in 0..100 {
        let body = ask(&gateway, Method::GET, &path, "br").await.bytes().await.unwrap();
        assert_same(&decoded("br", &body), &content, "ready");
        if gateway.metric(ready).await > 0 {
            break;
        }
    }
    assert!(gateway.metric(ready).await > 0 && gateway.metric(HITS).await > 0);
    assert_eq!(compressed(&gateway, "br").await, 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_cache_size_is_bounded() {
    let gateway = TestGateway::start_with(|config| config.compression.cache_bytes = 128 * 1024).await;
    let mut paths = Vec::new();
    for number in 0..20 {
        paths.push(format!("/ipfs/{}", gateway.add("", text(30_000 + number)).await));
    }
    let mut made = 0;
    for path in paths.iter().chain(&paths) {
        let body = ask(&gateway, Method::GET, path, "gzip").await.bytes().await.unwrap();
        assert!(body.len() < 16 * 1024, "{}", body.len());
        made += body.len() as u64;
        assert!(gateway.metric(SIZE).await <= 128 * 1024);
    }
    assert!(made / 2 > 128 * 1024 && gateway.metric(SIZE).await > 32 * 1024);
    let (hits, misses) = (gateway.metric(HITS).await, gateway.metric(MISSES).await);
    assert!(hits > 0 && misses > 20 && hits + misses == 40, "{hits} {misses}");
    let large = format!("/ipfs/{}", gateway.add("", text(400_000)).await);
    let off = TestGateway::start_with(|config| config.compression.cache_bytes = 0).await;
    let small = format!("/ipfs/{}", off.add("", text(3_000)).await);
    for (gateway, path, len) in [(&gateway, large, 400_000), (&off, small, 3_000)] {
        let before = compressed(gateway, "gzip").await;
        for _ in 0..2 {
            ask(gateway, Method::GET, &path, "gzip").await.bytes().await.unwrap();
        }
        assert_eq!(compressed(gateway, "gzip").await, before + 2 * len);
    }
    assert_eq!(gateway.metric(HITS).await, hits);
}

async fn gzip(gateway: &TestGateway, path: &str) -> Answer {
    exchange(gateway, format!("GET {path} HTTP/1.1\r\nAccept-Encoding: gzip")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_response_is_not_cached_compressed() {
    let (gateway, cid) = without_some_leaves("", &[0, 1, 2]).await;
    let path = format!("/ipfs/{cid}?filename=a.txt");
    assert!(!gzip(&gateway, &path).await.is_complete);
    let content = content::bytes(4 * CHUNK);
    gateway.add("", content.slice(3 * CHUNK..)).await;
    for hits in [0, 1] {
        let answer = gzip(&gateway, &path).await;
        assert!(answer.is_complete);
        assert_same(&decoded("gzip", &answer.body), &content, "now that all is here");
        assert_eq!(gateway.metric(HITS).await, hits);
    }
}

/// Returns a gateway with a file in four blocks and a small file, both with cached compressed bodies, and their paths
/// and the content ID of the third block of the first file.
async fn kept() -> (TestGateway, String, String, String) {
    let repo = tempfile::tempdir().unwrap();
    fs::create_dir(repo.path().join("denylists")).unwrap();
    let gateway = TestGateway::start_on(repo, |config| config.gateway.denylists = vec!["denylists".into()]).await;
    let content = text(1_000_000);
    let file = gateway.add("pin=false", content.clone()).await;
    let small = gateway.add("pin=false", text(3_000)).await;
    let leaf = gateway.add("pin=false", content.slice(2 * CHUNK..3 * CHUNK)).await;
    for hits in [0, 2] {
        for path in [&file, &small] {
            assert!(gzip(&gateway, &format!("/ipfs/{path}")).await.is_complete);
        }
        assert_eq!(gateway.metric(HITS).await, hits);
    }
    (gateway, format!("/ipfs/{file}"), format!("/ipfs/{small}"), leaf)
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_body_of_removed_content_is_not_served() {
    let (gateway, file, small, leaf) = kept().await;
    gateway.rpc_json(&format!("block/rm?arg={leaf}")).await;
    assert!(!gzip(&gateway, &file).await.is_complete, "a block is missing");
    gateway.rpc_json(&format!("block/rm?arg={}", small.trim_start_matches("/ipfs/"))).await;
    assert_eq!(gzip(&gateway, &small).await.status, 404);
    let content = text(1_000_000);
    gateway.add("pin=false", content.clone()).await;
    for length in ["", "kept"] {
        let answer = gzip(&gateway, &file).await;
        assert_eq!(answer.header("content-length").is_empty(), length.is_empty(), "kept anew");
        assert_same(&decoded("gzip", &answer.body), &content, "it is back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_body_of_blocked_content_is_not_served() {
    let (gateway, file, small, leaf) = kept().await;
    let list = gateway.repo().path().join("denylists/a.deny");
    let rules = format!("ipfrs_denylist_rules{{list=\"{}\"}}", list.display());
    fs::write(&list, format!("/ipfs/{leaf}\n{small}\n")).unwrap();
    gateway.until_metric(&rules, |count| count == 2).await;
    assert_eq!(gzip(&gateway, &small).await.status, 410);
    let answer = gzip(&gateway, &file).await;
    assert!(answer.status == 410 || !answer.is_complete, "a block of it is blocked: {}", answer.status);
    fs::write(&list, format!("{file}\n")).unwrap();
    gateway.until_metric(&rules, |count| count == 1).await;
    assert_eq!(gzip(&gateway, &file).await.status, 410);
    assert_eq!(gateway.metric(HITS).await, 2, "those before");
}

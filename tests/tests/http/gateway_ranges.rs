//! Ranges (RFC 9110, section 14), compared byte for byte across block boundaries.

use bytes::Bytes;
use reqwest::{Method, Response, StatusCode};

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form;

/// Chunk size of the default profile, in bytes.
const CHUNK: usize = 262_144;
const SIZE: usize = 3 * CHUNK + 1_000;

async fn ranged(gateway: &TestGateway, cid: &str, range: &str) -> Response {
    gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", range).send().await.unwrap()
}

/// Adds the same content with dag-pb leaves, with raw leaves, and as one raw block.
async fn forms(gateway: &TestGateway, content: &Bytes) -> Vec<(String, &'static str)> {
    vec![
        (gateway.add("", content.clone()).await, "dag-pb leaves"),
        (gateway.add("raw-leaves=true", content.clone()).await, "raw leaves"),
        (gateway.add("profile=unixfs-v1-2025&chunker=size-2000000", content.clone()).await, "one raw block"),
        (gateway.add("chunker=size-1000&max-file-links=4", content.clone()).await, "many levels"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_single_range_is_exact_in_every_form_of_a_file() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(SIZE);
    let last = SIZE - 1;
    let ranges = [
        ("bytes=0-0".to_owned(), 0..1),
        (format!("bytes=0-{}", CHUNK - 1), 0..CHUNK),
        (format!("bytes=0-{CHUNK}"), 0..CHUNK + 1),
        (format!("bytes={}-{CHUNK}", CHUNK - 1), CHUNK - 1..CHUNK + 1),
        (format!("bytes={CHUNK}-{CHUNK}"), CHUNK..CHUNK + 1),
        (format!("bytes={}-{}", CHUNK + 5, 3 * CHUNK + 5), CHUNK + 5..3 * CHUNK + 6),
        (format!("bytes={}-", 3 * CHUNK), 3 * CHUNK..SIZE),
        (format!("bytes={last}-{last}"), last..SIZE),
        (format!("bytes={last}-99999999999999999999"), last..SIZE),
        ("bytes=0-".to_owned(), 0..SIZE),
        ("bytes=-1".to_owned(), last..SIZE),
        ("bytes=-1001".to_owned(), SIZE - 1_001..SIZE),
        ("bytes=-99999999999".to_owned(), 0..SIZE),
    ];
    for (cid, form) in forms(&gateway, &content).await {
        for (range, expected) in &ranges {
            let response = ranged(&gateway, &cid, range).await;
            assert_eq!(response.status(), 206, "{form}, {range}");
            let content_range = format!("bytes {}-{}/{SIZE}", expected.start, expected.end - 1);
            assert_eq!(header(&response, "content-range"), content_range);
            assert_eq!(header(&response, "content-length"), expected.len().to_string());
            assert_eq!(header(&response, "accept-ranges"), "bytes");
            assert_eq!(header(&response, "etag"), format!("\"{cid}\""));
            assert_eq!(header(&response, "cache-control"), "public, max-age=29030400, immutable");
            let body = response.bytes().await.unwrap();
            assert_same(&body, &content[expected.clone()], &format!("{form}, {range}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn range_past_end_returns_416_with_file_size() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", content::bytes(SIZE)).await;
    for range in
        [format!("bytes={SIZE}-"), format!("bytes={SIZE}-{SIZE}"), "bytes=-0".into(), "bytes=9999999-,-0".into()]
    {
        let response = ranged(&gateway, &cid, &range).await;
        assert_eq!(response.status(), 416, "{range}");
        assert_eq!(header(&response, "content-range"), format!("bytes */{SIZE}"));
        assert!(response.bytes().await.unwrap().len() < 1_000, "no content");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_ranges_are_ignored() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "0123456789").await;
    for range in ["items=0-1", "bytes=5-3", "bytes=a-b", "bytes=", "bytes", "bytes=1", "bytes=--1", "bytes=0x1-2"] {
        let response = ranged(&gateway, &cid, range).await;
        // A server may ignore an invalid header or refuse the range; it must not send other bytes.
        match response.status().as_u16() {
            200 => assert_eq!(response.text().await.unwrap(), "0123456789", "{range}"),
            status => assert!(matches!(status, 400 | 416), "{range}: {status}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn range_of_empty_file_returns_no_bytes() {
    let gateway = TestGateway::start().await;
    for options in ["", "cid-version=1"] {
        let cid = gateway.add(options, "").await;
        let whole = gateway.get(&format!("/ipfs/{cid}")).await;
        assert_eq!((whole.status().as_u16(), header(&whole, "content-length")), (200, "0"));
        for range in ["bytes=0-", "bytes=0-10", "bytes=-5"] {
            let response = ranged(&gateway, &cid, range).await;
            assert!(matches!(response.status().as_u16(), 200 | 416), "{range}: {}", response.status());
            if response.status() == 200 {
                assert_eq!(header(&response, "content-length"), "0");
            }
            assert_eq!(response.bytes().await.unwrap(), "", "{range}");
        }
    }
}

/// Header lines of a part as text, and its bytes.
type Part<'a> = (&'a str, &'a [u8]);

/// Parses a `multipart/byteranges` body (RFC 9110, section 14.6) and checks the lengths of its parts.
fn parts<'a>(content_type: &str, body: &'a [u8]) -> Vec<Part<'a>> {
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap().trim_matches('"');
    let delimiter = format!("--{boundary}");
    let find = |haystack: &[u8], needle: &[u8]| haystack.windows(needle.len()).position(|window| window == needle);
    let mut rest = &body[find(body, delimiter.as_bytes()).unwrap() + delimiter.len()..];
    let mut parts = Vec::new();
    while let Some(part) = rest.strip_prefix(b"\r\n") {
        let end = find(part, b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&part[..end]).unwrap();
        let range = head.split("bytes ").nth(1).unwrap().split('/').next().unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let len = last.parse::<usize>().unwrap() + 1 - first.parse::<usize>().unwrap();
        let content = &part[end + 4..];
        parts.push((head, &content[..len]));
        rest = content[len..].strip_prefix(b"\r\n").unwrap().strip_prefix(delimiter.as_bytes()).unwrap();
    }
    assert!(rest.starts_with(b"--"), "the last boundary ends the body");
    parts
}

#[tokio::test(flavor = "multi_thread")]
async fn multiple_ranges_return_parts_in_request_order() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(SIZE);
    for (cid, form) in forms(&gateway, &content).await {
        let range = format!("bytes={}-{}, 0-9 ,-5", CHUNK - 3, CHUNK + 2);
        let response = ranged(&gateway, &cid, &range).await;
        assert_eq!(response.status(), 206, "{form}");
        assert!(!response.headers().contains_key("content-range"), "only its parts have one");
        let (content_type, length) =
            (header(&response, "content-type").to_owned(), header(&response, "content-length").to_owned());
        let body = response.bytes().await.unwrap();
        assert_eq!(length, body.len().to_string(), "{form}");
        let parts = parts(&content_type, &body);
        let expected = [CHUNK - 3..CHUNK + 3, 0..10, SIZE - 5..SIZE];
        assert_eq!(parts.len(), expected.len());
        for ((head, found), expected) in parts.into_iter().zip(expected) {
            assert_same(found, &content[expected.clone()], form);
            assert!(head.contains(&format!("Content-Range: bytes {}-{}/{SIZE}", expected.start, expected.end - 1)));
            assert!(head.contains("Content-Type: application/octet-stream"), "{head}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_outside_the_file_are_dropped_from_multipart() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "0123456789").await;
    let response = ranged(&gateway, &cid, "bytes=20-30,2-4").await;
    assert_eq!((response.status().as_u16(), header(&response, "content-range")), (206, "bytes 2-4/10"));
    assert_eq!(response.text().await.unwrap(), "234");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_overlapping_ranges_do_not_amplify_the_response() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", content::bytes(100_000)).await;
    let response = ranged(&gateway, &cid, &format!("bytes={}", vec!["0-"; 1_000].join(","))).await;
    assert!(matches!(response.status().as_u16(), 200 | 206 | 416));
    assert!(response.bytes().await.unwrap().len() <= 110_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_range_requires_the_same_strong_tag() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "0123456789").await;
    for (tag, status) in [
        (format!("\"{cid}\""), 206),
        (format!("W/\"{cid}\""), 200),
        ("\"another\"".to_owned(), 200),
        ("Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), 200),
    ] {
        let request = gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", "bytes=2-4");
        let response = request.header("if-range", &tag).send().await.unwrap();
        assert_eq!(response.status(), status, "{tag}");
        assert_eq!(response.text().await.unwrap(), if status == 206 { "234" } else { "0123456789" });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_fields_that_are_no_lists_are_ignored() {
    const DATE: &str = "Wed, 21 Oct 2015 07:28:00 GMT";
    let gateway = TestGateway::start().await;
    let content = content::bytes(SIZE);
    let cid = gateway.add("", content.clone()).await;
    let tag = format!("\"{cid}\"");
    let dated = gateway.add("mtime=1000000000", "0123456789").await;
    let (path, dated) = (format!("/ipfs/{cid}"), format!("/ipfs/{dated}"));
    let (range, if_range, since) = (("range", "bytes=2-4"), ("if-range", tag.as_str()), ("if-modified-since", DATE));
    for (path, headers, status) in [
        (&path, &[range][..], 206),
        (&path, &[range, range], 200),
        (&path, &[range, ("range", "bytes=0-0")], 200),
        (&path, &[range, if_range], 206),
        (&path, &[range, if_range, if_range], 200),
        (&format!("/v1/stream/download/{cid}"), &[range, range], 200),
        (&dated, &[since], 304),
        (&dated, &[since, since], 200),
        (&dated, &[("if-unmodified-since", "Wed, 21 Oct 1998 07:28:00 GMT")], 412),
        (&dated, &[("if-unmodified-since", "Wed, 21 Oct 1998 07:28:00 GMT"); 2], 200),
        // Lists.
        (&path, &[("if-none-match", "\"a\""), ("if-none-match", tag.as_str())], 304),
        (&path, &[("if-match", "\"a\""), ("if-match", tag.as_str())], 200),
        // The head of a partial response is cached by now.
        (&path, &[range, range], 200),
    ] {
        let request = gateway.request(Method::GET, path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{path} {headers:?}");
        if status == 200 && *path != dated {
            assert!(response.bytes().await.unwrap() == content, "{path} {headers:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_none_match_takes_precedence_over_range() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "0123456789").await;
    let request = gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", "bytes=2-4");
    let response = request.header("if-none-match", format!("\"{cid}\"")).send().await.unwrap();
    assert_eq!(response.status(), 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_blocks_and_index_pages_have_ranges_too() {
    let gateway = TestGateway::start().await;
    let site = gateway.add_tree("", &[("d/index.html", "0123456789")]).await;
    let block = gateway.rpc_bytes(&format!("block/get?arg={site}")).await;
    for (path, content) in [(format!("{site}/"), Bytes::from("0123456789")), (format!("{site}?format=raw"), block)] {
        let response = ranged(&gateway, &path, "bytes=1-3").await;
        assert_eq!(response.status(), 206, "{path}");
        assert_eq!(response.bytes().await.unwrap(), content[1..4]);
    }
}

/// Returns the headers of a response, except for those that differ in each response.
fn head(response: &Response) -> Vec<(String, String)> {
    let lines = response.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    lines.filter(|(name, _)| name != "x-request-id" && name != "date").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn path_cache_does_not_affect_later_ranges() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(SIZE);
    for (file, content_type) in [("page.css", "text/css; charset=utf-8"), ("data", "application/octet-stream")] {
        let form = Form::new().file(format!("d/{file}"), &content);
        let directory = hash_of(gateway.add_form("", form).await.last().unwrap());
        let path = format!("/ipfs/{directory}/{file}");
        let with = |headers: &[(&'static str, &str)]| {
            let request = gateway.request(Method::GET, &path).header("range", "bytes=5-300000");
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send()
        };
        let first = with(&[]).await.unwrap();
        let tag = header(&first, "etag").to_owned();
        assert_eq!(header(&first, "content-type"), content_type);
        let expected = head(&first);
        for _ in 0..2 {
            let again = with(&[]).await.unwrap();
            assert_eq!((again.status(), head(&again)), (StatusCode::PARTIAL_CONTENT, expected.clone()));
            assert_same(&again.bytes().await.unwrap(), &content[5..300_001], "the same part");
        }
        let other = gateway.request(Method::GET, &path).header("range", "bytes=-7").send().await.unwrap();
        assert_eq!(header(&other, "content-range"), format!("bytes {}-{}/{SIZE}", SIZE - 7, SIZE - 1));
        assert_eq!(header(&other, "content-length"), "7");
        assert_same(&other.bytes().await.unwrap(), &content[SIZE - 7..], "another part");
        for (name, value, status) in [
            ("if-none-match", tag.as_str(), 304),
            ("if-match", "\"another\"", 412),
            ("if-range", "\"another\"", 200),
            ("if-range", tag.as_str(), 206),
            ("accept", "application/vnd.ipld.raw", 206),
            ("accept", "application/vnd.ipld.car", 200),
        ] {
            assert_eq!(with(&[(name, value)]).await.unwrap().status(), status, "{name}: {value}");
        }
        let raw = gateway.request(Method::GET, &format!("{path}?format=raw")).header("range", "bytes=0-1");
        assert_eq!(header(&raw.send().await.unwrap(), "content-type"), "application/vnd.ipld.raw");
        for range in ["bytes=9999999-", "bytes=x", "bytes=0-1,5-6"] {
            let response = gateway.request(Method::GET, &path).header("range", range).send().await.unwrap();
            let status = if range == "bytes=9999999-" {
                416
            } else if range == "bytes=x" {
                200
            } else {
                206
            };
            assert_eq!(response.status(), status, "{range}");
        }
        let whole = gateway.request(Method::HEAD, &path).header("range", "bytes=5-300000").send().await.unwrap();
        assert_eq!(head(&whole), expected, "HEAD says what GET does");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn range_fails_after_removal_of_an_inner_block() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(40_000);
    // Two levels of nodes between the root and leaves of a kilobyte.
    let cid = gateway.add("chunker=size-1000&max-file-links=4&pin=false", content.clone()).await;
    let mut way = vec![cid.clone()];
    while let Some(link) = gateway.rpc_json(&format!("dag/get?arg={}", way.last().unwrap())).await["Links"].get(0) {
        way.push(link["Hash"]["/"].as_str().unwrap().to_owned());
    }
    assert_eq!(way.len(), 4, "{way:?}");
    for gone in way.iter().rev() {
        for _ in 0..2 {
            let part = ranged(&gateway, &cid, "bytes=10-19").await;
            assert_same(&part.bytes().await.unwrap(), &content[10..20], "before");
        }
        let block = gateway.rpc_bytes(&format!("block/get?arg={gone}")).await;
        gateway.rpc_json(&format!("block/rm?arg={gone}")).await;
        let answer = ranged(&gateway, &cid, "bytes=10-19").await;
        assert_eq!(answer.status(), 404);
        let text = answer.text().await.unwrap();
        assert!(text.contains(gone), "{text}");
        gateway.put_block("format=v0", block).await;
    }
    assert!(gateway.metric("ipfrs_cache_hits_total{cache=\"node\"}").await >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_type_is_detected_once_first_block_arrives() {
    let whole = TestGateway::start().await;
    let gateway = TestGateway::start().await;
    let text = Bytes::from("a line of text\n".repeat(40_000));
    let cid = whole.add("", text.clone()).await;
    let root = whole.rpc_bytes(&format!("block/get?arg={cid}")).await;
    gateway.put_block("format=v0", root).await;
    gateway.add("", text.slice(CHUNK..2 * CHUNK)).await;
    let range = format!("bytes={CHUNK}-{}", CHUNK + 9);
    for _ in 0..2 {
        let part = ranged(&gateway, &cid, &range).await;
        assert_eq!((part.status().as_u16(), header(&part, "content-type")), (206, "application/octet-stream"));
    }
    gateway.add("", text.slice(..CHUNK)).await;
    for _ in 0..3 {
        let part = ranged(&gateway, &cid, &range).await;
        assert_eq!(header(&part, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(header(&part, "vary"), "Accept, Accept-Encoding");
    }
}

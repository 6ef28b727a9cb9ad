//! Content codings of responses (RFC 9110, sections 8.4 and 12.5.3).

use std::io::Read;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use http::header::ACCEPT_ENCODING;
use ipfrs_http::{Coding, CompressionLevel};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, header};
use crate::missing_blocks::without_some_leaves;
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

/// Returns compressible text that does not repeat.
pub(crate) fn text(len: usize) -> Bytes {
    let mut text = String::with_capacity(len + 64);
    for line in 0_u64.. {
        if text.len() >= len {
            break;
        }
        text.push_str(&format!("{line:08} the quick brown fox {:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    text.truncate(len);
    text.into()
}

/// Decodes a body as a browser would. Panics if the body is truncated.
pub(crate) fn decoded(coding: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        "" => out.extend_from_slice(body),
        "gzip" => drop(GzDecoder::new(body).read_to_end(&mut out).unwrap()),
        "deflate" => drop(ZlibDecoder::new(body).read_to_end(&mut out).unwrap()),
        "br" => drop(brotli::Decompressor::new(body, 4_096).read_to_end(&mut out).unwrap()),
        "zstd" => out = zstd::decode_all(body).unwrap(),
        other => panic!("Content-Encoding: {other}"),
    }
    out
}

async fn get(gateway: &TestGateway, path: &str, accept: &str) -> Response {
    gateway.request(Method::GET, path).header(ACCEPT_ENCODING, accept).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_content_coding_decodes_to_identity() {
    let gateway = TestGateway::start().await;
    for (len, is_streamed) in [(1_024, false), (16_384, false), (16_385, true), (262_145, true), (3_000_000, true)] {
        let content = text(len);
        let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
        for coding in ["zstd", "br", "gzip", "deflate"] {
            let response = get(&gateway, &path, coding).await;
            assert_eq!(header(&response, "content-encoding"), coding);
            assert_eq!(header(&response, "content-type"), "text/plain; charset=utf-8");
            assert_eq!(header(&response, "content-length").is_empty(), is_streamed, "{coding} {len}");
            let body = response.bytes().await.unwrap();
            assert!(body.len() < len * 3 / 4, "{coding} of {len}: {}", body.len());
            assert_same(&decoded(coding, &body), &content, coding);
        }
        assert_same(&gateway.content(&path).await, &content, "identity");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_compression_levels_are_streamed() {
    for level in [CompressionLevel::Best, CompressionLevel::Number(19)] {
        let gateway = TestGateway::start_with(|config| config.compression.level = level).await;
        for len in [1_024, 16_000] {
            let content = text(len);
            let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
            for coding in ["zstd", "br", "gzip", "deflate"] {
                let response = get(&gateway, &path, coding).await;
                assert_eq!(header(&response, "content-length"), "", "{level:?} {coding}: done elsewhere");
                assert_same(&decoded(coding, &response.bytes().await.unwrap()), &content, coding);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_megabytes_are_compressed_as_they_stream_and_counted() {
    let gateway = TestGateway::start_with(|config| config.compression.level = CompressionLevel::Fastest).await;
    let content = text(20 << 20);
    let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
    let response = get(&gateway, &path, "zstd;q=0.5, gzip;q=0.4").await;
    assert_eq!(header(&response, "content-encoding"), "zstd");
    let body = response.bytes().await.unwrap();
    assert_same(&decoded("zstd", &body), &content, "20 MiB");
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    for (family, value) in [("responses", 1), ("input_bytes", content.len()), ("output_bytes", body.len())] {
        let line = format!("ipfrs_compression_{family}_total{{coding=\"zstd\"}} {value}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_batches_and_lines_are_compressed_too() {
    let gateway = TestGateway::start().await;
    let files: Vec<_> = (0..300).map(|n| (format!("d/file number {n}.txt"), format!("content {n}"))).collect();
    let files: Vec<_> = files.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
    let root = gateway.add_tree("", &files).await;
    let cid = gateway.add("raw-leaves=true&cid-version=1", text(200_000)).await;
    let batch = json!({"cids": [cid]}).to_string();
    let requests = || {
        [
            gateway.request(Method::GET, &format!("/ipfs/{root}/")),
            gateway.rpc(&format!("ls?arg={root}")),
            gateway.rpc(&format!("ls?arg={root}&stream=true")),
            gateway.request(Method::POST, "/v1/block/batch/get").body(batch.clone()),
        ]
    };
    for (plain, coded) in requests().into_iter().zip(requests()) {
        let plain = plain.send().await.unwrap();
        let what = format!("{} {}", plain.url(), header(&plain, "content-type"));
        assert_eq!((header(&plain, "content-encoding"), plain.status().as_u16()), ("", 200), "{what}");
        assert!(header(&plain, "vary").contains("Accept-Encoding"), "{what}");
        let coded = coded.header(ACCEPT_ENCODING, "gzip, deflate, br").send().await.unwrap();
        assert_eq!(header(&coded, "content-encoding"), "br", "{what}");
        let (plain, coded) = (plain.bytes().await.unwrap(), coded.bytes().await.unwrap());
        assert_same(&decoded("br", &coded), &plain, &what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn incompressible_responses_are_sent_unchanged() {
    let gateway = TestGateway::start().await;
    let long = gateway.add("", text(50_000)).await;
    let short = gateway.add("", text(1_023)).await;
    let octets = gateway.add("", content::bytes(50_000)).await;
    let names = ["a.png", "a.zip", "a.mp4", "a.woff2", "a.pdf", "a.bin"];
    let mut requests = vec![
        gateway.request(Method::GET, &format!("/ipfs/{short}")),
        gateway.request(Method::GET, &format!("/ipfs/{octets}")),
        gateway.request(Method::GET, &format!("/ipfs/{long}?format=raw")),
        gateway.request(Method::GET, &format!("/ipfs/{long}")).header("accept", "application/vnd.ipld.raw"),
        gateway.rpc(&format!("cat?arg={long}")),
        gateway.rpc(&format!("block/get?arg={long}")),
        gateway
            .request(Method::POST, "/v1/block/batch/get")
            .header("accept", "application/vnd.ipld.car")
            .body(json!({"cids": [long]}).to_string()),
        gateway.request(Method::GET, "/health/live"),
    ];
    requests.extend(names.map(|name| gateway.request(Method::GET, &format!("/ipfs/{long}?filename={name}"))));
    for request in requests {
        let response = request.header(ACCEPT_ENCODING, "zstd, br, gzip, deflate").send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.url());
        assert_eq!(header(&response, "content-encoding"), "", "{}", response.url());
        assert!(!header(&response, "vary").contains("Accept-Encoding"), "{}", response.url());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_apply_to_the_identity_coding() {
    let gateway = TestGateway::start().await;
    let content = text(50_000);
    let cid = gateway.add("", content.clone()).await;
    let path = format!("/ipfs/{cid}");
    let ask = async |range: &str, if_range: &str| {
        let request = gateway.request(Method::GET, &path).header(ACCEPT_ENCODING, "gzip").header("range", range);
        let request = if if_range.is_empty() { request } else { request.header("if-range", if_range) };
        request.send().await.unwrap()
    };
    for (range, if_range, status, body) in [
        ("bytes=10-99", "", 206, &content[10..100]),
        ("bytes=10-99", &*format!("\"{cid}\""), 206, &content[10..100]),
        // An entity tag of the compressed representation does not match this range of the identity representation.
        ("bytes=10-99", &*format!("\"{cid}-gzip\""), 200, &content[..]),
        ("items=1-2", "", 200, &content[..]),
    ] {
        let response = ask(range, if_range).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-encoding")), (status, ""), "{range}");
        assert_eq!(header(&response, "etag"), format!("\"{cid}\""));
        assert!(header(&response, "vary").contains("Accept-Encoding"), "{range}");
        assert_same(&response.bytes().await.unwrap(), body, range);
    }
    let many = ask("bytes=0-1,10-11", "").await;
    assert!(header(&many, "vary").contains("Accept-Encoding"), "multipart");
    let outside = ask("bytes=50000-", "").await;
    assert_eq!((outside.status().as_u16(), header(&outside, "content-encoding")), (416, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_coding_has_a_tag_that_revalidates_all_codings() {
    let gateway = TestGateway::start().await;
    let text = text(50_000);
    let cid = gateway.add("", text).await;
    let dir = gateway.add_tree("wrap-with-directory=true", &[("a.txt", "x")]).await;
    let short = gateway.add("", "short").await;
    let listing = header(&gateway.get(&format!("/ipfs/{dir}/")).await, "etag").trim_matches('"').to_owned();
    // Path, tag without quotes, Accept-Encoding, expected tag suffix, whether the response has Vary.
    for (path, tag, accept, suffix, varies) in [
        (format!("/ipfs/{cid}"), &cid, "gzip", "-gzip", true),
        (format!("/ipfs/{cid}"), &cid, "gzip, deflate, br, zstd", "-zstd", true),
        (format!("/ipfs/{cid}"), &cid, "identity", "", true),
        (format!("/ipfs/{cid}?filename=a.css"), &cid, "br", "-br", true),
        (format!("/ipfs/{cid}?filename=a.png"), &cid, "br", "", false),
        (format!("/ipfs/{dir}/"), &listing, "deflate", "-deflate", true),
        (format!("/ipfs/{short}"), &short, "gzip", "", false),
    ] {
        let what = format!("{path} {accept}");
        let expected = format!("\"{tag}{suffix}\"");
        let response = get(&gateway, &path, accept).await;
        assert_eq!(header(&response, "etag"), expected, "{what}");
        assert_eq!(header(&response, "vary").contains("Accept-Encoding"), varies, "{what}");
        assert_eq!(header(&response, "content-encoding"), suffix.trim_start_matches('-'), "{what}");
        assert_eq!(header(&response, "accept-ranges").is_empty(), !suffix.is_empty() || path.ends_with('/'), "{what}");
        for held in
            [expected.clone(), format!("\"{tag}\""), format!("W/\"{tag}-br\""), format!("\"x\", \"{tag}-gzip\"")]
        {
            let request = gateway.request(Method::GET, &path).header(ACCEPT_ENCODING, accept);
            let response = request.header("if-none-match", &held).send().await.unwrap();
            assert_eq!(response.status(), 304, "{what} {held}");
            assert_eq!(header(&response, "etag"), expected, "{what} {held}");
            assert_eq!(header(&response, "vary").contains("Accept-Encoding"), varies, "{what} {held}");
            assert_eq!(header(&response, "content-encoding"), "", "{what} {held}");
        }
        let request = gateway.request(Method::GET, &path).header(ACCEPT_ENCODING, accept);
        let response = request.header("if-none-match", format!("\"{tag}-other\"")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_binary_have_a_tag_for_each_coding() {
    let gateway = TestGateway::start().await;
    for accept in ["gzip", "identity"] {
        let response = get(&gateway, "/openapi.json", accept).await;
        let tag = header(&response, "etag");
        assert_eq!(tag.ends_with("-gzip\""), accept == "gzip", "{tag}");
        let request = gateway.request(Method::GET, "/openapi.json").header(ACCEPT_ENCODING, accept);
        let again = request.header("if-none-match", tag).send().await.unwrap();
        assert_eq!((again.status().as_u16(), header(&again, "etag")), (304, tag), "{accept}");
        assert_eq!(header(&again, "vary"), header(&response, "vary"), "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_headers_of_get() {
    let gateway = TestGateway::start().await;
    let long = gateway.add("", text(50_000)).await;
    let short = gateway.add("", text(2_000)).await;
    let dir = gateway.add_tree("wrap-with-directory=true", &[("a.txt", "x")]).await;
    for path in [format!("/ipfs/{long}"), format!("/ipfs/{short}"), format!("/ipfs/{dir}/"), "/metrics".to_owned()] {
        for accept in ["gzip", "identity", "zstd;q=0, *"] {
            let ask = async |method: &str| {
                let request = format!("{method} {path} HTTP/1.1\r\nAccept-Encoding: {accept}");
                let mut headers = exchange(&gateway, request).await.headers;
                // HEAD may omit headers whose value is known only after generating the body (RFC 9110, 9.3.2).
                headers.retain(|(name, _)| {
                    !["x-request-id", "date", "content-length", "transfer-encoding"]
                        .contains(&name.to_lowercase().as_str())
                });
                headers.sort();
                headers
            };
            let get = ask("GET").await;
            assert_eq!(get.iter().any(|(name, _)| name == "Content-Encoding"), accept != "identity", "{path} {accept}");
            assert_eq!(ask("HEAD").await, get, "{path} {accept}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_identity_response_serves_identity_clients() {
    let gateway = TestGateway::start().await;
    let content = text(3_000);
    let path = format!("/ipfs/{}", gateway.add("", content.clone()).await);
    for accept in ["identity", "gzip", "", "br", "identity", "gzip"] {
        let response = get(&gateway, &path, accept).await;
        let coding = header(&response, "content-encoding").to_owned();
        assert_eq!(coding, accept.trim_start_matches("identity"));
        assert_eq!(header(&response, "vary"), "Accept, Accept-Encoding", "{accept:?}");
        assert_same(&decoded(&coding, &response.bytes().await.unwrap()), &content, accept);
        assert_eq!(header(&gateway.get(&path).await, "content-encoding"), "", "after {accept:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusing_every_coding_returns_406() {
    let gateway = TestGateway::start_with(|config| config.compression.algorithms = vec![Coding::Gzip]).await;
    let path = format!("/ipfs/{}", gateway.add("", text(3_000)).await);
    for (accept, status, coding) in [
        ("identity;q=0", 406, ""),
        ("br, *;q=0", 406, ""),
        ("identity;q=0, gzip;q=0.1", 200, "gzip"),
        ("*;q=0, identity;q=0.1", 200, ""),
        ("br", 200, ""),
        ("", 200, ""),
    ] {
        let response = get(&gateway, &path, accept).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-encoding")), (status, coding), "{accept}");
        assert!(header(&response, "vary").contains("Accept-Encoding"), "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_is_off_by_config_or_for_http_1_0() {
    let gateway = TestGateway::start_with(|config| config.compression.enabled = false).await;
    let path = format!("/ipfs/{}", gateway.add("", text(50_000)).await);
    let response = get(&gateway, &path, "gzip").await;
    assert_eq!((header(&response, "content-encoding"), header(&response, "vary")), ("", "Accept"));
    let gateway = TestGateway::start().await;
    assert_eq!(format!("/ipfs/{}", gateway.add("", text(50_000)).await), path);
    let answer = exchange(&gateway, format!("GET {path} HTTP/1.0\r\nAccept-Encoding: gzip")).await;
    assert_eq!((answer.header("content-encoding"), answer.header("content-length")), ("", "50000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn source_error_aborts_compressed_response() {
    for has in [&[0][..], &[0, 1, 2]] {
        let (gateway, cid) = without_some_leaves("", has).await;
        for coding in ["zstd", "br", "gzip", "deflate"] {
            let path = format!("/ipfs/{cid}?filename=a.txt");
            let answer = exchange(&gateway, format!("GET {path} HTTP/1.1\r\nAccept-Encoding: {coding}")).await;
            assert_eq!((answer.status, answer.header("content-encoding")), (200, coding));
            assert!(!answer.is_complete, "{coding} {has:?}: {} bytes look whole", answer.body.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_stream_is_flushed_while_waiting() {
    let gateway = TestGateway::start().await;
    for coding in ["zstd", "br", "gzip", "deflate"] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!(
            "POST /api/v0/add?progress=true HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: {coding}\r\n\
             Transfer-Encoding: chunked\r\nContent-Type: {}\r\n\r\n",
            Form::new().content_type()
        ))
        .await;
        let whole = Form::new().file("first", "1").file("second", "2").end();
        let (begun, rest) = whole.split_at(whole.len() - 60);
        wire.send([format!("{:x}\r\n", begun.len()).as_bytes(), begun, b"\r\n"].concat()).await;
        let head = until(&mut wire, b"\r\n\r\n").await;
        assert!(head.contains(&format!("Content-Encoding: {coding}\r\n")), "{head}");
        // The progress of the first file arrives before the client has sent all of the second file.
        let mut compressed = Vec::new();
        let mut line = String::new();
        while !line.ends_with('\n') {
            let size = until(&mut wire, b"\r\n").await;
            compressed.extend(wire.take(usize::from_str_radix(size.trim(), 16).unwrap()).await);
            assert_eq!(wire.take(2).await, b"\r\n");
            line = beginning(coding, &compressed);
        }
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["Name"], "first", "{coding}");
        wire.send([format!("{:x}\r\n", rest.len()).as_bytes(), rest, b"\r\n0\r\n\r\n"].concat()).await;
        assert!(wire.rest().await.ends_with(b"0\r\n\r\n"), "{coding}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_error_follows_compressed_lines() {
    let gateway = TestGateway::start().await;
    let cut = Form::new().file("first", "1").file("second", content::bytes(100)).cut(50);
    for (te, is_told) in [("TE: trailers\r\n", true), ("", false)] {
        let mut wire = Wire::connect(&gateway).await;
        let head = format!(
            "POST /api/v0/add?progress=true HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n{te}Content-Length: {}\r\n\
             Content-Type: {}\r\n\r\n",
            cut.len(),
            Form::new().content_type()
        );
        wire.send([head.as_bytes(), &cut].concat()).await;
        let answer = wire.answer().await;
        assert_eq!((answer.header("content-encoding"), answer.is_complete), ("gzip", is_told));
        let text = beginning("gzip", &answer.body);
        assert!(text.starts_with("{\"Name\":\"first\"") && text.contains("\"Type\":\"error\""), "{text}");
        assert_ne!(answer.trailer("x-stream-error").is_empty(), is_told, "{:?}", answer.trailers);
    }
}

/// Reads text up to and including `end`.
async fn until(wire: &mut Wire, end: &[u8]) -> String {
    let mut seen = Vec::new();
    while !seen.ends_with(end) {
        seen.extend(wire.take(1).await);
    }
    String::from_utf8(seen).unwrap()
}

/// Decodes as much as possible of the beginning of a body.
fn beginning(coding: &str, body: &[u8]) -> String {
    let mut decoder: Box<dyn Read> = match coding {
        "gzip" => Box::new(GzDecoder::new(body)),
        "deflate" => Box::new(ZlibDecoder::new(body)),
        "br" => Box::new(brotli::Decompressor::new(body, 4_096)),
        _ => Box::new(zstd::Decoder::new(body).unwrap()),
    };
    let (mut text, mut byte) = (Vec::new(), [0]);
    while decoder.read(&mut byte).is_ok_and(|read| read == 1) {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

//! Response headers that describe content.

use reqwest::{Method, StatusCode};

use crate::content;
use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form;

const IMMUTABLE: &str = "public, max-age=29030400, immutable";

#[tokio::test(flavor = "multi_thread")]
async fn file_response_has_cache_headers() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a/b.txt", "hello world")]).await;
    let (a, file) =
        (gateway.rpc_json(&format!("ls?arg={root}")).await, "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD");
    let a = a["Objects"][0]["Links"][0]["Hash"].as_str().unwrap();
    let path = format!("/ipfs/{root}/a/b.txt");
    let response = gateway.get(&path).await;
    for (name, value) in [
        ("etag", format!("\"{file}\"")),
        ("cache-control", IMMUTABLE.to_owned()),
        ("x-ipfs-path", path.clone()),
        ("x-ipfs-roots", format!("{root},{a},{file}")),
        ("accept-ranges", "bytes".to_owned()),
        ("content-length", "11".to_owned()),
        ("content-type", "text/plain; charset=utf-8".to_owned()),
        ("content-disposition", String::new()),
    ] {
        assert_eq!(header(&response, name), value, "{name}");
    }
    assert_eq!(response.text().await.unwrap(), "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn max_age_of_immutable_answers_is_configured() {
    let gateway = TestGateway::start_with(|config| config.cache.max_age_seconds = 60).await;
    let cid = gateway.add("", "x").await;
    let response = gateway.get(&format!("/ipfs/{cid}")).await;
    assert_eq!(header(&response, "cache-control"), "public, max-age=60, immutable");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_types_come_from_names() {
    let gateway = TestGateway::start().await;
    for (name, content_type) in [
        ("a.html", "text/html"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.woff", "font/woff"),
        ("a.OTF", "font/otf"),
        ("a.car", "application/vnd.ipld.car"),
        ("a.warc", "application/warc"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.PNG", "image/png"),
        ("a.mp4", "video/mp4"),
        ("a.wasm", "application/wasm"),
        ("a.tar.gz", "application/gzip"),
    ] {
        let root = gateway.add_tree("wrap-with-directory=true", &[(name, "no such content")]).await;
        let response = gateway.get(&format!("/ipfs/{root}/{name}")).await;
        assert_eq!(header(&response, "content-type"), content_type, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_types_of_nameless_content_come_from_its_first_bytes() {
    let gateway = TestGateway::start().await;
    let page = "<!DOCTYPE html><title>x</title>".to_owned() + &" ".repeat(300_000);
    let contents: [(&[u8], &str); 9] = [
        (b"", "text/plain"),
        (b"just text\n", "text/plain; charset=utf-8"),
        ("t\u{e9}xt in UTF-8".as_bytes(), "text/plain; charset=utf-8"),
        (page.as_bytes(), "text/html"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg"),
        (b"%PDF-1.7\n", "application/pdf"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "application/gzip"),
        (b"\0\x01\x02\x03\xff\xfe", "application/octet-stream"),
    ];
    for (content, content_type) in contents {
        let cid = gateway.add("", content.to_vec()).await;
        let response = gateway.get(&format!("/ipfs/{cid}")).await;
        assert_eq!(header(&response, "content-type"), content_type);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_none_match_is_answered_with_304_by_weak_comparison() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    let path = format!("/ipfs/{cid}");
    for (value, status) in [
        (format!("\"{cid}\""), 304),
        (format!("W/\"{cid}\""), 304),
        (format!("\"x\", W/\"y\" ,\"{cid}\""), 304),
        ("*".to_owned(), 304),
        (format!("\"{cid}.raw\""), 200),
        ("\"x\"".to_owned(), 200),
        (String::new(), 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let request = gateway.request(method.clone(), &path).header("if-none-match", &value);
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), status, "{method} {value}");
            assert_eq!(header(&response, "etag"), format!("\"{cid}\""), "{value}");
            assert_eq!(header(&response, "cache-control"), IMMUTABLE, "{value}");
            if status == 304 {
                assert_eq!(header(&response, "content-type"), "");
                assert_eq!(response.bytes().await.unwrap(), "");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn if_none_match_holds_for_pages_listings_and_raw_blocks_too() {
    let gateway = TestGateway::start().await;
    let site = gateway.add_tree("", &[("d/index.html", "<p>index"), ("d/x", "x")]).await;
    let plain = gateway.add_tree("", &[("d/x", "x")]).await;
    for (path, is_cid) in [(format!("/ipfs/{site}/"), true), (format!("/ipfs/{plain}/"), false)] {
        let first = gateway.get(&path).await;
        let etag = header(&first, "etag").to_owned();
        if is_cid {
            assert_eq!(etag, format!("\"{site}\""), "of the directory, not of its index");
        } else {
            assert!(etag.starts_with("\"DirIndex-") && etag.ends_with(&format!("_CID-{plain}\"")), "{etag}");
        }
        let again = gateway.request(Method::GET, &path).header("if-none-match", &etag).send().await.unwrap();
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(header(&again, "cache-control"), header(&first, "cache-control"));
    }
    let raw = gateway.request(Method::GET, &format!("/ipfs/{plain}?format=raw"));
    let raw = raw.header("if-none-match", format!("\"{plain}.raw\"")).send().await.unwrap();
    assert_eq!(raw.status(), 304);
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_headers_of_get_and_no_body() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("", content::bytes(700_000)).await;
    let raw_leaves = gateway.add("raw-leaves=true", content::bytes(700_000)).await;
    let directory = gateway.add_tree("", &[("d/x", "x"), ("d/site/index.html", "<p>")]).await;
    for path in [
        format!("/ipfs/{file}"),
        format!("/ipfs/{raw_leaves}?filename=x.bin&download=true"),
        format!("/ipfs/{file}?format=raw"),
        format!("/ipfs/{directory}"),
        format!("/ipfs/{directory}/"),
        format!("/ipfs/{directory}/site/"),
        format!("/ipfs/{directory}/missing"),
        "/ipfs/bafkqaaa".to_owned(),
        "/health".to_owned(),
        "/metrics".to_owned(),
    ] {
        let (get, head) = (gateway.get(&path).await, gateway.request(Method::HEAD, &path).send().await.unwrap());
        assert_eq!(head.status(), get.status(), "{path}");
        let comparable = |response: &reqwest::Response| {
            let mut headers = response.headers().clone();
            // HEAD may omit the length (RFC 9110, 9.3.2). The size of the page about the store changes.
            for name in ["date", "x-request-id", "transfer-encoding", "content-length"] {
                headers.remove(name);
            }
            headers
        };
        assert_eq!(comparable(&head), comparable(&get), "{path}");
        if path.starts_with("/ipfs") && get.headers().contains_key("content-length") && get.status() == 200 {
            assert_eq!(header(&head, "content-length"), header(&get, "content-length"), "{path}");
        }
        assert_eq!(head.bytes().await.unwrap(), "", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_disposition_follows_filename_and_download() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/b.txt", "x")]).await;
    let utf8 = "test%D1%82%D0%B5%D1%81%D1%82.pdf";
    for (query, kind, ascii, extended) in [
        ("filename=a.pdf", "inline", "a.pdf", "a.pdf"),
        ("filename=a.pdf&download=true", "attachment", "a.pdf", "a.pdf"),
        ("filename=a.pdf&download=false", "inline", "a.pdf", "a.pdf"),
        ("download=true", "attachment", "b.txt", "b.txt"),
        ("filename=test%D1%82%D0%B5%D1%81%D1%82.pdf", "inline", "test____.pdf", utf8),
        ("filename=a%22%0D%0AX-Evil:%201.txt", "inline", "a___X-Evil: 1.txt", "a%22%0D%0AX-Evil%3A%201.txt"),
    ] {
        let response = gateway.get(&format!("/ipfs/{root}/b.txt?{query}")).await;
        let expected = format!("{kind}; filename=\"{ascii}\"; filename*=UTF-8''{extended}");
        assert_eq!(header(&response, "content-disposition"), expected, "{query}");
        assert!(!response.headers().contains_key("x-evil"));
        let by_name = if query.contains(".pdf") { "application/pdf" } else { "text/plain; charset=utf-8" };
        assert_eq!(header(&response, "content-type"), by_name, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_block_is_asked_for_by_format_or_accept() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/b.txt", "hello world")]).await;
    let path = format!("/ipfs/{root}/b.txt");
    let file = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";
    let block = gateway.rpc_bytes(&format!("block/get?arg={file}")).await;
    for (query, accept) in [
        ("?format=raw", None),
        ("", Some("application/vnd.ipld.raw")),
        ("", Some("text/html, application/vnd.ipld.raw;q=0.9")),
        ("?format=raw", Some("application/vnd.ipld.car")),
    ] {
        let mut request = gateway.request(Method::GET, &format!("{path}{query}"));
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        for (name, value) in [
            ("content-type", "application/vnd.ipld.raw"),
            ("x-content-type-options", "nosniff"),
            ("etag", "\"Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD.raw\""),
            ("cache-control", IMMUTABLE),
        ] {
            assert_eq!(header(&response, name), value, "{name}, {query} {accept:?}");
        }
        let disposition = header(&response, "content-disposition");
        assert!(disposition.starts_with(&format!("attachment; filename=\"{file}.bin\"")), "{disposition}");
        let location = if query.is_empty() { format!("{path}?format=raw") } else { String::new() };
        assert_eq!(header(&response, "content-location"), location, "where the format is not in the URL");
        assert_eq!(response.bytes().await.unwrap(), block);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_format_is_refused_by_name() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "x").await;
    for format in ["ipns-record", "exe"] {
        let response = gateway.get(&format!("/ipfs/{cid}?format={format}")).await;
        assert_eq!(response.status(), 400, "{format}");
        assert_eq!(header(&response, "cache-control"), "no-store");
        let text = response.text().await.unwrap();
        assert!(text.contains(format), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_if_cached_is_answered_with_412_when_content_is_absent() {
    let gateway = TestGateway::start().await;
    let absent = gateway.add("only-hash=true", "absent").await;
    let present = gateway.add("", "present").await;
    for (cid, status) in [(absent, 412), (present, 200)] {
        for method in [Method::GET, Method::HEAD] {
            let request = gateway.request(method, &format!("/ipfs/{cid}")).header("cache-control", "only-if-cached");
            assert_eq!(request.send().await.unwrap().status(), status);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_worker_scope_over_all_roots_is_refused() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("", "x").await;
    let site = gateway.add_tree("", &[("d/sw.js", "x")]).await;
    for (path, status) in [
        (format!("/ipfs/{file}"), 400),
        // The script's scope would be all roots: several slashes are equivalent to one.
        (format!("/ipfs//{file}"), 400),
        (format!("/ipfs///{file}"), 400),
        (format!("/ipfs/%2F{file}"), 400),
        (format!("/ipfs/{site}/sw.js"), 200),
        (format!("/ipfs//{site}/sw.js"), 200),
    ] {
        let request = gateway.request(Method::GET, &path).header("service-worker", "script");
        assert_eq!(request.send().await.unwrap().status(), status, "{path}");
    }
    // The daemon's own routes do not serve service workers.
    let request = gateway.request(Method::GET, &format!("/v1/stream/download/{site}/sw.js"));
    let request = request.header("service-worker", "script").header("sec-fetch-dest", "serviceworker");
    assert_eq!(request.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn repeated_request_returns_the_same_response() {
    let gateway = TestGateway::start().await;
    let content = b"asked for more than once";
    let cid = gateway.add("", content.to_vec()).await;
    let path = format!("/ipfs/{cid}");
    let steady = |response: &reqwest::Response| {
        let mut headers = response.headers().clone();
        headers.remove("date");
        assert!(headers.remove("x-request-id").is_some());
        headers
    };
    let first = gateway.get(&path).await;
    let headers = steady(&first);
    for _ in 0..3 {
        let again = gateway.get(&path).await;
        assert_eq!((again.status(), steady(&again)), (StatusCode::OK, headers.clone()));
        assert_eq!(again.bytes().await.unwrap().as_ref(), content);
    }
    let ask = |name: &'static str, value: String| {
        let request = gateway.request(Method::GET, &path).header(name, value);
        async { request.send().await.unwrap() }
    };
    assert_eq!(ask("if-none-match", format!("\"{cid}\"")).await.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(ask("range", "bytes=0-4".into()).await.bytes().await.unwrap().as_ref(), b"asked");
    let block = ask("accept", "application/vnd.ipld.raw".into()).await;
    assert_eq!(block.headers()["content-type"], "application/vnd.ipld.raw");
    assert_eq!(ask("x-request-id", "mine".into()).await.headers()["x-request-id"], "mine");
    assert_eq!(gateway.request(Method::POST, &path).send().await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(gateway.request(Method::HEAD, &path).send().await.unwrap().bytes().await.unwrap().is_empty());
    let named = gateway.get(&format!("{path}?filename=a.css")).await;
    assert_eq!(named.headers()["content-type"], "text/css; charset=utf-8");
}

#[tokio::test(flavor = "multi_thread")]
async fn modification_time_of_a_file_decides_as_its_tag() {
    const DATE: &str = "Thu, 02 Jan 2020 03:04:05 GMT";
    let gateway = TestGateway::start().await;
    let cid = gateway.add("mtime=1577934245", "dated").await;
    let path = format!("/ipfs/{cid}");
    for (name, value, status) in [
        ("accept", "*/*", 200),
        ("if-modified-since", DATE, 304),
        ("if-modified-since", "Thu, 02 Jan 2020 03:04:04 GMT", 200),
        ("if-unmodified-since", DATE, 200),
        ("if-unmodified-since", "Thu, 02 Jan 2020 03:04:04 GMT", 412),
    ] {
        // Later responses may come from a cache.
        for _ in 0..3 {
            let response = gateway.request(Method::GET, &path).header(name, value).send().await.unwrap();
            assert_eq!(response.status(), status, "{name}: {value}");
            assert!(status == 412 || header(&response, "last-modified") == DATE, "{name}: {value}");
        }
    }
    for (date, status) in [(DATE, 206), ("Thu, 02 Jan 2020 03:04:04 GMT", 200)] {
        let part = gateway.request(Method::GET, &path).header("range", "bytes=0-1").header("if-range", date);
        assert_eq!(part.send().await.unwrap().status(), status, "{date}");
    }
    for options in ["", "mtime=99999999999", "mtime=-99999999999"] {
        let undated = gateway.add(options, "without a date, of the future, or before the year 0").await;
        assert_eq!(header(&gateway.get(&format!("/ipfs/{undated}")).await, "last-modified"), "", "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modification_time_may_be_before_1970_and_that_of_a_symlink() {
    const DATE: &str = "Fri, 01 Jan 1960 00:00:00 GMT";
    const EARLIER: &str = "Thu, 31 Dec 1959 23:59:59 GMT";
    let gateway = TestGateway::start().await;
    let part = "Content-Disposition: form-data; name=\"file?mtime=-315619200\"; filename=\"link\"\r\n\
                Content-Type: application/symlink";
    let link = gateway.add_form("preserve-mtime=true", Form::new().part(part, b"target")).await;
    for cid in [gateway.add("mtime=-315619200", "dated").await, hash_of(&link[0])] {
        let path = format!("/ipfs/{cid}");
        for (name, value, status) in [
            ("accept", "*/*", 200),
            ("if-modified-since", DATE, 304),
            ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 304),
            ("if-modified-since", EARLIER, 200),
            ("if-unmodified-since", DATE, 200),
            ("if-unmodified-since", EARLIER, 412),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let response = gateway.request(method.clone(), &path).header(name, value).send().await.unwrap();
                assert_eq!(response.status(), status, "{method} {path}, {name}: {value}");
                assert!(
                    status == 412 || header(&response, "last-modified") == DATE,
                    "{method} {path}, {name}: {value}"
                );
            }
        }
        for (date, status) in [(DATE, 206), (EARLIER, 200)] {
            let part = gateway.request(Method::GET, &path).header("range", "bytes=0-1").header("if-range", date);
            assert_eq!(part.send().await.unwrap().status(), status, "{path}, {date}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_repeated_parameters_counts() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello").await;
    let response = gateway.get(&format!("/ipfs/{cid}?format=raw&format=car&filename=a.css&filename=b.html")).await;
    assert_eq!(header(&response, "content-type"), "application/vnd.ipld.raw");
    assert!(header(&response, "content-disposition").contains("a.css"));
}

#[tokio::test(flavor = "multi_thread")]
async fn long_names_and_queries_get_short_headers() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "x").await;
    for (name, end) in [("a".repeat(10_000), "aa.pdf"), ("'".repeat(10_000), "%27%27.pdf")] {
        for path in [
            format!("/ipfs/{cid}?filename={name}.pdf"),
            format!("/ipfs/{cid}?format=raw&filename={name}.pdf"),
            format!("/ipfs/{cid}?format=car&filename={name}.pdf"),
            format!("/v1/stream/download/{cid}?filename={name}.pdf"),
        ] {
            let response = gateway.get(&path).await;
            assert_eq!(response.status(), 200);
            let disposition = header(&response, "content-disposition");
            assert!(disposition.len() < 1_100, "{} bytes", disposition.len());
            assert!(disposition.ends_with(end), "{disposition}");
        }
    }
    for format in ["raw", "car"] {
        let located = async |query: &str| {
            let accept = format!("application/vnd.ipld.{format}");
            let request = gateway.request(Method::GET, &format!("/ipfs/{cid}?{query}")).header("accept", accept);
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 200);
            header(&response, "content-location").to_owned()
        };
        assert!(located("x=1").await.starts_with(&format!("/ipfs/{cid}?x=1&format={format}")));
        assert_eq!(located(&"x".repeat(8_192)).await, "", "longer than clients need to take");
    }
}

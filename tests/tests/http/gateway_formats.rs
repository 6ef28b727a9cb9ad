//! Content in formats other than files and pages: TAR archives, blocks of dag-json, dag-cbor, JSON and CBOR, and
//! pages about nodes (<https://specs.ipfs.tech/http-gateways/path-gateway/>, IPIP-288, IPIP-523, IPIP-524).

use ipfrs_core::{Cid, codec, hash};
use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::content;
use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form;
use crate::rpc_get::{directory, paths, untar};
use crate::wire::exchange;

const IMMUTABLE: &str = "public, max-age=29030400, immutable";
/// `{"a": [1, 2, 3, 4, 5]}`.
const CBOR: &[u8] = b"\xa1\x61\x61\x85\x01\x02\x03\x04\x05";
const JSON: &[u8] = br#"{"a":[1,2,3,4,5]}"#;

async fn with(gateway: &TestGateway, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(method, path);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

async fn accepting(gateway: &TestGateway, path: &str, accept: &str) -> Response {
    with(gateway, Method::GET, path, &[("accept", accept)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tar_format_archives_files_and_trees() {
    let gateway = TestGateway::start().await;
    let large = content::bytes(600_000);
    let form = Form::new().file("d/ü/large", &large).file("d/a", "a").symlink("d/link", "a");
    let root = hash_of(gateway.add_form("", form).await.last().unwrap());
    let path = format!("/ipfs/{root}");
    let etag = format!("W/\"{root}.x-tar\"");
    let saved = format!("attachment; filename=\"{root}.tar\"; filename*=UTF-8''{root}.tar");
    for (query, accept, location) in [
        ("?format=tar", "*/*", String::new()),
        ("?format=tar", "application/vnd.ipld.raw", String::new()),
        ("", "application/x-tar", format!("{path}?format=tar")),
        ("?a=b", "text/html, application/x-tar", format!("{path}?a=b&format=tar")),
    ] {
        let response = accepting(&gateway, &format!("{path}{query}"), accept).await;
        for (name, value) in [
            ("content-type", "application/x-tar"),
            ("etag", &etag),
            ("content-disposition", &saved),
            ("content-location", &location),
            ("accept-ranges", "none"),
            ("cache-control", IMMUTABLE),
            ("x-content-type-options", "nosniff"),
            ("x-ipfs-path", &path),
            ("x-ipfs-roots", &root),
        ] {
            assert_eq!(header(&response, name), value, "{name}, {query} {accept}");
        }
        let entries = untar(&response.bytes().await.unwrap());
        let expected = ["", "/a", "/link", "/ü", "/ü/large"].map(|name| format!("{root}{name}"));
        assert_eq!(paths(&entries), expected);
        content::assert_same(&entries[4].content, &large, "large");
    }
    let path = format!("{path}?format=tar");
    let named = gateway.get(&format!("{path}&filename=t%C3%A9st.tar")).await;
    assert_eq!(
        header(&named, "content-disposition"),
        "attachment; filename=\"t_st.tar\"; filename*=UTF-8''t%C3%A9st.tar"
    );
    let range = with(&gateway, Method::GET, &path, &[("range", "bytes=0-1")]).await;
    assert_eq!(range.status(), 200, "an archive has no ranges");
    let known = with(&gateway, Method::GET, &path, &[("if-none-match", &etag)]).await;
    assert_eq!((known.status().as_u16(), header(&known, "etag")), (304, etag.as_str()));
    let head = with(&gateway, Method::HEAD, &path, &[]).await;
    assert_eq!(
        (head.status().as_u16(), header(&head, "etag"), header(&head, "content-length")),
        (200, etag.as_str(), "")
    );

    // The size of a file's archive is known in advance, and its name is the content ID.
    let file = gateway.add("", large.clone()).await;
    for method in [Method::GET, Method::HEAD] {
        let response = with(&gateway, method.clone(), &format!("/ipfs/{file}?format=tar"), &[]).await;
        let length = 512 + 600_000_usize.next_multiple_of(512) + 1024;
        assert_eq!(header(&response, "content-length"), length.to_string());
        let archive = response.bytes().await.unwrap();
        assert_eq!(archive.is_empty(), method == Method::HEAD);
        assert!(archive.is_empty() || paths(&untar(&archive)) == [file.as_str()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tar_stays_in_root_and_aborts_on_missing_blocks() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("cid-version=1", "x").await;
    let inner = directory(&gateway, &[("../up", &file), ("down/here", &file)]).await;
    let inside = directory(&gateway, &[("d", &inner)]).await;
    let archive = gateway.content(&format!("/ipfs/{inside}?format=tar")).await;
    let expected = ["", "/d", "/up", "/d/down/here"].map(|name| format!("{inside}{name}"));
    assert_eq!(paths(&untar(&archive)), expected, "names that are paths within the root are followed");
    let escaping = directory(&gateway, &[("../../up", &file)]).await;
    for root in [&inner, &escaping, &directory(&gateway, &[("d", &escaping)]).await] {
        let response = gateway.get(&format!("/ipfs/{root}?format=tar")).await;
        assert_eq!(response.status(), 400);
        assert_eq!(header(&response, "cache-control"), "no-store");
        assert!(response.text().await.unwrap().contains("cannot be archived"));
    }
    let absent = Cid::new_v1(codec::RAW, hash::sha2_256(b"absent")).to_string();
    let root = directory(&gateway, &[("absent", &absent)]).await;
    assert_eq!(gateway.get(&format!("/ipfs/{root}?format=tar")).await.status(), 404, "what is met at once");
    let large = gateway.add("cid-version=1", content::bytes(600_000)).await;
    for late in [&absent, &escaping] {
        let root = directory(&gateway, &[("large", &large), ("late", late)]).await;
        let answer = exchange(&gateway, format!("GET /ipfs/{root}?format=tar HTTP/1.1")).await;
        assert!(answer.status == 200 && !answer.is_complete, "{}", answer.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codec_blocks_have_their_media_type() {
    let gateway = TestGateway::start().await;
    for (stored, block, extension, shown) in [
        ("json", JSON, "json", "inline"),
        ("cbor", CBOR, "cbor", "attachment"),
        ("dag-json", JSON, "json", "inline"),
        ("dag-cbor", CBOR, "cbor", "attachment"),
    ] {
        let cid = gateway.put_block(&format!("cid-codec={stored}"), block.to_vec()).await;
        let media = |name: &str| match name.strip_prefix("dag-") {
            Some(_) => format!("application/vnd.ipld.{name}"),
            None => format!("application/{name}"),
        };
        // A block with a dag- codec is also served as the plain codec, with the plain codec's media type and entity
        // tag.
        for asked in [stored, extension] {
            let mut requests = vec![(format!("format={asked}"), "application/vnd.ipld.raw".to_owned(), "")];
            requests.push((String::new(), media(asked), asked));
            if asked == stored {
                requests.push((String::new(), "*/*".to_owned(), ""));
            }
            for (query, accept, located) in requests {
                let url = format!("/ipfs/{cid}?{query}");
                let response = accepting(&gateway, &url, &accept).await;
                let etag = format!("\"{cid}.{asked}\"");
                let location =
                    if located.is_empty() { String::new() } else { format!("/ipfs/{cid}?&format={located}") };
                for (name, value) in [
                    ("content-type", media(asked)),
                    ("etag", etag.clone()),
                    ("content-length", block.len().to_string()),
                    ("content-location", location),
                    ("accept-ranges", "bytes".to_owned()),
                    ("cache-control", IMMUTABLE.to_owned()),
                    ("x-content-type-options", "nosniff".to_owned()),
                    ("x-ipfs-roots", cid.clone()),
                ] {
                    assert_eq!(header(&response, name), value, "{name}, {stored} as {asked} by {query:?} {accept}");
                }
                let disposition = header(&response, "content-disposition").to_owned();
                assert!(disposition.starts_with(&format!("{shown}; filename=\"{cid}.{extension}\"")), "{disposition}");
                assert_eq!(response.bytes().await.unwrap(), block);

                let head = with(&gateway, Method::HEAD, &url, &[("accept", &accept)]).await;
                assert_eq!(header(&head, "content-length"), block.len().to_string());
                let known = with(&gateway, Method::GET, &url, &[("accept", &accept), ("if-none-match", &etag)]).await;
                assert_eq!(known.status(), 304);
                let range = with(&gateway, Method::GET, &url, &[("accept", &accept), ("range", "bytes=2-4")]).await;
                assert_eq!((range.status().as_u16(), header(&range, "content-type")), (206, media(asked).as_str()));
                assert_eq!(range.bytes().await.unwrap(), block[2..5]);
            }
        }
        let saved = gateway.get(&format!("/ipfs/{cid}?format={stored}&filename=x.y&download=true")).await;
        assert!(header(&saved, "content-disposition").starts_with("attachment; filename=\"x.y\""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codec_mismatch_falls_back_to_other_accepted_types() {
    let gateway = TestGateway::start().await;
    let put = async |codec: &str, block: &[u8]| gateway.put_block(&format!("cid-codec={codec}"), block.to_vec()).await;
    let (dag_json, dag_cbor, json) =
        (put("dag-json", JSON).await, put("dag-cbor", CBOR).await, put("json", JSON).await);
    let root = gateway.add_tree("", &[("d/data", r#"{"a": [1]}"#), ("d/text", "words")]).await;
    let file = format!("{root}/data");
    for (path, format, media) in [
        (&dag_json, "dag-cbor", "application/vnd.ipld.dag-cbor"),
        (&dag_json, "cbor", "application/cbor"),
        (&dag_json, "tar", "application/x-tar"),
        (&dag_cbor, "dag-json", "application/vnd.ipld.dag-json"),
        (&dag_cbor, "json", "application/json"),
        (&json, "dag-json", "application/vnd.ipld.dag-json"),
        (&file, "dag-json", "application/vnd.ipld.dag-json"),
        (&file, "dag-cbor", "application/vnd.ipld.dag-cbor"),
        (&root, "json", "application/json"),
    ] {
        let by_query = gateway.get(&format!("/ipfs/{path}?format={format}")).await;
        let by_accept = accepting(&gateway, &format!("/ipfs/{path}"), media).await;
        for response in [by_query, by_accept] {
            assert_eq!(response.status(), 406, "{path} as {format}");
            assert_eq!((header(&response, "cache-control"), header(&response, "vary")), ("no-store", "Accept"));
            let text = response.text().await.unwrap();
            assert!(text.contains(format) && text.contains("format=raw"), "{text}");
        }
        let response = accepting(&gateway, &format!("/ipfs/{path}/"), &format!("{media}, */*;q=0.1")).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-location")), (200, ""), "{path}, {media}");
    }
    // If plain JSON or CBOR is requested, a file of any type is served unchanged.
    for (name, content_type) in [("data", "application/json"), ("text", "text/plain; charset=utf-8")] {
        let plain = gateway.get(&format!("/ipfs/{root}/{name}")).await;
        assert_eq!(header(&plain, "content-type"), content_type);
        let by_query = gateway.get(&format!("/ipfs/{root}/{name}?format=json")).await;
        let by_accept = accepting(&gateway, &format!("/ipfs/{root}/{name}"), "application/json").await;
        let raw = accepting(&gateway, &format!("/ipfs/{root}/{name}?format=json"), "application/vnd.ipld.raw").await;
        let content = plain.bytes().await.unwrap();
        for response in [by_query, by_accept, raw] {
            assert_eq!((header(&response, "content-type"), header(&response, "content-location")), (content_type, ""));
            assert_eq!(response.bytes().await.unwrap(), content);
        }
    }
}

/// As in boxo: a client of blocks must not take a file or a page for what it requested.
#[tokio::test]
async fn accept_with_only_unknown_ipld_types_is_400() {
    let gateway = TestGateway::start_with(|config| {
        let host = HostConfig { deserialized: Some(false), ..HostConfig::default() };
        config.gateway.hosts.insert("trustless.example".into(), host);
    })
    .await;
    let path = format!("/ipfs/{}", gateway.add("cid-version=1", "words").await);
    let unknown = "application/vnd.ipld.unknown";
    let both = format!("{unknown}, application/vnd.ipfs.unknown;q=0.5");
    // The other responses may be cached before and between.
    for (accept, status) in [("*/*", 200), (unknown, 400), ("*/*", 200), (&*both, 400), (&*both, 400)] {
        for method in [Method::GET, Method::HEAD] {
            let response = with(&gateway, method.clone(), &path, &[("accept", accept)]).await;
            assert_eq!(response.status(), status, "{accept}");
            let text = response.text().await.unwrap();
            assert!(status == 200 || method == Method::HEAD || text.contains(unknown), "{text}");
        }
    }
    for others in ["*/*;q=0.1", "text/html", "application/vnd.ipld.raw"] {
        assert_eq!(accepting(&gateway, &path, &format!("{unknown}, {others}")).await.status(), 200, "{others}");
    }
    assert_eq!(accepting(&gateway, &format!("{path}?format=raw"), unknown).await.status(), 200);
    let trustless = with(&gateway, Method::GET, &path, &[("accept", unknown), ("host", "trustless.example")]).await;
    assert_eq!(trustless.status(), 406);
}

#[tokio::test]
async fn format_without_a_value_is_absent() {
    let gateway = TestGateway::start().await;
    let path = format!("/ipfs/{}", gateway.add("cid-version=1", "words").await);
    for (query, accept, media, located) in [
        ("format=", "*/*", "text/plain; charset=utf-8", String::new()),
        ("format=&format=raw", "*/*", "application/vnd.ipld.raw", String::new()),
        ("format=", "application/vnd.ipld.raw", "application/vnd.ipld.raw", format!("{path}?format=&format=raw")),
    ] {
        let response = accepting(&gateway, &format!("{path}?{query}"), accept).await;
        assert_eq!(response.status(), 200, "{query}");
        assert_eq!((header(&response, "content-type"), header(&response, "content-location")), (media, &*located));
    }
}

/// RFC 9110, 12.5.1 and 15.5.7.
#[tokio::test(flavor = "multi_thread")]
async fn most_wanted_available_format_is_sent() {
    let gateway = TestGateway::start().await;
    let cbor = gateway.put_block("cid-codec=dag-cbor", CBOR.to_vec()).await;
    let root = gateway.add_tree("cid-version=1", &[("d/text", "words")]).await;
    let (cbor, text) = (format!("/ipfs/{cbor}"), format!("/ipfs/{root}/text"));
    let (json, dag_json, dag_cbor) =
        ("application/json", "application/vnd.ipld.dag-json", "application/vnd.ipld.dag-cbor");
    let (raw, car, tar) = ("application/vnd.ipld.raw", "application/vnd.ipld.car", "application/x-tar");
    let record = "application/vnd.ipfs.ipns-record";
    for (path, accept, media, located) in [
        (&cbor, format!("{dag_json}, {dag_cbor}"), dag_cbor, "dag-cbor"),
        (&cbor, format!("{json};q=0.5, application/cbor;q=1"), "application/cbor", "cbor"),
        (&cbor, format!("{tar};q=0.2, {car}"), car, "car"),
        (&cbor, format!("{tar}, {car};q=0.2"), car, "car"),
        (&cbor, format!("{raw};q=0.5, {dag_cbor};q=0.6"), dag_cbor, "dag-cbor"),
        (&cbor, format!("{record}, {raw}"), raw, "raw"),
        (&cbor, format!("{dag_json}, application/*"), dag_cbor, ""),
        (&cbor, format!("{record}, */*;q=0.1"), dag_cbor, ""),
        (&text, format!("{dag_json}, {tar};q=0.3, {raw};q=0.4"), raw, "raw"),
        (&text, format!("{dag_json}, {json}"), "text/plain; charset=utf-8", ""),
        (&text, format!("{raw};q=0.1, {json}"), "text/plain; charset=utf-8", ""),
    ] {
        // The second response may come from a cache, which must not know the other formats.
        for accept in [&*accept, "*/*", &*accept] {
            let response = accepting(&gateway, path, accept).await;
            assert_eq!((response.status().as_u16(), header(&response, "vary")), (200, "Accept"), "{path} {accept}");
            let own = if path == &cbor { dag_cbor } else { "text/plain; charset=utf-8" };
            let (media, located) = if accept == "*/*" { (own, "") } else { (media, located) };
            assert!(header(&response, "content-type").starts_with(media), "{path} {accept}: {response:?}");
            let location = header(&response, "content-location");
            let is_located = location.split(['?', '&']).any(|part| part == format!("format={located}"));
            assert!(if located.is_empty() { location.is_empty() } else { is_located }, "{path} {accept}: {location}");
        }
    }
    for (accept, status) in [
        (format!("{dag_json}, {tar}"), 406),
        (format!("{dag_json};q=0.1, {json}"), 406),
        (format!("{dag_json}, {dag_cbor};q=0"), 406),
        (record.to_owned(), 400),
    ] {
        assert_eq!(accepting(&gateway, &cbor, &accept).await.status(), status, "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn path_within_a_node_returns_501_in_every_format() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.put_block("cid-codec=dag-json", JSON.to_vec()).await;
    let node = format!(r#"{{"link":{{"/":"{leaf}"}},"map":{{"x":1}}}}"#);
    let node = gateway.put_block("cid-codec=dag-json", node).await;
    for query in ["", "?format=dag-json", "?format=json", "?format=raw", "?format=tar"] {
        assert_eq!(gateway.get(&format!("/ipfs/{node}/map{query}")).await.status(), 501, "{query}");
        assert_eq!(gateway.get(&format!("/ipfs/{node}/nothing{query}")).await.status(), 404, "{query}");
    }
    assert_eq!(accepting(&gateway, &format!("/ipfs/{node}/map/"), "text/html").await.status(), 501);
    let linked = gateway.get(&format!("/ipfs/{node}/link?format=dag-json")).await;
    assert_eq!(header(&linked, "x-ipfs-roots"), format!("{node},{leaf}"));
    assert_eq!(header(&linked, "etag"), format!("\"{leaf}.dag-json\""));
    assert_eq!(linked.bytes().await.unwrap(), JSON);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_page_for_browsers_has_working_links() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.add("cid-version=1", "leaf").await;
    let node = format!(r#"{{"<script>":"</pre><b>","link":{{"/":"{leaf}"}}}}"#);
    let cid = gateway.put_block("cid-codec=dag-json", node.clone()).await;
    let moved = accepting(&gateway, &format!("/ipfs/{cid}?x=y"), "text/html").await;
    assert_eq!((moved.status().as_u16(), header(&moved, "location")), (301, format!("/ipfs/{cid}/?x=y").as_str()));
    assert_eq!(header(&moved, "vary"), "Accept");
    let path = format!("/ipfs/{cid}/");
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let response = accepting(&gateway, &path, browser).await;
    let etag = header(&response, "etag").to_owned();
    assert!(etag.starts_with("\"DagIndex-") && etag.ends_with(&format!("_CID-{cid}\"")), "{etag}");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "public, max-age=604800, stale-while-revalidate=2678400"),
        ("content-disposition", ""),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&response, name), value, "{name}");
    }
    assert!(header(&response, "content-security-policy").starts_with("default-src 'none';"));
    let page = response.text().await.unwrap();
    assert!(page.contains(&format!("<a href=\"/ipfs/{leaf}\">")) && page.trim_end().ends_with("</html>"), "{page}");
    assert!(page.matches("<script>").count() == 1 && !page.contains("</pre><b>"), "its own script: {page}");
    let known = with(&gateway, Method::GET, &path, &[("accept", browser), ("if-none-match", &etag)]).await;
    assert_eq!(known.status(), 304);
    let head = with(&gateway, Method::HEAD, &path, &[("accept", browser)]).await;
    assert_eq!((header(&head, "etag"), header(&head, "content-length")), (etag.as_str(), ""));
    for query in ["?download=true", "?format=dag-json", "?format=json"] {
        let block = accepting(&gateway, &format!("{path}{query}"), browser).await;
        assert_eq!(block.text().await.unwrap(), node, "{query}");
    }

    let page = async |codec: &str, block: Vec<u8>| {
        let cid = gateway.put_block(&format!("cid-codec={codec}"), block).await;
        let response = accepting(&gateway, &format!("/ipfs/{cid}/"), browser).await;
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    };
    assert!(page("dag-cbor", CBOR.to_vec()).await.contains("&quot;a&quot;: [\n    1,\n    2,"));
    assert!(page("dag-pb", b"\x0a\x01\xff".to_vec()).await.contains("&quot;Data&quot;"), "dag-pb that is not UnixFS");
    assert!(page("dag-cbor", b"\xff".to_vec()).await.contains("cannot be shown"));
    let long = [&b"\x7a\x00\x01\x00\x00"[..], &[b'a'; 0x1_0000]].concat();
    assert!(page("dag-cbor", long).await.contains("nodes larger than 64.0 KiB are not shown"));
    // Browsers display plain JSON themselves.
    assert_eq!(page("json", JSON.to_vec()).await.as_bytes(), JSON);
}
